// SPDX-License-Identifier: Apache-2.0
// The traces of all ranks, compared.
#include "trainer/comm/trace.h"

#include <gtest/gtest.h>

#include "tests/trainer/comm/checks.h"
#include "tests/trainer/comm/harness.h"

namespace mm::comm {
namespace {

std::vector<std::vector<Traced>> traces_of(int ranks, const std::function<void(Comm&)>& body) {
  std::vector<std::vector<Traced>> traces(static_cast<size_t>(ranks));
  on_threads(ranks, [&](Comm& world) {
    world.start_trace();
    body(world);
    traces[static_cast<size_t>(world.rank())] = world.take_trace();
  });
  return traces;
}

TEST(Trace, EqualWhereRanksDoTheSame) {
  for (int seed = 0; seed < 3; ++seed)
    EXPECT_EQ(first_difference(traces_of(4, [seed](Comm& world) { check_flights(world, seed, 30); })), "");
}

TEST(Trace, TheFirstDifferenceIsNamed) {
  std::vector<std::vector<Traced>> traces = traces_of(4, [](Comm& world) {
    const std::unique_ptr<Comm> tp = world.split(world.rank() / 2, "tp");
    std::vector<double> x(10);
    tp->reduce_scatter(x.data(), 10);
    tp->all_reduce(x.data(), 10);
    if (world.rank() == 0) tp->begin_send(1, x.data(), 4, 9).wait();
    if (world.rank() == 1) tp->begin_receive(0, x.data(), 4, 9).wait();
  });
  ASSERT_EQ(first_difference(traces), "");
  std::vector<std::vector<Traced>> other = traces;
  std::swap(other[3][1], other[3][2]);
  EXPECT_EQ(first_difference(other), "tp@2: number 0: rank 2: reduce_scatter double 0 5 10; rank 3: all_reduce double 0 5 10");
  other = traces;
  other[3].pop_back();
  EXPECT_EQ(first_difference(other), "tp@2: number 1: rank 2: all_reduce double 0 5 10; rank 3: nothing");
  other = traces;
  other[3].resize(1);
  EXPECT_EQ(first_difference(other), "tp@2: 1 of 2 ranks began something");
  other = traces;
  other[1].pop_back();
  EXPECT_EQ(first_difference(other), "tp@0: from rank 0 to rank 1: number 0: sent: double 4 tag 9; received: nothing");
}

}  // namespace
}  // namespace mm::comm
