// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/text/sequence.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "trainer/data/order/permutation.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {
namespace {

using Ids = std::vector<int32_t>;
constexpr int32_t no = no_label, image = 3;
const SequenceRule two_positions{.image_size = 8, .positions_per_image = 2};

Ids bytes(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(4 + static_cast<unsigned char>(c));
  return ids;
}
Ids join(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& p : parts) all.insert(all.end(), p.begin(), p.end());
  return all;
}
std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Unusable& unusable) {
    return unusable.what();
  }
  return "";
}

TEST(Sequence, CaptionIsTrainedAndNothingElse) {
  const Sequence s = caption_sequence("ab", 1, two_positions);
  EXPECT_EQ(s.ids, (Ids{1, image, image, 4 + 'a', 4 + 'b', 2}));
  EXPECT_EQ(s.labels, (Ids{no, no, 4 + 'a', 4 + 'b', 2, no}));
  EXPECT_EQ(caption_sequence("", 2, two_positions).labels, (Ids{no, no, no, no, 2, no}));
}

TEST(Sequence, TextIsCutFromTheEndAndEosStays) {
  SequenceRule rule = two_positions;
  for (rule.max_length = 4; rule.max_length <= 9; ++rule.max_length) {
    const Sequence s = caption_sequence("abcde", 1, rule);
    const auto length = static_cast<size_t>(rule.max_length);
    ASSERT_EQ(s.ids.size(), length);
    EXPECT_EQ(s.ids, join({{1, image, image}, bytes(std::string_view("abcde").substr(0, length - 4)), {2}}));
    EXPECT_EQ(s.labels[length - 2], 2);
    EXPECT_EQ(std::count(s.labels.begin(), s.labels.end(), no), 3);
  }
  rule.max_length = 3;
  EXPECT_NE(refusal([&] { caption_sequence("abcde", 1, rule); }).find("fit"), std::string::npos);
  rule.max_length = 5;
  EXPECT_NE(refusal([&] { caption_sequence("abcde", 2, rule); }).find("images"), std::string::npos);
}

TEST(Sequence, MarksStandForImages) {
  const Sequence s = json_sequence(R"({"text": "a<image>b<image>"})", 2, two_positions);
  EXPECT_EQ(s.ids, (Ids{1, 4 + 'a', image, image, 4 + 'b', image, image, 2}));
  EXPECT_EQ(s.labels, (Ids{4 + 'a', no, no, 4 + 'b', no, no, 2, no}));
  EXPECT_EQ(json_sequence(R"({"text": "x"})", 1, two_positions).ids, (Ids{1, image, image, 4 + 'x', 2}));
  EXPECT_EQ(json_sequence(R"({"text": "x"})", 0, two_positions).ids, (Ids{1, 4 + 'x', 2}));
  EXPECT_NE(refusal([] { json_sequence(R"({"text": "<image>"})", 2, two_positions); }).find("1 images are named, 2 are there"),
            std::string::npos);
}

// Where the limit falls into an image, or before it, the sample is refused; where it falls behind, the text is cut.
TEST(Sequence, Case06AnImageIsNeverCut) {
  SequenceRule rule = two_positions;
  const auto sample = [&] { return json_sequence(R"({"text": "ab<image>cd"})", 1, rule); };
  for (rule.max_length = 3; rule.max_length <= 5; ++rule.max_length) EXPECT_NE(refusal([&] { sample(); }), "") << rule.max_length;
  rule.max_length = 6;
  EXPECT_EQ(sample().ids, (Ids{1, 4 + 'a', 4 + 'b', image, image, 2}));
}

