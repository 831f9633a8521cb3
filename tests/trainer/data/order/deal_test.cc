// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/order/deal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace mm::data {
namespace {

double heaviest_part(const Deal& deal, const std::vector<double>& work) {
  double most = 0;
  for (const std::vector<int32_t>& part : deal) {
    double sum = 0;
    for (const int32_t i : part) sum += work[static_cast<size_t>(i)];
    most = std::max(most, sum);
  }
  return most;
}

TEST(Deal, InOrderIsContiguousSharesCutEvenly) {
  const Deal deal = deal_in_order(10, 2, 2);
  EXPECT_EQ(deal, (Deal{{0, 1, 2}, {3, 4}, {5, 6, 7}, {8, 9}}));
}

// One long sample among short ones: whoever has it has little else.
TEST(Deal, CountsAreUnequalWhereWorkIs) {
  const std::vector<double> work = {7, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_EQ(deal_by_work(work, 2, 1), (Deal{{0}, {1, 2, 3, 4, 5, 6, 7}}));
}

TEST(Deal, EachSampleOnceEveryPartSomeNeverWorseThanInOrderAndTheSameAgain) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 3000; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 8), pieces = 1 + static_cast<int>(random() % 4);
    const auto samples = static_cast<size_t>(ranks) * (static_cast<size_t>(pieces) + random() % 9);
    std::vector<double> work(samples);
    for (double& w : work) w = random() % 3 == 0 ? 100.0 + static_cast<double>(random() % 900) : 1.0 + static_cast<double>(random() % 50);
    const Deal deal = deal_by_work(work, ranks, pieces), in_order = deal_in_order(static_cast<int64_t>(samples), ranks, pieces);
    std::multiset<int32_t> seen;
    for (const std::vector<int32_t>& part : deal) {
      ASSERT_FALSE(part.empty());
      ASSERT_TRUE(std::is_sorted(part.begin(), part.end()));
      seen.insert(part.begin(), part.end());
    }
    ASSERT_EQ(seen.size(), samples);
    ASSERT_EQ(std::set<int32_t>(seen.begin(), seen.end()).size(), samples);
    ASSERT_LE(heaviest_part(deal, work), heaviest_part(in_order, work));
    ASSERT_LE(imbalance(deal, work, ranks), imbalance(in_order, work, ranks));
    ASSERT_EQ(deal, deal_by_work(work, ranks, pieces));
  }
}

// Lengths as captions have them (log-normal).
TEST(Deal, CaptionsOfAThousandRanksAreEven) {
  std::mt19937_64 random(5);
  std::lognormal_distribution<double> length(4, 0.5);
  std::vector<double> work(1024 * 8);
  for (double& w : work) w = length(random);
  EXPECT_GT(imbalance(deal_in_order(1024 * 8, 1024, 2), work, 1024), 1.5);
  EXPECT_LT(imbalance(deal_by_work(work, 1024, 2), work, 1024), 1.1);
}

}  // namespace
}  // namespace mm::data
