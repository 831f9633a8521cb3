// SPDX-License-Identifier: Apache-2.0
// Every zero level on several ranks against one rank that sees the sum of all gradients.
#include "trainer/optim/sharded.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <thread>

namespace mm::optim {
namespace {

using model::ParamSpec;
using model::ParamStore;

constexpr int ranks = 3, steps = 3, micro_batches = 2;

std::vector<ParamSpec> some_specs() {
  return {{.name = "a", .shape = {5, 7}, .unit = "one"},
          {.name = "b", .shape = {2}, .unit = "one"},  // fewer elements than ranks
          {.name = "c", .shape = {11, 3}, .frozen = true, .unit = "one"},
          {.name = "d", .shape = {20'001}, .unit = "two"},
          {.name = "e", .shape = {4}, .reached = false, .unit = "two"}};
}

// What rank r adds to element i of a parameter in a micro-batch; eighths, so that sums are exact in any order.
double contribution(const std::string& name, int64_t i, int step, int micro_batch, int rank) {
  return static_cast<double>((i * 5 + name[0] * 3 + step * 7 + micro_batch * 2 + rank) % 17 - 8) / 8;
}

void add(ParamStore<double>& store, const std::string& unit, int step, int micro_batch, int rank) {
  for (size_t p = 0; p < store.specs().size(); ++p)
    if (store.specs()[p].unit == unit && store.gradient(p))
      for (int64_t i = 0; i < store.local()[p].size; ++i)
        store.gradient(p)[i] += contribution(store.specs()[p].name, i, step, micro_batch, rank);
}

using Tensors = std::map<std::string, std::vector<double>>;

// Trains as rank `rank` of the group that adds what `of_ranks` add, and returns the values in the end, and norms.
Tensors train(comm::Comm& group, int zero, int first_rank, int rank_count) {
  ParamStore<double> store(some_specs());
  Sharded<double> sharded(store, [&](model::Holders) -> comm::Comm& { return group; }, zero, {});
  model::initialise(store, 1);
  sharded.take_values();
  tensor::ThreadPool pool(1);
  Tensors out;
  for (int step = 0; step < steps; ++step) {
    sharded.begin_step();
    for (int k = 0; k < micro_batches; ++k) {
      sharded.set_last_micro_batch(k + 1 == micro_batches);
      for (const std::string unit : {"two", "one"}) {
        sharded.acquire(unit);
        for (int r = first_rank; r < first_rank + rank_count; ++r) add(store, unit, step, k, r);
        sharded.gradient_ready(unit);
        sharded.release(unit);
      }
    }
    sharded.finish_gradients();
    out["norms"].push_back(group.all_reduce({sharded.sum_of_squares(pool)})[0]);
    sharded.update(step + 1, 1e-2, 0.25, pool);
  }
  for (const std::string unit : {"one", "two"}) sharded.acquire(unit);
  for (size_t p = 0; p < store.specs().size(); ++p)
    out[store.specs()[p].name].assign(store.value(p), store.value(p) + store.local()[p].size);
  return out;
}

TEST(Sharded, EveryLevelEqualsOneRank) {
  const Tensors alone = train(*comm::self_comm(), 0, 0, ranks);
  ParamStore<double> start(some_specs());
  model::initialise(start, 1);
  for (const char* still : {"c", "e"})
    EXPECT_TRUE(std::equal(alone.at(still).begin(), alone.at(still).end(), start.value(start.index(still)))) << still;
  EXPECT_NE(alone.at("a")[0], start.value(start.index("a"))[0]);
  for (int zero = 0; zero <= 3; ++zero) {
    std::vector<std::unique_ptr<comm::Comm>> comms = comm::thread_comms(ranks);
    std::vector<Tensors> results(ranks);
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        results[static_cast<size_t>(r)] = train(*comms[static_cast<size_t>(r)], zero, r, 1);
      });
    for (std::thread& t : threads) t.join();
    for (const Tensors& result : results)
      for (const auto& [name, values] : alone) {
        if (name == "norms")
          for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(result.at(name)[i] / values[i], 1, 1e-14);
        else
          EXPECT_EQ(result.at(name), values) << name << " under zero " << zero;
      }
  }
}

TEST(Sharded, NamesTheFirstBadGradient) {
  const std::unique_ptr<comm::Comm> self = comm::self_comm();
  for (int zero = 0; zero <= 3; ++zero) {
    ParamStore<double> store(some_specs());
    Sharded<double> sharded(store, [&](model::Holders) -> comm::Comm& { return *self; }, zero, {});
    sharded.set_inspecting(true);
    sharded.begin_step();
    sharded.acquire("two");
    store.gradient(store.index("d"))[7] = std::nan("");
    sharded.gradient_ready("two");
    sharded.release("two");
    sharded.acquire("one");
    store.gradient(store.index("a"))[0] = INFINITY;
    sharded.gradient_ready("one");
    sharded.release("one");
    EXPECT_EQ(sharded.first_bad(), "d[7]");
    sharded.set_inspecting(true);
    sharded.begin_step();
    EXPECT_FALSE(sharded.first_bad());
  }
}

}  // namespace
}  // namespace mm::optim
