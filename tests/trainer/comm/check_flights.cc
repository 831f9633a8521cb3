// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/trainer/comm/checks.h"
#include "tests/trainer/comm/harness.h"

namespace mm::comm {
namespace {

// An operation with its buffer, and what should be in the buffer at the end.
struct Flight {
  std::vector<float> buffer, expected;
  Pending pending;
  std::string what;  // for messages of this test
};

float number(int rank, int64_t i, int salt) {
  return value<float>(rank + salt, i);
}

// One that the group's ranks all begin.
Flight begin_some(Comm& group, unsigned seed, int salt) {
  Flight flight;
  std::mt19937 choice(seed);
  const int64_t n = choice() % 3 == 0 ? choice() % 7 : choice() % 30'000;
  const int kind = static_cast<int>(choice() % 4);
  std::vector<int64_t> bounds(static_cast<size_t>(group.size()) + 1);
  for (int64_t& b : bounds) b = n == 0 ? 0 : static_cast<int64_t>(choice()) % (n + 1);
  std::sort(bounds.begin(), bounds.end());
  for (int64_t i = 0; i < n; ++i) flight.buffer.push_back(number(group.world_rank(group.rank()), i, salt));
  flight.expected = flight.buffer;
  flight.what = "kind " + std::to_string(kind) + " of " + group.name();
  const auto owner = [&](int64_t i) {
    return static_cast<int>(std::upper_bound(bounds.begin(), bounds.end(), i) - bounds.begin()) - 1;
  };
  for (int64_t i = 0; i < n; ++i) {
    float& expected = flight.expected[static_cast<size_t>(i)];
    float sum = number(group.world_rank(0), i, salt);
    for (int r = 1; r < group.size(); ++r) sum += number(group.world_rank(r), i, salt);
    const int of = owner(i);
    if (kind == 0 && of == group.rank()) expected = sum;
    // What a reduce_scatter leaves elsewhere is undefined: not compared.
    if (kind == 0 && of != group.rank()) expected = std::nanf("");
    if (kind == 1 && of >= 0 && of < group.size()) expected = number(group.world_rank(of), i, salt);
    if (kind == 2) expected = sum;
  }
  float* const data = flight.buffer.data();
  const int next = (group.rank() + 1) % group.size(), last = (group.rank() + group.size() - 1) % group.size();
  if (kind == 0) flight.pending = group.begin_reduce_scatter(data, std::span<const int64_t>(bounds));
  if (kind == 1) flight.pending = group.begin_all_gather(data, std::span<const int64_t>(bounds));
  if (kind == 2) flight.pending = group.begin_all_reduce(data, n);
  if (kind == 3 && group.size() > 1) {
    // Even ranks send around the ring, odd ones receive; in a ring of odd length rank 0 also ends it.
    if (group.rank() % 2 == 0 && group.rank() + 1 < group.size()) flight.pending = group.begin_send(next, data, n, salt);
    if (group.rank() % 2 == 1) {
      flight.pending = group.begin_receive(last, data, n, salt);
      for (int64_t i = 0; i < n; ++i) flight.expected[static_cast<size_t>(i)] = number(group.world_rank(last), i, salt);
    }
  }
  return flight;
}

}  // namespace

void check_flights(Comm& world, int seed, int operations) {
  const std::unique_ptr<Comm> pair = world.split(world.rank() / 2, "pair"), across = world.split(world.rank() % 2, "across");
  Comm* const groups[] = {&world, pair.get(), across.get()};
  std::mt19937 choice(static_cast<unsigned>(seed));                             // the same on all ranks
  std::mt19937 order(static_cast<unsigned>(1000 * (seed + 1) + world.rank()));  // different
  std::vector<Flight> flights;
  const auto land = [&](size_t at) {
    flights[at].pending.wait();
    const Flight& f = flights[at];
    for (size_t i = 0; i < f.buffer.size(); ++i) {
      if (std::isnan(f.expected[i])) continue;
      ASSERT_EQ(f.buffer[i], f.expected[i]) << "rank " << world.rank() << " of " << world.size() << " element " << i << " of "
                                            << f.buffer.size() << ": " << f.what << ", seed " << seed;
    }
    flights.erase(flights.begin() + static_cast<ptrdiff_t>(at));
  };
  for (int k = 0; k < operations; ++k) {
    flights.push_back(begin_some(*groups[choice() % 3], static_cast<unsigned>(1000 * seed + k), k));
    while (!flights.empty() && order() % 4 == 0) {
      const size_t at = order() % flights.size();
      if (order() % 2 == 0) {
        land(at);
      } else if (flights[at].pending.test()) {
        land(at);
      }
    }
  }
  while (!flights.empty()) land(order() % flights.size());
}

}  // namespace mm::comm
