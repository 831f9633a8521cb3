// SPDX-License-Identifier: Apache-2.0
// The kernel log of this node, from lines to the desk: each finding of the classifier is a fault of its own.
//
// A node that boots has its faults in the log before the agent starts: they count. But where the agent is new on a node that has been up for
// long, what is older than some minutes may have been repaired since: it is told, and nothing is done about it.
#pragma once

#include <set>
#include <string>

#include "agent/daemon/context.h"
#include "agent/daemon/desk.h"
#include "agent/klog/classifier.h"
#include "agent/probes/kernel_log.h"

namespace mm::agent {

class KernelWatch {
 public:
  // `position`: of an earlier agent on this boot; empty: there was none.
  KernelWatch(Context& context, Desk& desk, const std::string& position);

  std::string position() const { return log_.position(); }
  uint64_t lines() const { return classifier_.lines(); }
  uint64_t lost() const { return log_.lost(); }
  bool reads() const { return log_.is_open(); }

 private:
  void line(std::string_view text);
  void turn();
  void age();

  Context& c_;
  Desk& desk_;
  double started_ = 0;  // monotonic seconds
  bool first_start_ = false;
  Classifier classifier_;
  std::set<uint64_t> changed_;
  std::map<uint64_t, std::string> keys_;
  uint64_t lost_ = 0;
  Timer age_timer_;
  KernelLog log_;
};

}  // namespace mm::agent
