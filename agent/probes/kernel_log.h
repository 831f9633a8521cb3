// SPDX-License-Identifier: Apache-2.0
// The kernel log as it grows: /dev/kmsg, or a log file that is followed through rotation and truncation.
//
// Invariants: every line is given once and in order; after a restart of the agent, reading goes on behind the position that was kept (valid
// for one boot). Records that the kernel overwrote before they were read are counted, not made up for. A flood of lines is read in turns,
// so that the loop's other work goes on.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "agent/loop.h"
#include "common/files.h"

namespace mm::agent {

class KernelLog {
 public:
  struct Handlers {
    std::function<void(std::string_view line)> line;
    std::function<void()> turn;  // after one or more lines, when no further line waits or others should have their turn
  };
  // `position`: as position() gave it, empty for the beginning.
  KernelLog(Loop& loop, std::string path, const std::string& position, Handlers handlers);

  std::string position() const;
  uint64_t lost() const { return lost_; }  // times that records were overwritten
  bool is_open() const { return static_cast<bool>(fd_); }
  bool is_device() const { return device_; }

 private:
  void open();
  void readable();
  bool read_records();  // true: there may be more
  bool read_file();
  void watch_file();

  Loop& loop_;
  std::string path_;
  Handlers handlers_;
  UniqueFd fd_, inotify_;
  FdWatch watch_;
  Timer again_;
  bool device_ = false, turn_pending_ = false;
  uint64_t sequence_ = 0, inode_ = 0, offset_ = 0, lost_ = 0;
  bool have_sequence_ = false;
  std::string rest_;
};

}  // namespace mm::agent
