// SPDX-License-Identifier: Apache-2.0
// One line of a kernel log, whatever printed it: /dev/kmsg records, dmesg with its options, syslog files, journalctl, or bare text. What stands
// before the message is taken off; the time is kept as seconds of which only differences count (a syslog date names no year).
#pragma once

#include <string_view>

namespace mm::agent {

struct LogLine {
  enum class Clock { none, monotonic, wall };
  std::string_view message;  // points into the line
  std::string_view program;  // empty: the kernel
  bool kernel = true;        // false: a program's line, also one that a program wrote into /dev/kmsg
  Clock clock = Clock::none;
  double seconds = 0;
  int repeated = 1;          // "message repeated 9 times: [ ... ]" of rsyslog stands for so many
};

LogLine parse_log_line(std::string_view line);

}  // namespace mm::agent
