// SPDX-License-Identifier: Apache-2.0
// What the ranks of a group do together. Sums are taken in rank order, so that results do not depend on where ranks run.
//
// - Collectives are begun in the same order on all ranks of their group; begin_* returns at once, and several may be in flight,
//   of one group or of many. Whoever waits or tests drives all that this rank has in flight, so that two ranks that wait for
//   different operations never block each other.
// - A buffer belongs to the operation from begin_* until it is done.
// - Every wait is passive (an idle rank sleeps) and has the deadline of the phase; a peer that is late or gone is an Error with
//   exit status 76 that names the collective, the ranks (as numbered in the world), their nodes and the phase. After such an
//   Error the ranks' groups are of no more use.
// - All groups that were split from a world belong to the one thread that plays the rank.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mm::comm {

// Elements [begin, end) of n that rank r of `ranks` owns: equal parts, the first n % ranks one longer.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
Range part_of(int64_t n, int rank, int ranks);
// The ranks + 1 bounds of these parts.
std::vector<int64_t> bounds_of(int64_t n, int ranks);

template <class T>
concept Element = std::same_as<T, double> || std::same_as<T, float> || std::same_as<T, int32_t> || std::same_as<T, uint8_t>;
enum class Type : uint8_t { f64, f32, i32, u8 };
template <Element T>
constexpr Type type_of() {
  if constexpr (std::same_as<T, double>) return Type::f64;
  if constexpr (std::same_as<T, float>) return Type::f32;
  if constexpr (std::same_as<T, int32_t>) return Type::i32;
  return Type::u8;
}
enum class What : uint8_t { reduce_scatter, all_gather, broadcast, all_reduce, all_reduce_max, barrier, split, send, receive };

// What was begun, for tests: trace.h compares ranks.
struct Traced {
  std::string group;      // its name and the first of its ranks in the world: "tp@4"
  int ranks = 0;          // in the group
  std::string what;       // "reduce_scatter float 0 12 24", with the bounds of the parts; of a message "float 100 tag 3"
  int peer = -1;          // of a message: the other rank in the world
  bool outgoing = false;  // of a message
};

