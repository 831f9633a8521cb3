// SPDX-License-Identifier: Apache-2.0
#include "agent/klog/line.h"

#include <array>

#include "agent/klog/scan.h"

namespace mm::agent {
namespace {

constexpr std::array<std::string_view, 12> months = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
constexpr double day = 86400;
constexpr size_t most_prefix = 100;

// Days since a fixed date, by the usual count of leap years; without a year a leap year is taken, so that 29 February is a day.
double days_of(int64_t year, int64_t month, int64_t date) {
  if (month <= 2) --year, month += 12;
  return static_cast<double>(365 * year + year / 4 - year / 100 + year / 400 + (153 * (month - 3) + 2) / 5 + date);
}

// HH:MM:SS[.frac]
std::optional<double> clock_time(Scan& scan) {
  Scan s = scan;
  const auto h = s.number();
  if (!h || !s.take(":")) return std::nullopt;
  const auto m = s.number();
  if (!m || !s.take(":")) return std::nullopt;
  const auto sec = s.number();
  if (!sec) return std::nullopt;
  double out = static_cast<double>(*h * 3600 + *m * 60 + *sec);
  if (!s.rest().empty() && (s.rest().front() == '.' || s.rest().front() == ',')) {
    s.take(s.rest().substr(0, 1));
    double unit = 0.1;
    for (const char c : s.while_is(is_digit)) out += unit * (c - '0'), unit /= 10;
  }
  scan = s;
  return out;
}

std::optional<int64_t> month_name(Scan& scan) {
  for (size_t i = 0; i < months.size(); ++i)
    if (scan.take(months[i])) return static_cast<int64_t>(i) + 1;
  return std::nullopt;
}

// "Aug 17 06:18:01 " or "Aug 17 2025 06:18:01 "
bool syslog_date(Scan& scan, LogLine& out) {
  Scan s = scan;
  const auto month = month_name(s);
  if (!month) return false;
  s.spaces();
  const auto date = s.number();
  s.spaces();
  if (!date) return false;
  int64_t year = 2000;
  if (s.rest().size() > 4 && s.rest()[4] == ' ') {
    const auto stated = s.number();
    if (!stated) return false;
    year = *stated;
    s.spaces();
  }
  const auto time = clock_time(s);
  if (!time) return false;
  out.clock = LogLine::Clock::wall;
  out.seconds = days_of(year, *month, *date) * day + *time;
  s.spaces();
  scan = s;
  return true;
}

// "2025-11-19T12:34:56.789+00:00 HOST PROGRAM: " of syslog, or "2025-11-19T12:34:56,789012+00:00 " of dmesg, whose comma tells that no sender follows
bool iso_date(Scan& scan, LogLine& out, bool& sender_follows) {
  Scan s = scan;
  if (s.rest().size() < 19 || s.rest()[4] != '-' || s.rest()[7] != '-') return false;
  const auto year = s.number();
  if (!year || !s.take("-")) return false;
  const auto month = s.number();
  if (!month || !s.take("-")) return false;
  const auto date = s.number();
  if (!date || !(s.take("T") || s.take(" "))) return false;
  const auto time = clock_time(s);
  if (!time) return false;
  s.while_is([](char c) { return is_digit(c) || c == '+' || c == '-' || c == ':' || c == 'Z'; });
  out.clock = LogLine::Clock::wall;
  out.seconds = days_of(*year, *month, *date) * day + *time;
  s.spaces();
  sender_follows = !contains(scan.rest().substr(0, 20), ",");
  scan = s;
  return true;
}

// "[ 1843.308145] ", "[Wed Jul 31 23:14:18 2024] ", "[  +0.000123] ", "[T1234] ", "[...] "
bool bracket(Scan& scan, LogLine& out) {
  Scan s = scan;
  if (!s.take("[")) return false;
  Scan inner(s.until("]"));
  if (!s.take("]")) return false;
  const std::string_view whole = trimmed(inner.rest());
  Scan in(whole);
  if (in.take("T") || in.take("C")) {  // the caller's thread or CPU
    if (const std::string_view digits = in.while_is(is_digit); digits.empty() || !in.done()) return false;
  } else if (whole == "...") {
  } else if (in.take("+")) {
  } else if (const std::string_view digits = in.while_is([](char c) { return is_digit(c) || c == '.'; });
             !digits.empty() && (in.done() || in.rest().front() == '@')) {
    double value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    out.clock = LogLine::Clock::monotonic;
    out.seconds = value;
  } else {
    Scan date(whole);
    date.word();  // day of the week
    date.spaces();
    if (LogLine found; syslog_date(date, found)) {
      // The year stands at the end.
      const auto year = date.number();
      out.clock = LogLine::Clock::wall;
      out.seconds = found.seconds + (days_of(year.value_or(2000), 3, 1) - days_of(2000, 3, 1)) * day;
    } else {
      return false;
    }
  }
  s.spaces();
  scan = s;
  return true;
}

// "6,1234,98765432,-;": level and facility, number, microseconds
bool kmsg_record(Scan& scan, LogLine& out) {
  Scan s = scan;
  const auto priority = s.number();
  if (!priority || !s.take(",")) return false;
  if (!s.number() || !s.take(",")) return false;
  const auto microseconds = s.number();
  if (!microseconds || !s.skip_past(";")) return false;
  out.kernel = *priority >> 3 == 0;
  out.clock = LogLine::Clock::monotonic;
  out.seconds = static_cast<double>(*microseconds) / 1e6;
  scan = s;
  return true;
}

// "<4>"
bool angle_priority(Scan& scan, LogLine& out) {
  Scan s = scan;
  if (!s.take("<")) return false;
  const auto priority = s.number();
  if (!priority || !s.take(">")) return false;
  if (*priority >= 0 && *priority >> 3 != 0) out.kernel = false;
  s.spaces();
  scan = s;
  return true;
}

// "kern  :err   : " of dmesg --decode
bool decoded_priority(Scan& scan, LogLine& out) {
  Scan s = scan;
  const std::string_view facility = s.while_is(is_word);
  s.spaces();
  if (facility.empty() || !s.take(":")) return false;
  const std::string_view level = s.while_is(is_word);
  s.spaces();
  if (!s.take(":") || (level != "emerg" && level != "alert" && level != "crit" && level != "err" && level != "warn" && level != "notice" &&
                       level != "info" && level != "debug"))
    return false;
  out.kernel = facility == "kern";
  s.spaces();
  scan = s;
  return true;
}

// "HOST PROGRAM[PID]: " behind a date, or "HOST kernel: ", "kernel: ".
bool sender(Scan& scan, LogLine& out, bool dated) {
  Scan s = scan;
  if (!s.take("kernel:")) {
    if (s.word().empty()) return false;
    s.spaces();
    if (!s.take("kernel:")) {
      if (!dated) return false;
      const std::string_view program = s.until("[: \t");
      if (program.empty()) return false;
      if (s.take("[")) {
        s.until("]");
        s.take("]");
      }
      if (!s.take(":")) return false;
      out.program = program;
      out.kernel = false;
    }
  }
  s.spaces();
  scan = s;
  return true;
}

}  // namespace

LogLine parse_log_line(std::string_view line) {
  LogLine out;
  Scan scan(trimmed(line));
  if (!kmsg_record(scan, out)) {
    while (angle_priority(scan, out) || decoded_priority(scan, out)) {}
    while (bracket(scan, out)) {}
    bool sender_follows = true;
    const bool dated = iso_date(scan, out, sender_follows) || syslog_date(scan, out);
    const bool sent = sender(scan, out, dated && sender_follows);
    if (!dated && !sent) {
      // A date in another language, or a file's name in front: what is the kernel's says so.
      if (const size_t mark = scan.rest().find(" kernel: "); mark < most_prefix) scan = Scan(scan.rest().substr(mark + 9));
    }
    if (dated || sent || scan.rest().starts_with("["))
      while (bracket(scan, out)) {}
  }
  out.message = trimmed(scan.rest());
  if (Scan again(out.message); again.take("message repeated ")) {
    const auto times = again.number();
    if (times && *times > 0 && *times < 1 << 24 && again.take(" times: [") && again.rest().ends_with("]")) {
      out.repeated = static_cast<int>(*times);
      Scan inside(trimmed(again.rest().substr(0, again.rest().size() - 1)));
      while (bracket(inside, out)) {}
      out.message = trimmed(inside.rest());
    }
  }
  return out;
}

}  // namespace mm::agent
