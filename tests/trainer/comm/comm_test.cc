// SPDX-License-Identifier: Apache-2.0
// The collectives on threads.
#include <gtest/gtest.h>

#include <thread>

#include "common/error.h"
#include "tests/trainer/comm/checks.h"
#include "tests/trainer/comm/harness.h"

namespace mm::comm {
namespace {

using namespace std::chrono_literals;

TEST(Comm, PartsCoverWithoutOverlap) {
  for (int64_t n : {0, 1, 7, 8, 1000}) {
    int64_t at = 0;
    for (int r = 0; r < 7; ++r) {
      EXPECT_EQ(part_of(n, r, 7).begin, at);
      at = part_of(n, r, 7).end;
    }
    EXPECT_EQ(at, n);
  }
}

TEST(Comm, ThreadsAgreeWithPlainLoops) {
  for (int ranks : {1, 2, 3, 5}) on_threads(ranks, [](Comm& world) { check_collectives(world, 30'011); });
  // Parts that take several rounds.
  on_threads(2, [](Comm& world) { check_collectives(world, 2'500'003); });
}

TEST(Comm, SelfIsAGroupOfOne) {
  const std::unique_ptr<Comm> comm = self_comm();
  check_collectives(*comm, 30'011);
  EXPECT_EQ(comm->bytes_sent(), 0U);
}

TEST(Comm, ALateRankIsNamed) {
  std::vector<std::unique_ptr<Comm>> comms = thread_comms(3);
  std::vector<std::string> messages(3);
  std::vector<std::thread> threads;
  for (size_t r : {0U, 2U})
    threads.emplace_back([&, r] {
      comms[r]->set_phase("step 7", 200ms);
      try {
        comms[r]->barrier();
      } catch (const Error& e) {
        EXPECT_EQ(e.status, exit_status::peer_lost);
        messages[r] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  for (size_t r : {0U, 2U}) {
    EXPECT_NE(messages[r].find("comm: barrier on rank " + std::to_string(r) +
                               ", phase step 7: no answer within 0.2 s from rank 1 on "),
              std::string::npos)
        << messages[r];
    EXPECT_EQ(messages[r].find("rank 0 on"), std::string::npos) << messages[r];
  }
}

// In a group its ranks are named as the world numbers them, and the group is named.
TEST(Comm, ALateRankOfAGroupIsNamed) {
  on_threads(4, [](Comm& world) {
    const std::unique_ptr<Comm> pair = world.split(world.rank() / 2, "tp");
    world.set_phase("step 7", 100ms);
    if (world.rank() == 3) return;
    double x = 1;
    try {
      pair->begin_all_reduce(&x, 1).wait();
      EXPECT_LT(world.rank(), 2);
    } catch (const Error& e) {
      EXPECT_EQ(world.rank(), 2);
      EXPECT_NE(std::string(e.what()).find(
                    "comm: all_reduce over tp on rank 2, phase step 7: no answer within 0.1 s from rank 3 on "),
                std::string::npos)
          << e.what();
    }
  });
}

// A buffer may go when its operation is dropped: a peer that comes later does not find it.
TEST(Comm, WhatWasDroppedIsWithdrawn) {
  on_threads(2, [](Comm& world) {
    world.set_phase("late", 100ms);
    if (world.rank() == 0) {
      std::vector<double> data(100'000, 1.0);
      const Pending dropped = world.begin_send(1, data.data(), 100'000, 3);
    }
    world.barrier();
    if (world.rank() == 1) {
      std::vector<double> data(100'000);
      EXPECT_THROW(world.begin_receive(0, data.data(), 100'000, 3).wait(), Error);
    }
  });
}

TEST(Comm, RanksThatDisagreeAboutTheLengthFail) {
  std::vector<std::unique_ptr<Comm>> comms = thread_comms(2);
  std::vector<std::thread> threads;
  for (size_t r : {0U, 1U})
    threads.emplace_back([&, r] { EXPECT_THROW(comms[r]->all_reduce(std::vector<double>(1 + r)), Error); });
  for (std::thread& t : threads) t.join();
}

TEST(Flight, AnyOrderOfWaiting) {
  for (int ranks : {2, 4, 5})
    for (int seed = 0; seed < 6; ++seed) on_threads(ranks, [seed](Comm& world) { check_flights(world, seed, 60); });
}

}  // namespace
}  // namespace mm::comm
