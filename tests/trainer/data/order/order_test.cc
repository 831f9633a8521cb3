// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/order/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "common/error.h"
#include "trainer/data/order/shuffle.h"

namespace mm::data {
namespace {

TEST(Shuffle, IsAPermutationWithItsInverseForAnyWindow) {
  for (const int64_t n : {1, 2, 63, 64, 65, 127, 128, 1000, 10007})
    for (const int64_t window : {0, 64, 100, 1000, 1 << 20})
      for (const int64_t epoch : {0, 1, 7}) {
        const Shuffle shuffle(n, window, 11, epoch);
        std::vector<char> seen(static_cast<size_t>(n));
        for (int64_t p = 0; p < n; ++p) {
          const int64_t sample = shuffle(p);
          ASSERT_TRUE(sample >= 0 && sample < n && seen[static_cast<size_t>(sample)]++ == 0) << n << " " << window << " " << p;
          ASSERT_EQ(shuffle.position_of(sample), p) << n << " " << window;
        }
      }
}

TEST(Shuffle, UpToTwoWindowsIsOnePermutationOfAll) {
  const Shuffle shuffle(100000, default_shuffle_window, 3, 2);
  const Permutation all(100000, 3, 2);
  EXPECT_EQ(shuffle.windows(), 1);
  for (int64_t p = 0; p < 1000; ++p) ASSERT_EQ(shuffle(p), static_cast<int64_t>(all(static_cast<uint64_t>(p))));
}

// Runs in progress rely on these.
TEST(Shuffle, KeepsItsValues) {
  const Shuffle shuffle(100'000'000, default_shuffle_window, 5, 3);
  std::vector<int64_t> seen;
  for (const int64_t p : {0, 1, 2, 50'000'000, 99'999'999}) seen.push_back(shuffle(p));
  EXPECT_EQ(seen, (std::vector<int64_t>{35579957, 21902367, 24576035, 61684962, 16042866}));
}

// A data set of many windows, as 1,000 shards of 20,000 samples.
class ShuffleQuality : public testing::Test {
 protected:
  static constexpr int64_t samples = 20'000'000;
  const Shuffle shuffle{samples, default_shuffle_window, 1, 4};
};

TEST_F(ShuffleQuality, BatchesAreSpreadOverShardsAsInAUniformShuffle) {
  ASSERT_GT(shuffle.windows(), 50);
  for (const int64_t shards : {100, 1000})
    for (const int64_t batch : {32, 256}) {
      const double uniform = static_cast<double>(shards) * (1 - std::pow(1 - 1.0 / static_cast<double>(shards), batch));
      double sum = 0;
      constexpr int batches = 400;
      for (int b = 0; b < batches; ++b) {
        std::set<int64_t> seen;
        const int64_t first = samples / batches * b;
        for (int64_t i = 0; i < batch; ++i) seen.insert(shuffle(first + i) / (samples / shards));
        sum += static_cast<double>(seen.size());
      }
      EXPECT_NEAR(sum / batches / uniform, 1, 0.05) << shards << " shards, batches of " << batch;
    }
}

TEST_F(ShuffleQuality, NeighboursInTheStreamAreAsFarApartAsInAUniformShuffle) {
  constexpr int64_t pairs = 1'000'000, shards = 100;
  double distance = 0;
  int64_t same_shard = 0;
  for (int64_t i = 0; i < pairs; ++i) {
    const int64_t p = samples / pairs * i, a = shuffle(p), b = shuffle(p + 1);
    distance += static_cast<double>(std::abs(a - b));
    same_shard += a / (samples / shards) == b / (samples / shards);
  }
  EXPECT_NEAR(distance / pairs / (samples / 3.0), 1, 0.05);
  EXPECT_NEAR(static_cast<double>(same_shard) / pairs * shards, 1, 0.05);
}

TEST_F(ShuffleQuality, ARunIsReadWithinOneWindow) {
  const int64_t most = 2 * default_shuffle_window;
  for (int64_t run = 0; run < samples / run_length; run += 997) {
    int64_t low = samples, high = 0;
    for (int64_t i = 0; i < run_length; ++i) {
      const int64_t p = shuffle.position_of(run * run_length + i);
      low = std::min(low, p), high = std::max(high, p);
    }
    ASSERT_LT(high - low, most) << run;
  }
}

TEST(Order, OneSourceIsEpochAfterEpoch) {
  for (const bool shuffle : {false, true}) {
    const Order order({{0, 1000, 1}}, shuffle, 9, 128);
    for (int64_t epoch = 0; epoch < 3; ++epoch)
      for (int64_t i = 0; i < 1000; ++i)
        ASSERT_EQ(order(epoch * 1000 + i), shuffle ? Shuffle(1000, 128, 9, epoch)(i) : i);
  }
}

TEST(Order, WeightsAreExactInEveryRoundAndEachSourceIsReadWhole) {
  const std::vector<Source> sources = {{0, 700, 5}, {700, 10, 0.125}, {710, 3000, 4.875}};
  for (const bool shuffle : {false, true}) {
    const Order order(sources, shuffle, 2, 0);
    EXPECT_EQ(order.samples(), 3710);
    std::vector<std::vector<int64_t>> read(3);
    for (int round = 0; round < 30; ++round) {
      std::vector<int> counts(3);
      for (int64_t i = 0; i < round_length; ++i) {
        const int64_t sample = order(round * round_length + i);
        const size_t source = sample < 700 ? 0 : sample < 710 ? 1 : 2;
        ++counts[source];
        read[source].push_back(sample - sources[source].first);
        // spread evenly, not in blocks
        if (i == round_length / 2 - 1) {
          ASSERT_NEAR(counts[0], 250, 1);
          ASSERT_NEAR(counts[1], 6, 1);
        }
      }
      ASSERT_EQ(counts[0], 500);
      ASSERT_NEAR(counts[1], 12.5, 0.5);
      ASSERT_EQ(counts[0] + counts[1] + counts[2], round_length);
    }
    for (size_t s = 0; s < 3; ++s) {
      const auto n = static_cast<size_t>(sources[s].samples);
      ASSERT_GT(read[s].size(), 2 * n);
      for (size_t epoch = 0; epoch < 2; ++epoch) {
        std::vector<int64_t> once(read[s].begin() + static_cast<int64_t>(epoch * n), read[s].begin() + static_cast<int64_t>((epoch + 1) * n));
        if (shuffle) std::sort(once.begin(), once.end());
        for (size_t i = 0; i < n; ++i) ASSERT_EQ(once[i], static_cast<int64_t>(i)) << s;
      }
    }
  }
}

TEST(Order, NextUseIsTheFirstPositionThatHasTheSample) {
  const std::vector<std::vector<Source>> cases = {{{0, 150, 1}}, {{0, 40, 3}, {40, 100, 1}, {140, 10, 0.01}}};
  std::mt19937_64 random(4);
  for (const std::vector<Source>& sources : cases)
    for (const bool shuffle : {false, true}) {
      const Order order(sources, shuffle, 6, 64);
      std::vector<int64_t> stream;
      for (int64_t p = 0; p < 20000; ++p) stream.push_back(order(p));
      for (int i = 0; i < 300; ++i) {
        const auto from = static_cast<int64_t>(random() % 3000), sample = static_cast<int64_t>(random() % 150);
        const auto found = std::find(stream.begin() + from, stream.end(), sample);
        if (found == stream.end()) continue;
        ASSERT_EQ(order.next_use(sample, from), found - stream.begin()) << sample << " from " << from;
      }
    }
}

TEST(Order, ReplacementsStayInTheirSource) {
  const Order order({{0, 3, 1}, {3, 2, 1}}, true, 1, 0);
  EXPECT_EQ(order.replacement(1, 1), 2);
  EXPECT_EQ(order.replacement(2, 1), 0);
  EXPECT_EQ(order.replacement(4, 1), 3);
  EXPECT_EQ(order.replacement(3, 2), 3);
}

TEST(Order, WeightsThatCannotBeMetAreRefused) {
  const auto refused = [](double a, double b) {
    try {
      Order({{0, 5, a}, {5, 5, b}}, true, 1, 0);
    } catch (const Error& error) {
      return error.status == exit_status::usage;
    }
    return false;
  };
  EXPECT_TRUE(refused(1, 0));
  EXPECT_TRUE(refused(1, -1));
  EXPECT_TRUE(refused(1, NAN));
  EXPECT_TRUE(refused(1, INFINITY));
  EXPECT_TRUE(refused(1, 1e-4));
  EXPECT_FALSE(refused(999, 1));
}

}  // namespace
}  // namespace mm::data
