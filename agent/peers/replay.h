// SPDX-License-Identifier: Apache-2.0
// Refuses a message that was seen before. munged refuses a credential that it has decoded already, but each node has its own munged, and a
// munged that restarts forgets; so each message also carries the sender's run (a number that changes at each start) and a count.
//
// Of one run, each count is accepted once, and none that is more than 64 behind the highest. Another run is accepted only where its
// credential is not older than the newest one seen, so that messages of an earlier run cannot come back.
#pragma once

#include <cstdint>
#include <string>

namespace mm::agent {

class ReplayWindow {
 public:
  bool accept(const std::string& run, uint64_t count, int64_t encoded_at) {
    if (run != run_) {
      if (encoded_at < newest_) return false;
      run_ = run;
      highest_ = count;
      seen_ = 1;
    } else if (count > highest_) {
      const uint64_t ahead = count - highest_;
      seen_ = ahead >= 64 ? 1 : (seen_ << ahead) | 1;
      highest_ = count;
    } else {
      const uint64_t behind = highest_ - count;
      if (behind >= 64 || (seen_ >> behind & 1) != 0) return false;
      seen_ |= uint64_t{1} << behind;
    }
    if (encoded_at > newest_) newest_ = encoded_at;
    return true;
  }

 private:
  std::string run_;
  uint64_t highest_ = 0;
  uint64_t seen_ = 0;  // bit i: count highest_ - i
  int64_t newest_ = 0;
};

}  // namespace mm::agent
