// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "agent/peers/contact.h"
#include "agent/peers/neighbours.h"
#include "agent/peers/replay.h"
#include "agent/peers/trusted.h"
#include "common/error.h"

namespace mm::agent {
namespace {

std::vector<std::string> nodes_of(int n) {
  std::vector<std::string> out;
  for (int i = 0; i < n; ++i) out.push_back(fmt::format("n{}", i));
  return out;
}

TEST(Neighbours, SymmetricAndFew) {
  for (int n : {1, 2, 3, 8, 9, 10, 17, 128, 1000}) {
    const auto nodes = nodes_of(n);
    for (const std::string& a : nodes) {
      const auto of_a = neighbours(nodes, a);
      EXPECT_EQ(std::count(of_a.begin(), of_a.end(), a), 0);
      if (n <= 8) {
        EXPECT_EQ(of_a.size(), nodes.size() - 1);
      } else {
        EXPECT_EQ(of_a.size(), 4u);
      }
      if (n > 128) continue;
      for (const std::string& b : of_a) {
        const auto of_b = neighbours(nodes, b);
        EXPECT_EQ(std::count(of_b.begin(), of_b.end(), a), 1) << a << " beats to " << b << ", which does not watch it";
      }
    }
  }
  EXPECT_TRUE(neighbours(nodes_of(5), "stranger").empty());
}

TEST(Neighbours, ALostRackIsSeenFromElsewhere) {
  for (int n = 9; n <= 300; n += 7) {
    const auto nodes = nodes_of(n);
    const int rack = n / 3;
    for (int begin = 0; begin < n; begin += 5)
      for (int i = 0; i < rack; ++i) {
        size_t outside = 0;
        for (const std::string& monitor : neighbours(nodes, nodes[static_cast<size_t>((begin + i) % n)])) {
          const int at = (std::stoi(monitor.substr(1)) - begin + n) % n;
          outside += at >= rack;
        }
        EXPECT_GE(outside, 2u) << n << " nodes, the rack begins at " << begin;
      }
  }
}

TEST(Replay, EachCountOnceInAnyOrder) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    ReplayWindow window;
    std::vector<uint64_t> sent;
    for (uint64_t i = 1; i <= 300; ++i) sent.push_back(i);
    // Late by less than the window, and every one of them twice.
    for (size_t i = 0; i + 20 < sent.size(); ++i) std::swap(sent[i], sent[i + random() % 20]);
    std::map<uint64_t, int> accepted;
    for (uint64_t c : sent) {
      accepted[c] += window.accept("a", c, 100);
      accepted[c] += window.accept("a", c, 100);
    }
    for (const auto& [count, times] : accepted) EXPECT_LE(times, 1) << count;
    EXPECT_EQ(accepted[300], 1);
  }
}

TEST(Replay, AnEarlierRunDoesNotComeBack) {
  ReplayWindow window;
  EXPECT_TRUE(window.accept("old", 500, 100));
  EXPECT_TRUE(window.accept("new", 1, 101));
  EXPECT_FALSE(window.accept("old", 501, 100));
  EXPECT_TRUE(window.accept("new", 2, 101));
  EXPECT_FALSE(window.accept("new", 2, 102));
  EXPECT_TRUE(window.accept("new", 200, 102));
  EXPECT_FALSE(window.accept("new", 100, 102)) << "too far behind to be told from a repeat";
}

TEST(Trusted, RootAndOneselfOrExactlyThoseNamed) {
  EXPECT_EQ(trusted_users({}), (std::set<uid_t>{0, ::geteuid()}));
  EXPECT_EQ(trusted_users({"root", "1234"}), (std::set<uid_t>{0, 1234}));
  EXPECT_EQ(trusted_users({"1234"}), std::set<uid_t>{1234});
  EXPECT_THROW(trusted_users({"root", "nobody that there is"}), Error);
  EXPECT_THROW(trusted_users({"-1"}), Error);
}

TEST(Contacts, MajorityAndForgiveness) {
  using std::chrono::seconds;
  const Contacts::TimePoint t0{};
  const std::vector<std::string> peers = {"b", "c", "d", "e"};
  Contacts contacts;
  contacts.set_peers({"b", "c", "d", "e"}, t0);
  for (int s = 1; s <= 10; ++s) {
    contacts.heard("b", t0 + seconds(s));
    if (s <= 6) contacts.heard("c", t0 + seconds(s));
    if (s <= 3) contacts.heard("d", t0 + seconds(s));
  }
  // Five nodes: this one and two more are a majority, until c fell silent.
  EXPECT_EQ(contacts.last_majority(peers, t0 + seconds(10)), t0 + seconds(6));
  EXPECT_EQ(contacts.age("d", t0 + seconds(10)), 7);
  EXPECT_EQ(contacts.age("stranger", t0 + seconds(10)), 0);
  contacts.heard("stranger", t0 + seconds(10));
  EXPECT_FALSE(contacts.knows("stranger"));
  contacts.forgive(t0 + seconds(10));
  EXPECT_EQ(contacts.age("d", t0 + seconds(10)), 0);
  contacts.set_peers({}, t0);
  EXPECT_EQ(contacts.last_majority({}, t0 + seconds(10)), t0 + seconds(10)) << "a node alone is its own majority";
}

}  // namespace
}  // namespace mm::agent
