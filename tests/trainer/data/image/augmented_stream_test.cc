// SPDX-License-Identifier: Apache-2.0
// The stream with random changes and a tokenizer of its own: the same samples for any number of ranks and threads, and after a jump.
#include <set>

#include "tests/trainer/data/support.h"
#include "trainer/data/image/image.h"
#include "trainer/data/stream.h"
#include "trainer/data/tokenizer/tokenizer.h"

namespace mm::data {
namespace {

using namespace test;

StreamOptions options(const TemporaryFolder& folder) {
  StreamOptions o;
  o.shards = {folder.path("part-*.tar")};
  o.global_batch = 4;
  o.rule = {.image_size = 16, .positions_per_image = 2, .image_token = 417};
  o.rule.augment.crop = {0.3, 1};
  o.rule.augment.flip = 0.5;
  o.rule.augment.brightness = 0.3;
  return o;
}

TEST(AugmentedStream, RepeatsExactly) {
  const TemporaryFolder folder;
  for (int shard = 0; shard < 2; ++shard) {
    std::vector<std::pair<std::string, std::string>> members;
    for (int i = 0; i < 5; ++i) {
      members.push_back({std::to_string(i) + ".png", encode_png(gradient(30 + i, 40))});
      members.push_back({std::to_string(i) + ".txt", "a photograph of two cats"});
    }
    write(folder.path("part-" + std::to_string(shard) + ".tar"), make_tar(members));
  }
  write(folder.path("tokenizer_config.json"), R"({"eos_token": "<|endoftext|>"})");
  std::filesystem::copy_file("tests/trainer/data/fixtures/tokenizers/qwen2.json", folder.path("tokenizer.json"));
  StreamOptions one = options(folder);
  one.rule.tokenizer = open_tokenizer(folder.path("tokenizer.json"), "");
  one.threads = 1;
  Stream alone(one);
  std::set<std::vector<uint8_t>> seen;
  for (int64_t batch = 0; batch < 8; ++batch) {
    const std::vector<Sample> want = alone.next(batch);
    ASSERT_EQ(want.size(), 4u);
    for (int rank = 0; rank < 2; ++rank) {
      StreamOptions two = one;
      two.rank = rank, two.ranks = 2, two.threads = 3;
      Stream jumped(two);
      const std::vector<Sample> got = jumped.next(batch);
      ASSERT_EQ(got.size(), 2u);
      for (size_t i = 0; i < 2; ++i) {
        const Sample& expected = want[static_cast<size_t>(rank) * 2 + i];
        EXPECT_EQ(got[i].images[0].rgb, expected.images[0].rgb);
        EXPECT_EQ(got[i].ids, expected.ids);
        EXPECT_EQ(got[i].ids.back(), 416);
      }
    }
    for (const Sample& sample : want) EXPECT_TRUE(seen.insert(sample.images[0].rgb).second) << "each epoch has its own";
  }
  EXPECT_EQ(alone.at(0, 1)[0].sample.images[0].rgb, resize_image(gradient(30, 40), 16, 16).rgb);  // evaluation changes nothing
}

}  // namespace
}  // namespace mm::data
