// SPDX-License-Identifier: Apache-2.0
// A Group that threads beside the training can use: ranks talk over TCP connections of their own, all to rank 0. A wait blocks
// in the kernel and costs no CPU; it has a deadline, and its error names the rank and host that is late. After an error the
// channel is of no further use.
//
// Who may join is told by 128 random bits, which ranks get through the group that the channel is made from.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "common/files.h"

namespace mm::checkpoint {

class Channel : public Group {
 public:
  // Collective on `group`; throws the same Error on all ranks where one cannot be reached.
  Channel(Group& group, std::chrono::milliseconds deadline);
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hosts_.size()); }
  std::vector<std::string> all_gather(const std::string& mine) override;
  std::vector<std::string> gather(const std::string& mine) override;
  std::string broadcast(const std::string& mine) override;

 private:
  std::string connect_all(Group& group);
  std::string name_of(size_t rank) const;  // for messages

  int rank_;
  std::chrono::milliseconds deadline_;
  std::vector<std::string> hosts_;  // of the ranks
  std::vector<UniqueFd> peers_;     // on rank 0: of each rank but itself; on others: of rank 0
};

}  // namespace mm::checkpoint
