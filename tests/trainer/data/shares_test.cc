// SPDX-License-Identifier: Apache-2.0
// What ranks take of a global batch, by work, through the whole stream.
#include "trainer/data/shares.h"

#include <algorithm>
#include <memory>
#include <set>

#include "tests/trainer/data/support.h"
#include "trainer/data/image/image.h"
#include "trainer/data/stream.h"

namespace mm::data {
namespace {

using namespace test;

constexpr int samples = 48;

size_t length_of(int i) { return i % 3 == 0 ? 200 + static_cast<size_t>(i * 37 % 90) : 1 + static_cast<size_t>(i % 9); }

StreamOptions uneven(const TemporaryFolder& folder) {
  std::vector<std::pair<std::string, std::string>> members;
  for (int i = 0; i < samples; ++i) {
    members.push_back({"s" + std::to_string(i) + ".png", encode_png(plain(8, 8, 1, 2, 3))});
    members.push_back({"s" + std::to_string(i) + ".txt", std::string(length_of(i), 'a')});
  }
  write(folder.path("a.tar"), make_tar(members));
  StreamOptions o;
  o.shards = {folder.path("a.tar")};
  o.global_batch = 24;
  o.rule = {.image_size = 8, .positions_per_image = 4};
  o.deal.work = [](int64_t images, int64_t positions) { return static_cast<double>(10 * images + positions); };
  return o;
}

struct Taken {
  std::multiset<std::string> keys;
  std::vector<int64_t> positions, counts;  // of each rank, in sequences; samples of each micro-batch
};

Taken take(StreamOptions o, int ranks, int64_t batch) {
  Taken taken;
  for (int r = 0; r < ranks; ++r) {
    o.rank = r, o.ranks = ranks;
    Stream stream(o);
    int64_t positions = 0, all = 0;
    const std::vector<Sample> mine = stream.next(batch);
    for (const Sample& s : mine) taken.keys.insert(s.key), positions += static_cast<int64_t>(s.ids.size());
    for (const int64_t n : stream.pieces(batch)) taken.counts.push_back(n), all += n;
    EXPECT_EQ(all, static_cast<int64_t>(mine.size()));
    taken.positions.push_back(positions);
  }
  return taken;
}

double most_over_mean(const std::vector<int64_t>& values) {
  double sum = 0;
  for (const int64_t v : values) sum += static_cast<double>(v);
  return static_cast<double>(*std::ranges::max_element(values)) * static_cast<double>(values.size()) / sum;
}

TEST(Shares, TheSameSamplesInAllEvenlyForAnyNumberOfRanks) {
  const TemporaryFolder folder;
  StreamOptions o = uneven(folder);
  StreamOptions in_order = o;
  in_order.deal.work = nullptr;
  for (int64_t batch : {0, 1, 5}) {
    const Taken whole = take(in_order, 1, batch);
    ASSERT_EQ(whole.keys.size(), 24u);
    for (const int ranks : {1, 2, 4}) {
      o.deal.pieces = ranks == 4 ? 3 : 2;
      const Taken dealt = take(o, ranks, batch);
      EXPECT_EQ(dealt.keys, whole.keys);
      EXPECT_EQ(dealt.counts.size(), static_cast<size_t>(ranks * o.deal.pieces));
      if (ranks == 4) {
        EXPECT_GT(std::ranges::max(dealt.counts), std::ranges::min(dealt.counts));
        EXPECT_LT(most_over_mean(dealt.positions), most_over_mean(take(in_order, 4, batch).positions));
      }
    }
  }
}

// What is said at the start is what happens, as far as the index knows the work.
TEST(Shares, TheImbalanceThatIsToldIsTheOneOfTheDeal) {
  const TemporaryFolder folder;
  StreamOptions o = uneven(folder);
  o.deal.work = [](int64_t, int64_t positions) { return static_cast<double>(positions); };
  o.ranks = 4;
  const Shares::Imbalance told = Stream(o).imbalance(0, 1);
  EXPECT_DOUBLE_EQ(told.dealt, most_over_mean(take(o, 4, 0).positions));
  o.deal.work = nullptr;
  EXPECT_DOUBLE_EQ(told.in_order, most_over_mean(take(o, 4, 0).positions));
}

// Ranks of a node share out what is the node's: it reads nothing that others have.
TEST(Shares, GroupsKeepWhatIsTheirsInOrder) {
  const TemporaryFolder folder;
  StreamOptions o = uneven(folder), in_order = o;
  in_order.deal.work = nullptr;
  o.deal.group = 2;
  const auto keys_of = [](StreamOptions options, int first) {
    std::multiset<std::string> keys;
    for (int r = first; r < first + 2; ++r) {
      options.rank = r, options.ranks = 4;
      Stream stream(options);
      for (const Sample& s : stream.next(3)) keys.insert(s.key);
    }
    return keys;
  };
  EXPECT_EQ(keys_of(o, 0), keys_of(in_order, 0));
  EXPECT_EQ(keys_of(o, 2), keys_of(in_order, 2));
}

}  // namespace
}  // namespace mm::data
