// SPDX-License-Identifier: Apache-2.0
// One collective or message on its way: a sequence of rounds, each a batch of messages, moved on by whoever waits.
//
// All collectives are direct: each rank exchanges with every other one, so that a rank that is late is seen, and named, by all
// of them, and never hides behind a neighbour that waits for it. Three patterns make them all:
//   scatter    in round k every rank sends to each peer elements [k C, (k + 1) C) of the peer's part and sums its own in rank
//   order gather     in round k every rank sends to all peers elements [k C, (k + 1) C) of its own part exchange   short
//   vectors: every rank sends the whole to all, and each sums it in rank order: the same sums as scatter and gather
// C bounds the memory for what is received and has no influence on results.
#pragma once

#include "trainer/comm/engine.h"

namespace mm::comm {

class Operation : public Pending::Operation {
 public:
  explicit Operation(Engine& engine) : engine_(engine), batch_(engine.transport().batch()) {}

  void begin_collective(std::shared_ptr<Group> group, What what, Type type, void* data, std::span<const int64_t> bounds);
  void begin_message(std::shared_ptr<Group> group, What what, Type type, void* data, int64_t n, int peer, int tag);

  bool test() override;
  void wait() override { engine_.wait(*this); }
  void drop() override;

  bool flying() const { return state_ == State::flying; }
  bool reusable() const { return state_ == State::done; }
  // Moves on as far as messages have come; true where it moved.
  bool advance();
  // Throws where it failed, and where it is still flying, as late.
  void check() const;
  Counts& counts() { return *group_->counts; }

 private:
  enum class State : uint8_t { done, flying, failed, dropped };
  enum class Step : uint8_t { scatter, gather, exchange, message };

  void begin(std::shared_ptr<Group> group, What what, Type type, void* data);
  void record(std::string what, int peer = -1, bool outgoing = false);
  void begin_round();
  bool next_round();
  void send(int rank, const std::byte* data, int64_t elements);
  void receive(int rank, std::byte* data, int64_t elements);
  void combine();
  std::byte* at(int64_t element) const;
  Range round_of(int rank) const;
  int64_t longest_part() const;
  template <class F>
  void each_peer(F&& body) const;

  Engine& engine_;
  std::unique_ptr<Batch> batch_;
  std::shared_ptr<Group> group_;
  State state_ = State::done;
  What what_ = What::barrier;
  Type type_ = Type::u8;
  std::byte* data_ = nullptr;
  std::vector<int64_t> bounds_;
  int peer_ = 0;  // of a message
  Tag tag_;
  Step step_ = Step::gather, last_step_ = Step::gather;
  int64_t round_begin_ = 0, round_elements_ = 0;
  bool combined_ = false;
  std::vector<std::byte> scratch_;    // of scatter and exchange: what each rank sends
  std::vector<const void*> sources_;  // what is summed, in rank order
  std::string failure_;
};

}  // namespace mm::comm