TEST(Sequence, OnlyTheAssistantIsTrained) {
  const Sequence s = json_sequence(R"({"messages": [{"role": "system", "content": "S"},
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Q"}]}, {"role": "assistant", "content": "A1"},
    {"role": "user", "content": "R"}, {"role": "assistant", "content": "A2"}]})",
                                   1, two_positions);
  EXPECT_EQ(
      s.ids,
      join({{1}, bytes("S\nUSER: "), {image, image}, bytes("Q\nASSISTANT: A1"), {2}, bytes("USER: R\nASSISTANT: A2"), {2}}));
  Ids trained;
  for (size_t i = 0; i < s.labels.size(); ++i)
    if (s.labels[i] != no) {
      EXPECT_EQ(s.labels[i], s.ids[i + 1]);
      trained.push_back(s.labels[i]);
    }
  EXPECT_EQ(trained, join({bytes("A1"), {2}, bytes("A2"), {2}}));
  for (const char* bad :
       {"", "[]", "{", R"({"caption": "x"})", R"({"messages": []})", R"({"messages": [{"role": "robot", "content": "x"}]})",
        R"({"messages": [{"role": "user", "content": "x"}]})", R"({"messages": [{"role": "assistant", "content": 3}]})",
        R"({"messages": [7]})", R"({"text": 5})", R"({"messages": [{"role": "assistant", "content": [{"type": "video"}]}]})"})
    EXPECT_NE(refusal([&] { json_sequence(bad, 0, two_positions); }), "") << bad;
  const std::string deep(100000, '[');
  EXPECT_NE(refusal([&] { json_sequence(deep, 0, two_positions); }), "");
}

TEST(Utf8, RepairsAsUnicodeRecommends) {
  const std::string r = "\xEF\xBF\xBD";
  const std::pair<std::string, std::string> cases[] = {
      {"caf\xC3\xA9 \xF0\x9F\x98\x80", "caf\xC3\xA9 \xF0\x9F\x98\x80"},
      {"\xC3", r},
      {"a\xFF"
       "b",
       "a" + r + "b"},
      {"\xC0\xAF", r + r},                  // overlong
      {"\xED\xA0\x80", r + r + r},          // surrogate
      {"\xF4\x90\x80\x80", r + r + r + r},  // above U+10FFFF
      {"\xF0\x9F\x98", r},                  // one broken character, one mark
      {"\xE2\x82(", r + "("},
  };
  for (const auto& [in, out] : cases) {
    bool repaired = false;
    EXPECT_EQ(repair_utf8(in, repaired), out);
    EXPECT_EQ(repaired, in != out);
  }
  EXPECT_TRUE(caption_sequence("\xFF", 1, two_positions).repaired);
  EXPECT_EQ(printable("a\x1b[31m\n"), "a\\x1b[31m\\x0a");
  EXPECT_EQ(json_string("a\"\\\n\xFF"), "\"a\\\"\\\\\\u000a\xEF\xBF\xBD\"");
}

TEST(Permutation, IsOneInEveryEpoch) {
  for (const uint64_t n : {1u, 2u, 3u, 4u, 5u, 16u, 17u, 1000u, 4097u}) {
    std::vector<uint64_t> first;
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      const Permutation p(n, 42, epoch);
      std::vector<uint64_t> order;
      for (uint64_t i = 0; i < n; ++i) order.push_back(p(i));
      if (epoch == 0)
        first = order;
      else if (n >= 16) {
        EXPECT_NE(order, first);
      }
      std::sort(order.begin(), order.end());
      for (uint64_t i = 0; i < n; ++i) ASSERT_EQ(order[i], i);
    }
  }
}

TEST(Permutation, LooksUniform) {
  // Neighbours stay neighbours about twice in n, and a tenth of the positions draws about evenly from ten parts of the set.
  const uint64_t n = 20000;
  const Permutation p(n, 7, 1);
  int adjacent = 0, parts[10] = {};
  for (uint64_t i = 0; i + 1 < n; ++i) adjacent += p(i + 1) == p(i) + 1 || p(i) == p(i + 1) + 1;
  for (uint64_t i = 0; i < n / 10; ++i) ++parts[p(i) * 10 / n];
  EXPECT_LT(adjacent, 12);
  for (const int count : parts) EXPECT_NEAR(count, 200, 60);
}

// Runs in progress rely on these.
TEST(Permutation, KeepsItsValues) {
  const Permutation p(8121, 1, 0), q(1000000007, 5, 3);
  std::vector<uint64_t> seen;
  for (uint64_t i = 0; i < 4; ++i) seen.push_back(p(i));
  for (uint64_t i = 0; i < 2; ++i) seen.push_back(q(i));
  EXPECT_EQ(seen, (std::vector<uint64_t>{2352, 2165, 1758, 1009, 79245895, 177846243}));
}

}  // namespace
}  // namespace mm::data
