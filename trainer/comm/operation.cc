// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/error.h"
#include "trainer/comm/combine.h"

namespace mm::comm {
namespace {

constexpr size_t round_bytes = 64 << 20;     // received in a round, from all peers together
constexpr size_t message_bytes = 4 << 20;    // of one message of a collective, at most
constexpr int64_t single_bytes = 1 << 30;    // of one message of a send, at most: MPI counts with int
constexpr size_t exchange_bytes = 64 << 10;  // received by an exchange

const char* name_of(What what) {
  switch (what) {
    case What::reduce_scatter:
      return "reduce_scatter";
    case What::all_gather:
      return "all_gather";
    case What::broadcast:
      return "broadcast";
    case What::all_reduce:
      return "all_reduce";
    case What::all_reduce_max:
      return "all_reduce_max";
    case What::barrier:
      return "barrier";
    case What::split:
      return "split";
    case What::send:
      return "send";
    case What::receive:
      return "receive";
  }
  return "?";
}

const char* name_of(Type type) {
  return type == Type::f64 ? "double" : type == Type::f32 ? "float" : type == Type::i32 ? "int32" : "uint8";
}

}  // namespace

void Operation::begin(std::shared_ptr<Group> group, What what, Type type, void* data) {
  group_ = std::move(group);
  what_ = what;
  type_ = type;
  data_ = static_cast<std::byte*>(data);
  round_begin_ = 0;
  failure_.clear();
}

void Operation::record(std::string what, int peer, bool outgoing) {
  engine_.trace.push_back(
      {fmt::format("{}@{}", group_->name, group_->members.front()), group_->size(), std::move(what), peer, outgoing});
}

void Operation::begin_collective(std::shared_ptr<Group> group, What what, Type type, void* data,
                                 std::span<const int64_t> bounds) {
  begin(std::move(group), what, type, data);
  bounds_.assign(bounds.begin(), bounds.end());
  const size_t ranks = group_->members.size();
  if (bounds_.size() != ranks + 1 || !std::is_sorted(bounds_.begin(), bounds_.end()))
    throw Error(exit_status::internal, fmt::format("comm: {} over {}: {} bounds that are not those of {} parts", name_of(what),
                                                   group_->name, bounds_.size(), ranks));
  if (engine_.tracing) record(fmt::format("{} {} {}", name_of(what), name_of(type), fmt::join(bounds_, " ")));
  if (ranks == 1) return;
  tag_ = {group_->context, true, group_->collectives++};
  state_ = State::flying;
  const bool sums = what == What::all_reduce || what == What::all_reduce_max;
  if (sums && static_cast<size_t>(bounds_.back() * size_of(type)) * ranks <= exchange_bytes) {
    step_ = last_step_ = Step::exchange;
    begin_round();
    return;
  }
  step_ = sums || what == What::reduce_scatter ? Step::scatter : Step::gather;
  last_step_ = what == What::reduce_scatter ? Step::scatter : Step::gather;
  const size_t bytes = std::clamp<size_t>(round_bytes / ranks, 4096, message_bytes);
  round_elements_ = step_ == Step::scatter && engine_.transport().in_place() ? bounds_.back() + 1
                                                                             : static_cast<int64_t>(bytes) / size_of(type);
  begin_round();
}

void Operation::begin_message(std::shared_ptr<Group> group, What what, Type type, void* data, int64_t n, int peer, int tag) {
  begin(std::move(group), what, type, data);
  const int world_peer = group_->members.at(static_cast<size_t>(peer));
  if (peer == group_->rank || tag < 0 || static_cast<uint64_t>(tag) >= engine_.transport().tags())
    throw Error(exit_status::internal,
                fmt::format("comm: {} over {}: rank {} with tag {}: a rank sends to others, with tags below {}", name_of(what),
                            group_->name, world_peer, tag, engine_.transport().tags()));
  if (engine_.tracing) record(fmt::format("{} {} tag {}", name_of(type), n, tag), world_peer, what == What::send);
  bounds_.assign({0, n});
  tag_ = {group_->context, false, static_cast<uint64_t>(tag)};
  state_ = State::flying;
  step_ = last_step_ = Step::message;
  round_elements_ = single_bytes / size_of(type);
  peer_ = peer;
  begin_round();
}

std::byte* Operation::at(int64_t element) const {
  return data_ + element * size_of(type_);
}

Range Operation::round_of(int rank) const {
  const int64_t begin = bounds_[static_cast<size_t>(rank)], end = bounds_[static_cast<size_t>(rank) + 1];
  return {std::min(end, begin + round_begin_), std::min(end, begin + round_begin_ + round_elements_)};
}

int64_t Operation::longest_part() const {
  int64_t longest = 0;
  for (size_t r = 0; r + 1 < bounds_.size(); ++r) longest = std::max(longest, bounds_[r + 1] - bounds_[r]);
  return longest;
}

template <class F>
void Operation::each_peer(F&& body) const {
  // Every rank starts with another peer, so that they do not all load the same one.
  for (int k = 1; k < group_->size(); ++k) body((group_->rank + k) % group_->size());
}

void Operation::send(int rank, const std::byte* data, int64_t elements) {
  if (elements == 0) return;
  const size_t bytes = static_cast<size_t>(elements * size_of(type_));
  batch_->send(group_->members[static_cast<size_t>(rank)], tag_, data, bytes);
  for (Counts* c = group_->counts.get(); c != nullptr; c = c->parent.get()) c->bytes_sent += bytes;
}

void Operation::receive(int rank, std::byte* data, int64_t elements) {
  if (elements > 0)
    batch_->receive(group_->members[static_cast<size_t>(rank)], tag_, data, static_cast<size_t>(elements * size_of(type_)));
}

void Operation::begin_round() {
  batch_->clear();
  combined_ = false;
  switch (step_) {
    case Step::scatter: {
      const Range own = round_of(group_->rank);
      const size_t bytes = static_cast<size_t>(own.size() * size_of(type_));
      if (!engine_.transport().in_place()) scratch_.resize(std::max(scratch_.size(), bytes * group_->members.size()));
      each_peer([&](int peer) {
        const Range part = round_of(peer);
        send(peer, at(part.begin), part.size());
        if (bytes > 0)
          batch_->borrow(group_->members[static_cast<size_t>(peer)], tag_, scratch_.data() + static_cast<size_t>(peer) * bytes,
                         bytes);
      });
      return;
    }
    case Step::gather: {
      const Range own = round_of(group_->rank);
      each_peer([&](int peer) {
        const Range part = round_of(peer);
        send(peer, at(own.begin), own.size());
        receive(peer, at(part.begin), part.size());
      });
      return;
    }
    case Step::exchange: {
      // What is sent is a copy: the sums may be written while a peer still reads.
      const int64_t n = bounds_.back();
      scratch_.resize(std::max(scratch_.size(), static_cast<size_t>(n * size_of(type_)) * group_->members.size()));
      const auto slot = [&](int rank) { return scratch_.data() + rank * n * size_of(type_); };
      std::copy(at(0), at(n), slot(group_->rank));
      each_peer([&](int peer) {
        send(peer, slot(group_->rank), n);
        receive(peer, slot(peer), n);
      });
      return;
    }
    case Step::message: {
      const Range part = round_of(0);
      if (what_ == What::send)
        send(peer_, at(part.begin), part.size());
      else
        receive(peer_, at(part.begin), part.size());
      return;
    }
  }
}

bool Operation::next_round() {
  round_begin_ += round_elements_;
  if (step_ != Step::exchange && round_begin_ < longest_part()) {
    begin_round();
    return true;
  }
  if (step_ == last_step_) return false;
  step_ = last_step_;
  round_begin_ = 0;
  begin_round();
  return true;
}

void Operation::combine() {
  if (step_ != Step::scatter && step_ != Step::exchange) return;
  const Range own = step_ == Step::scatter ? round_of(group_->rank) : Range{0, bounds_.back()};
  if (own.size() == 0) return;
  sources_.assign(group_->members.size(), at(own.begin));
  size_t kth = 0;
  each_peer([&](int peer) {
    sources_[static_cast<size_t>(peer)] =
        step_ == Step::scatter ? batch_->view(kth++) : scratch_.data() + peer * own.size() * size_of(type_);
  });
  comm::combine(what_ == What::all_reduce_max ? Combination::largest : Combination::sum, type_, sources_, own.size(),
                at(own.begin));
}

bool Operation::advance() {
  bool moved = false;
  while (state_ == State::flying) {
    try {
      moved |= batch_->poll();
    } catch (const Error& e) {
      failure_ = e.what();
      state_ = State::failed;
      return true;
    }
    if (!combined_ && batch_->received()) {
      combine();
      batch_->give_back();
      combined_ = moved = true;
    }
    if (!combined_ || !batch_->sent()) break;
    if (!next_round()) state_ = State::done;
    moved = true;
  }
  return moved;
}

bool Operation::test() {
  engine_.progress();
  if (state_ == State::failed) check();
  return state_ == State::done;
}

void Operation::drop() {
  if (state_ == State::done) return;
  batch_->withdraw();
  state_ = State::dropped;
}

void Operation::check() const {
  if (state_ == State::done) return;
  std::string reason = failure_;
  if (state_ == State::flying) {
    std::vector<int> late = batch_->late();
    std::sort(late.begin(), late.end());
    late.erase(std::unique(late.begin(), late.end()), late.end());
    std::string who;
    for (int r : late) who += fmt::format("{}{} on {}", who.empty() ? "" : ", ", r, engine_.nodes[static_cast<size_t>(r)]);
    reason = fmt::format("no answer within {} s from rank {}", std::chrono::duration<double>(engine_.deadline).count(), who);
  }
  throw Error(exit_status::peer_lost, fmt::format("comm: {}{} on rank {}, phase {}: {}", name_of(what_),
                                                  group_->context == 0 ? "" : fmt::format(" over {}", group_->name),
                                                  engine_.transport().rank(), engine_.phase, reason));
}

}  // namespace mm::comm
