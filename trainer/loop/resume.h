// SPDX-License-Identifier: Apache-2.0
// What a run keeps in its checkpoints: tensors with the roles param, m and v, each rank those parts that it owns, and the facts
// that a restart must agree with.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "trainer/comm/comm.h"
#include "trainer/loop/setup.h"

namespace mm::loop {

class CommGroup : public checkpoint::Group {
 public:
  explicit CommGroup(comm::Comm& comm) : comm_(comm) {}
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  std::vector<std::string> all_gather(const std::string& mine) override { return comm_.all_gather(mine); }

 private:
  comm::Comm& comm_;
};

// `stream` is the fingerprint of the data that is read.
checkpoint::Facts facts_of(const Setup& setup, const std::string& stream, int64_t step);
// Throws a usage Error where a run cannot be continued from these facts: another model or dtype, or, unless
// `allow_data_change`, other data. The message names what differs.
void check_facts(const checkpoint::Facts& facts, const Setup& setup, const std::string& stream, bool allow_data_change);
// What else is not as it was, a line for each: the run goes on all the same.
std::vector<std::string> differences(const checkpoint::Facts& facts, const Setup& setup);

}  // namespace mm::loop
