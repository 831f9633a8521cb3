// SPDX-License-Identifier: Apache-2.0
// Where an entry's payload lies in memory: rows of `row` bytes, `stride` apart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace mm::checkpoint {

struct Rows {
  const char* data = nullptr;
  uint64_t row = 0, stride = 0;

  // Bytes [begin, begin + count); `scratch` holds them where they do not lie together.
  const char* get(uint64_t begin, uint64_t count, std::vector<char>& scratch) const {
    if (row == stride) return data + begin;
    scratch.resize(count);
    for (uint64_t done = 0; done < count;) {
      const uint64_t at = begin + done, within = at % row, n = std::min(row - within, count - done);
      std::memcpy(scratch.data() + done, data + at / row * stride + within, n);
      done += n;
    }
    return scratch.data();
  }
};

}  // namespace mm::checkpoint
