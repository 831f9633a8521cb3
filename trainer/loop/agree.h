// SPDX-License-Identifier: Apache-2.0
// Errors that all ranks learn of, so that they end together, with one message and one status, and no rank waits for one that
// has left.
#pragma once

#include <functional>
#include <string>

#include "common/error.h"
#include "trainer/comm/comm.h"

namespace mm::loop {

// An Error that every rank throws at the same point. The lowest rank among those that met it says it.
struct AgreedError : Error {
  AgreedError(int exit_with, const std::string& message, bool mine_to_say) : Error(exit_with, message), say(mine_to_say) {}
  bool say;
};

// Runs `body`, which makes no collective call; what it throws is returned in a form that `throw_first` takes. Empty: nothing.
std::string failure_of(const std::function<void()>& body);
// Collective: where a failure is not empty on any rank, all throw that of the first such rank. The message names the rank and
// its node unless all ranks met the same.
void throw_first(comm::Comm& comm, const std::string& failure);
// Collective: both in one.
void agree(comm::Comm& comm, const std::function<void()>& body);

}  // namespace mm::loop