// Something that was begun. Must not outlive the Comm. One that is dropped before its end is withdrawn, which only the end of
// the run excuses.
class Pending {
 public:
  class Operation {
   public:
    virtual ~Operation() = default;
    virtual bool test() = 0;
    virtual void wait() = 0;
    virtual void drop() = 0;
  };
  Pending() = default;  // done
  explicit Pending(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
  Pending(Pending&&) = default;
  Pending& operator=(Pending&& other) noexcept {
    if (operation_) operation_->drop();
    operation_ = std::move(other.operation_);
    return *this;
  }
  ~Pending() {
    if (operation_) operation_->drop();
  }
  // Makes progress; true when it is done.
  bool test() {
    if (operation_ && operation_->test()) operation_.reset();
    return !operation_;
  }
  void wait() {
    if (operation_) operation_->wait();
    operation_.reset();
  }

 private:
  std::shared_ptr<Operation> operation_;
};

// Memory that is shared.
class Shared {
 public:
  virtual ~Shared() = default;
};

inline constexpr std::chrono::milliseconds default_deadline{60'000};

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // "world", or what split was told.
  virtual const std::string& name() const = 0;
  virtual int world_rank(int of_rank) const = 0;
  // The name of the node that a rank runs on.
  virtual const std::string& node(int of_rank) const = 0;

  // Collective: the ranks with the same color become a group, in order of rank; a color < 0 gets none (null).
  virtual std::unique_ptr<Comm> split(int color, const std::string& name) = 0;

  // Elements [bounds[r], bounds[r + 1]) of rank r become the sum over the ranks; all others are left undefined.
  template <Element T>
  Pending begin_reduce_scatter(T* data, std::span<const int64_t> bounds) {
    return begin(What::reduce_scatter, type_of<T>(), data, bounds);
  }
  // Every rank's part is copied to all.
  template <Element T>
  Pending begin_all_gather(T* data, std::span<const int64_t> bounds) {
    return begin(What::all_gather, type_of<T>(), data, bounds);
  }
  // Matched by rank and tag; tags of messages in flight between two ranks differ. What MPI allows of tags is dealt out to groups:
  // with Open MPI they are below 4,000,000, and a larger one is an Error. A send is done when its buffer is free.
  template <Element T>
  Pending begin_send(int peer, const T* data, int64_t n, int tag) {
    return begin_message(What::send, type_of<T>(), const_cast<T*>(data), n, peer, tag);
  }
  template <Element T>
  Pending begin_receive(int peer, T* data, int64_t n, int tag) {
    return begin_message(What::receive, type_of<T>(), data, n, peer, tag);
  }

  template <Element T>
  void reduce_scatter(T* data, std::span<const int64_t> bounds) {
    begin_reduce_scatter(data, bounds).wait();
  }
  template <Element T>
  void all_gather(T* data, std::span<const int64_t> bounds) {
    begin_all_gather(data, bounds).wait();
  }
  // The same with the parts of part_of.
  template <Element T>
  void reduce_scatter(T* data, int64_t n) {
    reduce_scatter(data, std::span<const int64_t>(bounds_of(n, size())));
  }
  template <Element T>
  void all_gather_parts(T* data, int64_t n) {
    all_gather(data, std::span<const int64_t>(bounds_of(n, size())));
  }
  // The same bits on all ranks. The maximum is NaN where there is one.
  template <Element T>
  Pending begin_all_reduce(T* data, int64_t n) {
    return begin(What::all_reduce, type_of<T>(), data, bounds_of(n, size()));
  }
  template <Element T>
  void all_reduce(T* data, int64_t n) {
    begin_all_reduce(data, n).wait();
  }
  template <Element T>
  void all_reduce_max(T* data, int64_t n) {
    begin(What::all_reduce_max, type_of<T>(), data, bounds_of(n, size())).wait();
  }
  template <Element T>
  Pending begin_broadcast(T* data, int64_t n, int from) {
    std::vector<int64_t> bounds(static_cast<size_t>(size()) + 1, 0);
    for (size_t r = static_cast<size_t>(from) + 1; r < bounds.size(); ++r) bounds[r] = n;
    return begin(What::broadcast, type_of<T>(), data, bounds);
  }
  template <Element T>
  void broadcast(T* data, int64_t n, int from) {
    begin_broadcast(data, n, from).wait();
  }
  std::vector<double> all_reduce(const std::vector<double>& mine) {
    std::vector<double> sum = mine;
    all_reduce(sum.data(), static_cast<int64_t>(sum.size()));
    return sum;
  }
  virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
  virtual void barrier() = 0;

  // Collective: ranks on one node will read large messages from this memory in place, which for sums of gradients spares most
  // of the copying. It must be whole pages of private anonymous memory (tensor::Region); they keep their address and contents.
  // Only speed depends on it. Ends with the result, before the memory.
  virtual std::unique_ptr<Shared> share(void* data, size_t bytes) = 0;

  // What the rank is doing, for messages, and how late a peer may be while it lasts: for all groups of this rank.
  virtual void set_phase(std::string phase, std::chrono::milliseconds deadline = default_deadline) = 0;
  // What this rank sent to others over this group and those split from it, and how long it waited.
  virtual uint64_t bytes_sent() const = 0;
  virtual double wait_seconds() const = 0;
  // Recording what this rank begins, over all its groups.
  virtual void start_trace() = 0;
  virtual std::vector<Traced> take_trace() = 0;

 protected:
  virtual Pending begin(What what, Type type, void* data, std::span<const int64_t> bounds) = 0;
  virtual Pending begin_message(What what, Type type, void* data, int64_t n, int peer, int tag) = 0;
};

std::unique_ptr<Comm> self_comm();
// A group of threads of this process: element r is for the thread that plays rank r.
std::vector<std::unique_ptr<Comm>> thread_comms(int ranks);

}  // namespace mm::comm
