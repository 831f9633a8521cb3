// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/engine.h"

#include "trainer/comm/operation.h"

namespace mm::comm {

using Clock = std::chrono::steady_clock;

Engine::Engine(std::unique_ptr<Transport> transport)
    : nodes(static_cast<size_t>(transport->size()), "?"), transport_(std::move(transport)) {}

Engine::~Engine() = default;

std::shared_ptr<Operation> Engine::operation() {
  for (const std::shared_ptr<Operation>& o : operations_)
    if (o.use_count() == 1 && o->reusable()) return o;
  return operations_.emplace_back(std::make_shared<Operation>(*this));
}

void Engine::progress() {
  // By index: an operation does not begin others, but the order must not matter to whoever changes that.
  for (size_t i = 0; i < operations_.size(); ++i)
    if (operations_[i]->flying()) operations_[i]->advance();
}

void Engine::wait(Operation& operation) {
  const Clock::time_point begin = Clock::now(), end = begin + deadline;
  for (;;) {
    transport_->look();
    progress();
    if (!operation.flying() || Clock::now() >= end) break;
    transport_->idle(end);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  for (Counts* c = &operation.counts(); c != nullptr; c = c->parent.get()) c->wait_seconds += seconds;
  operation.check();
}

}  // namespace mm::comm
