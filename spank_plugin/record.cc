// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/record.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include "common/key_values.h"
#include "common/plan/stages.h"

namespace mm::spank {
namespace {

// Blanks, '%' and what a shell or a line-wise reader of an environment would trip over become %XX.
std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("._,/:+-[]=").find(c) != std::string_view::npos)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return out;
}

std::string unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Numbers from 0 to 1e18 between commas; none where one is malformed or there are more than 16.
std::vector<double> numbers(std::string_view list) {
  std::vector<double> out;
  while (!list.empty()) {
    const size_t end = list.find(',');
    const std::string_view item = list.substr(0, end);
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
    double value = 0;
    const auto [at, error] = std::from_chars(item.data(), item.data() + item.size(), value);
    if (error != std::errc() || at != item.data() + item.size() || !(value >= 0 && value <= 1e18) || out.size() == 16)
      return {};
    out.push_back(value);
  }
  return out;
}

}  // namespace

std::string format_record(const Record& r) {
  std::string text =
      fmt::format("value={} spec={} tp={} pp={} cp={} spares={} hang={:.17g} requeue={} tasks={}", escape(r.value),
                  escape(r.spec), r.tp, r.pp, r.cp, r.spares, r.hang_timeout, r.requeue ? 1 : 0, r.tasks);
  if (!r.order.empty()) text += fmt::format(" order={}", escape(r.order));
  if (!r.master.empty()) text += fmt::format(" master={}", escape(r.master));
  if (r.ordered) text += " ordered=1";
  if (r.encoder_tp > 0) text += fmt::format(" enc={},{}", r.encoder_tp, r.encoder_dp);
  if (r.verbose) text += " verbose=1";
  if (r.user_cpus) text += " ucpu=1";
  if (r.user_memory) text += " umem=1";
  if (r.cpus > 0) text += fmt::format(" cpus={}", r.cpus);
  for (size_t k = 0; k < r.bytes.size(); ++k) text += fmt::format("{}{:.6g}", k == 0 ? " bytes=" : ",", r.bytes[k]);
  if (!r.stage_speeds.empty()) text += fmt::format(" stages={}", escape(r.stage_speeds));
  if (r.refused) text += " refused=1";
  return text;
}

std::optional<Record> parse_record(std::string_view text) {
  KeyValues values;
  while (!text.empty()) {
    const size_t end = text.find(' ');
    const std::string_view item = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) continue;
    values[std::string(item.substr(0, equals))] = unescape(item.substr(equals + 1));
  }
  Record r;
  r.value = get(values, "value");
  if (r.value.empty()) return {};
  r.spec = get(values, "spec");
  r.order = get(values, "order");
  r.master = get(values, "master");
  r.ordered = get(values, "ordered") == "1";
  r.refused = get(values, "refused") == "1";
  r.requeue = get(values, "requeue", "1") != "0";
  bool fits = true;
  const auto number = [&](const char* key, int64_t least, int64_t otherwise) {
    const int64_t n = get_int(values, key, otherwise);
    fits = fits && n >= least && n <= 1 << 24;
    return static_cast<int>(n);
  };
  r.tp = number("tp", 1, 1);
  r.pp = number("pp", 1, 1);
  r.cp = number("cp", 1, 1);
  r.spares = number("spares", 0, 0);
  r.tasks = number("tasks", 0, 0);
  r.cpus = number("cpus", 0, 0);
  r.verbose = get(values, "verbose") == "1";
  r.user_cpus = get(values, "ucpu") == "1";
  r.user_memory = get(values, "umem") == "1";
  const std::vector<double> encoder = numbers(get(values, "enc"));
  if (encoder.size() == 2 && encoder[0] <= 1 << 12 && encoder[1] <= 1 << 12) {
    r.encoder_tp = static_cast<int>(encoder[0]);
    r.encoder_dp = static_cast<int>(encoder[1]);
  }
  r.bytes = numbers(get(values, "bytes"));
  r.stage_speeds = plan::format_stage_speeds(plan::parse_stage_speeds(get(values, "stages")));
  const std::string hang = get(values, "hang", "0");
  const auto [end, error] = std::from_chars(hang.data(), hang.data() + hang.size(), r.hang_timeout);
  fits = fits && error == std::errc() && end == hang.data() + hang.size() && r.hang_timeout >= 0 && r.hang_timeout <= 1e9;
  if (!fits || int64_t{r.tp} * r.pp > 1 << 24 || int64_t{r.tp} * r.pp * r.cp > 1 << 24) return {};
  return r;
}

}  // namespace mm::spank
