// SPDX-License-Identifier: Apache-2.0
// Tells what a run of a probe is at, to whoever reports that it hangs.
#pragma once

#include <mutex>
#include <string>

namespace mm::agent {

class Place {
 public:
  void at(const std::string& now) {
    const std::lock_guard lock(mutex_);
    where_ = now;
  }
  std::string get() {
    const std::lock_guard lock(mutex_);
    return where_;
  }

 private:
  std::mutex mutex_;
  std::string where_;
};

}  // namespace mm::agent
