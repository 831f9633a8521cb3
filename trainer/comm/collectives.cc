// SPDX-License-Identifier: Apache-2.0
// Groups: who is in them, and what they begin.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/error.h"
#include "common/site.h"
#include "trainer/comm/operation.h"

namespace mm::comm {
namespace {

class SharedThroughEngine : public Shared {
 public:
  SharedThroughEngine(std::shared_ptr<Engine> engine, const void* data) : engine_(std::move(engine)), data_(data) {}
  ~SharedThroughEngine() override { engine_->transport().node_memory()->forget(data_); }

 private:
  std::shared_ptr<Engine> engine_;
  const void* data_;
};

class Collectives : public Comm {
 public:
  Collectives(std::shared_ptr<Engine> engine, std::shared_ptr<Group> group)
      : engine_(std::move(engine)), group_(std::move(group)) {}

  int rank() const override { return group_->rank; }
  int size() const override { return group_->size(); }
  const std::string& name() const override { return group_->name; }
  int world_rank(int of_rank) const override { return group_->members.at(static_cast<size_t>(of_rank)); }
  const std::string& node(int of_rank) const override { return engine_->nodes[static_cast<size_t>(world_rank(of_rank))]; }

  // The groups of one split share a context, since no two ranks are together in two of them. Every rank of the parent must find
  // it unused, so it is the highest that one of them would take next.
  std::unique_ptr<Comm> split(int color, const std::string& name) override {
    std::vector<int32_t> all(static_cast<size_t>(2 * size()));
    all[static_cast<size_t>(2 * rank())] = color;
    all[static_cast<size_t>(2 * rank() + 1)] = engine_->next_context;
    begin(What::split, Type::i32, all.data(), bounds_of(2 * size(), size())).wait();
    auto child = std::make_shared<Group>();
    child->name = name;
    child->counts->parent = group_->counts;
    for (int r = 0; r < size(); ++r) {
      child->context = std::max(child->context, all[static_cast<size_t>(2 * r + 1)]);
      if (all[static_cast<size_t>(2 * r)] != color) continue;
      if (r == rank()) child->rank = child->size();
      child->members.push_back(world_rank(r));
    }
    engine_->next_context = child->context + 1;
    if (color < 0) return nullptr;
    return std::make_unique<Collectives>(engine_, std::move(child));
  }

  std::vector<std::string> all_gather(const std::string& mine) override {
    std::vector<double> sizes(static_cast<size_t>(size()));
    sizes[static_cast<size_t>(rank())] = static_cast<double>(mine.size());
    all_gather_parts(sizes.data(), size());
    std::vector<int64_t> bounds(1, 0);
    for (double bytes : sizes) bounds.push_back(bounds.back() + static_cast<int64_t>(bytes));
    std::vector<uint8_t> joined(static_cast<size_t>(bounds.back()));
    std::copy(mine.begin(), mine.end(), joined.begin() + bounds[static_cast<size_t>(rank())]);
    Comm::all_gather(joined.data(), std::span<const int64_t>(bounds));
    std::vector<std::string> all;
    for (size_t r = 0; r < sizes.size(); ++r) all.emplace_back(joined.begin() + bounds[r], joined.begin() + bounds[r + 1]);
    return all;
  }

  void barrier() override {
    std::vector<uint8_t> all(static_cast<size_t>(size()));
    begin(What::barrier, Type::u8, all.data(), bounds_of(size(), size())).wait();
  }

  std::unique_ptr<Shared> share(void* data, size_t bytes) override {
    NodeMemory* const memory = engine_->transport().node_memory();
    if (memory == nullptr) return nullptr;
    const int own = engine_->transport().rank();
    const std::vector<std::string> offers = by_world_rank(all_gather(memory->offer(data, bytes)));
    const std::vector<std::string> mapped = by_world_rank(all_gather(memory->map(offers, own)));
    memory->confirm(data, mapped, own);
    return std::make_unique<SharedThroughEngine>(engine_, data);
  }

  void set_phase(std::string phase, std::chrono::milliseconds deadline) override {
    engine_->phase = std::move(phase);
    engine_->deadline = deadline;
  }
  uint64_t bytes_sent() const override { return group_->counts->bytes_sent; }
  double wait_seconds() const override { return group_->counts->wait_seconds; }

  void start_trace() override {
    engine_->tracing = true;
    engine_->trace.clear();
  }
  std::vector<Traced> take_trace() override { return std::exchange(engine_->trace, {}); }

  void ask_for_nodes() { engine_->nodes = all_gather(this_node()); }
  void all_on_this_node() { engine_->nodes.assign(engine_->nodes.size(), this_node()); }

 protected:
  Pending begin(What what, Type type, void* data, std::span<const int64_t> bounds) override {
    std::shared_ptr<Operation> operation = engine_->operation();
    operation->begin_collective(group_, what, type, data, bounds);
    operation->advance();
    return Pending(std::move(operation));
  }
  Pending begin_message(What what, Type type, void* data, int64_t n, int peer, int tag) override {
    std::shared_ptr<Operation> operation = engine_->operation();
    operation->begin_message(group_, what, type, data, n, peer, tag);
    operation->advance();
    return Pending(std::move(operation));
  }

 private:
  std::vector<std::string> by_world_rank(std::vector<std::string> of_group) const {
    std::vector<std::string> all(engine_->nodes.size());
    for (size_t r = 0; r < of_group.size(); ++r) all[static_cast<size_t>(group_->members[r])] = std::move(of_group[r]);
    return all;
  }

  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Group> group_;
};

std::unique_ptr<Collectives> world_over(std::unique_ptr<Transport> transport) {
  auto group = std::make_shared<Group>();
  group->name = "world";
  group->rank = transport->rank();
  group->members.resize(static_cast<size_t>(transport->size()));
  std::iota(group->members.begin(), group->members.end(), 0);
  return std::make_unique<Collectives>(std::make_shared<Engine>(std::move(transport)), std::move(group));
}

}  // namespace

Range part_of(int64_t n, int rank, int ranks) {
  const int64_t each = n / ranks, longer = n % ranks;
  const int64_t begin = rank * each + std::min<int64_t>(rank, longer);
  return {begin, begin + each + (rank < longer ? 1 : 0)};
}

std::vector<int64_t> bounds_of(int64_t n, int ranks) {
  std::vector<int64_t> bounds(static_cast<size_t>(ranks) + 1, n);
  for (int r = 0; r < ranks; ++r) bounds[static_cast<size_t>(r)] = part_of(n, r, ranks).begin;
  return bounds;
}

std::unique_ptr<Comm> comm_over(std::unique_ptr<Transport> transport) {
  auto world = world_over(std::move(transport));
  world->ask_for_nodes();
  return world;
}

std::unique_ptr<Comm> comm_on_this_node(std::unique_ptr<Transport> transport) {
  auto world = world_over(std::move(transport));
  world->all_on_this_node();
  return world;
}

}  // namespace mm::comm
