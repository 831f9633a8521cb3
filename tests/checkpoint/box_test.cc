// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "common/error.h"

#include "tests/checkpoint/support.h"

namespace mm::checkpoint::test {
namespace {

// The flat numbers of a box's elements, by walking it element by element.
std::vector<int64_t> numbers_of(const Extents& global, const Box& box) {
  Tensor t{"", "", DType::int64, global, std::vector<char>(static_cast<size_t>(elements(global)) * 8)};
  for (int64_t i = 0; i < elements(global); ++i) std::memcpy(&t.bytes[static_cast<size_t>(i) * 8], &i, 8);
  const std::vector<char> bytes = bytes_of(t, box);
  std::vector<int64_t> out(bytes.size() / 8);
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

TEST(BoxesOfRange, AreTheRangeInOrderAndFew) {
  Random random(1);
  for (int round = 0; round < 3000; ++round) {
    Extents global;
    for (auto d = random() % 5; d > 0; --d) global.push_back(static_cast<int64_t>(1 + random() % 6));
    const int64_t n = elements(global);
    int64_t begin = static_cast<int64_t>(random() % static_cast<uint64_t>(n + 1)),
            end = static_cast<int64_t>(random() % static_cast<uint64_t>(n + 1));
    if (begin > end) std::swap(begin, end);
    const std::vector<Box> boxes = boxes_of_range(global, begin, end);
    EXPECT_LE(boxes.size(), std::max<size_t>(1, 2 * global.size() - (global.empty() ? 0 : 1)));
    int64_t next = begin;
    for (const Box& b : boxes) {
      ASSERT_TRUE(lies_within(b, global));
      for (const int64_t i : numbers_of(global, b)) ASSERT_EQ(i, next++);
    }
    ASSERT_EQ(next, end);
  }
}

TEST(BoxesOfRange, EdgesAndWrongRanges) {
  EXPECT_EQ(boxes_of_range({}, 0, 1).size(), 1u);
  EXPECT_TRUE(boxes_of_range({}, 0, 0).empty());
  EXPECT_EQ(boxes_of_range({3, 0, 2}, 0, 0).size(), 1u);
  EXPECT_TRUE(boxes_of_range({3, 2}, 2, 2).empty());
  EXPECT_THROW(boxes_of_range({3}, 0, 4), Error);
  EXPECT_THROW(boxes_of_range({3}, -1, 2), Error);
  EXPECT_THROW(boxes_of_range({3}, 2, 1), Error);
}

TEST(Runs, CopyWhatTwoBoxesShare) {
  Random random(2);
  for (int round = 0; round < 2000; ++round) {
    Extents global;
    for (auto d = random() % 5; d > 0; --d) global.push_back(static_cast<int64_t>(1 + random() % 5));
    auto any_box = [&] {
      Box b;
      for (const int64_t extent : global) {
        b.offset.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(extent)));
        b.shape.push_back(static_cast<int64_t>(1 + random() % static_cast<uint64_t>(extent - b.offset.back())));
      }
      return b;
    };
    const Box a = any_box(), b = any_box();
    const std::vector<int64_t> in_a = numbers_of(global, a), in_b = numbers_of(global, b);
    std::vector<int64_t> copied(in_b.size(), -1);
    int64_t after = -1;
    if (const auto shared = intersection(a, b)) {
      for_each_run(a, b, *shared, [&](int64_t from, int64_t to, int64_t count) {
        ASSERT_GT(from, after);
        after = from + count - 1;
        for (int64_t i = 0; i < count; ++i) copied.at(static_cast<size_t>(to + i)) = in_a.at(static_cast<size_t>(from + i));
      });
    }
    for (size_t i = 0; i < in_b.size(); ++i) {
      const bool shared = std::find(in_a.begin(), in_a.end(), in_b[i]) != in_a.end();
      ASSERT_EQ(copied[i], shared ? in_b[i] : -1);
    }
  }
}

TEST(Tiling, FindsHolesAndOverlaps) {
  EXPECT_EQ(tiling_error({4, 4}, {{{0, 0}, {4, 2}}, {{0, 2}, {2, 2}}, {{2, 2}, {2, 2}}}), "");
  EXPECT_NE(tiling_error({4, 4}, {{{0, 0}, {4, 2}}, {{0, 2}, {2, 2}}}), "");
  // as many elements as the tensor has, but one twice and one never
  EXPECT_NE(tiling_error({4}, {{{0}, {2}}, {{1}, {2}}}), "");
  EXPECT_NE(tiling_error({}, {{{}, {}}, {{}, {}}}), "");
  EXPECT_EQ(tiling_error({0, 3}, {{{0, 0}, {0, 3}}}), "");
}

TEST(CheckedElements, RefusesNegativeAndHuge) {
  EXPECT_FALSE(checked_elements({-1}));
  EXPECT_FALSE(checked_elements({int64_t{1} << 40, int64_t{1} << 40}));
  EXPECT_EQ(checked_elements({0, int64_t{1} << 40}), 0);
  EXPECT_EQ(checked_elements({}), 1);
}

}  // namespace
}  // namespace mm::checkpoint::test
