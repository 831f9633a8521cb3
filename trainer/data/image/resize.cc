// SPDX-License-Identifier: Apache-2.0
// Separable bicubic resampling with the arithmetic that Pillow documents by its results: weights in double, normalised over the
// pixels that exist, then 22-bit fixed point; rows first, rounded and clamped to 8 bits, then columns. The results equal
// Pillow's to the bit, on any CPU. (General scalers mirror the borders and keep more bits between the passes; on sharp edges
// that is up to 20 levels away.)
//
// A weight is kept as high * 4096 + low, both of 16 bits, so that one instruction multiplies and adds sixteen of them; the two sums
// are put together at the end. Sums wrap around, which is harmless, as the total fits.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <list>
#include <stdexcept>
#include <vector>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "trainer/data/image/image.h"
#include "trainer/data/image/spare.h"

namespace mm::data {
namespace {

constexpr int precision_bits = 22;
constexpr int32_t half = 1 << (precision_bits - 1);
constexpr int low_bits = 12;
constexpr size_t most_kept_weights = size_t{1} << 18;

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

// Output position i is the sum over k < count[i] of input[first[i] + k] * weights[i * taps + k]; weights past the count are zero.
struct Kernel {
  int in = 0, out = 0, taps = 0;  // taps: a multiple of 4
  std::vector<int> first, count;
  std::vector<int32_t> weights;
  std::vector<int16_t> high, low;
};

Kernel make_kernel(int in, int out) {
  const double scale = static_cast<double>(in) / out, filter_scale = std::max(scale, 1.0);
  const double support = 2.0 * filter_scale;
  Kernel kernel{in, out, (static_cast<int>(std::ceil(support)) * 2 + 1 + 3) / 4 * 4, {}, {}, {}, {}, {}};
  const auto taps = static_cast<size_t>(kernel.taps);
  kernel.weights.resize(static_cast<size_t>(out) * taps);
  std::vector<double> row(taps);
  for (int i = 0; i < out; ++i) {
    const double centre = (i + 0.5) * scale;
    const int from = std::max(0, static_cast<int>(centre - support + 0.5));
    const int to = std::min(in, static_cast<int>(centre + support + 0.5));
    double sum = 0;
    for (int k = 0; k < to - from; ++k) {
      row[static_cast<size_t>(k)] = bicubic((k + from - centre + 0.5) * (1.0 / filter_scale));
      sum += row[static_cast<size_t>(k)];
    }
    for (int k = 0; k < to - from; ++k) {
      double w = row[static_cast<size_t>(k)];
      if (sum != 0.0) w /= sum;
      w *= 1 << precision_bits;
      kernel.weights[static_cast<size_t>(i) * taps + static_cast<size_t>(k)] = static_cast<int32_t>(w < 0 ? w - 0.5 : w + 0.5);
    }
    kernel.first.push_back(from);
    kernel.count.push_back(to - from);
  }
  for (const int32_t w : kernel.weights) {
    kernel.high.push_back(static_cast<int16_t>(w >> low_bits));
    kernel.low.push_back(static_cast<int16_t>(w & ((1 << low_bits) - 1)));
  }
  return kernel;
}

// The latest of this thread; pictures of a data set share few sizes.
const Kernel& kernel_for(int in, int out) {
  thread_local std::list<Kernel> latest;
  const auto known = std::ranges::find_if(latest, [&](const Kernel& k) { return k.in == in && k.out == out; });
  if (known != latest.end()) {
    latest.splice(latest.begin(), latest, known);
  } else {
    latest.push_front(make_kernel(in, out));
    size_t kept = 0;
    for (const Kernel& kernel : latest) kept += kernel.weights.size();
    for (; latest.size() > 1 && kept > most_kept_weights; latest.pop_back()) kept -= latest.back().weights.size();
  }
  return latest.front();
}

uint8_t clamp8(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> precision_bits, 0, 255));
}

#ifdef __AVX2__

__m256i two_weights(const int16_t* w) {  // in every pair of lanes
  int32_t both;
  std::memcpy(&both, w, sizeof both);
  return _mm256_set1_epi32(both);
}

__m256i in_levels(__m256i high, __m256i low) {
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32(high, low_bits), low), _mm256_set1_epi32(half));
  return _mm256_srai_epi32(sum, precision_bits);
}

// Four rows of pixels, each with 16 bytes readable past its last tap, to kernel.out pixels. Four taps at once: of each channel the first two in one half of the register, the others in the other.
void resample_four(const std::array<const uint8_t*, 4>& rows, const Kernel& kernel, const std::array<uint8_t*, 4>& to) {
  const __m256i channels = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
                                            6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const auto halves = [](const int16_t* w) {
    long long all;
    std::memcpy(&all, w, sizeof all);
    const __m256i four = _mm256_set1_epi64x(all);
    return _mm256_blend_epi32(_mm256_shuffle_epi32(four, 0x00), _mm256_shuffle_epi32(four, 0x55), 0xF0);
  };
  for (int i = 0; i < kernel.out; ++i) {
    const auto at = static_cast<size_t>(i);
    const size_t weights = at * static_cast<size_t>(kernel.taps);
    size_t from = static_cast<size_t>(kernel.first[at]) * 3;
    __m256i high[4] = {}, low[4] = {};
    for (int k = 0; k < kernel.count[at]; k += 4, from += 12) {
      const __m256i high_weights = halves(&kernel.high[weights + static_cast<size_t>(k)]);
      const __m256i low_weights = halves(&kernel.low[weights + static_cast<size_t>(k)]);
      for (size_t r = 0; r < 4; ++r) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[r] + from));
        const __m256i pixels = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), channels);
        high[r] = _mm256_add_epi32(high[r], _mm256_madd_epi16(pixels, high_weights));
        low[r] = _mm256_add_epi32(low[r], _mm256_madd_epi16(pixels, low_weights));
      }
    }
    __m128i sums[4];
    for (size_t r = 0; r < 4; ++r) {
      const __m256i both = _mm256_add_epi32(_mm256_slli_epi32(high[r], low_bits), low[r]);
      const __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
      sums[r] = _mm_srai_epi32(_mm_add_epi32(sum, _mm_set1_epi32(half)), precision_bits);
    }
    const __m128i pixels = _mm_packus_epi16(_mm_packs_epi32(sums[0], sums[1]), _mm_packs_epi32(sums[2], sums[3]));
    alignas(16) uint8_t four[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(four), pixels);
    if (i + 1 < kernel.out)  // four bytes at once; the last is the next pixel's
      for (size_t r = 0; r < 4; ++r) std::memcpy(to[r] + at * 3, four + 4 * r, 4);
    else
      for (size_t r = 0; r < 4; ++r) std::memcpy(to[r] + at * 3, four + 4 * r, 3);
  }
}

// Sixteen neighbours of one output row; `from` is the first input row's, `stride` apart. Two rows at once.
void resample_sixteen(const uint8_t* from, size_t stride, const Kernel& kernel, size_t at, uint8_t* to) {
  const int count = kernel.count[at];
  const size_t weights = at * static_cast<size_t>(kernel.taps);
  __m256i high_a = _mm256_setzero_si256(), low_a = high_a, high_b = high_a, low_b = high_a;
  for (int k = 0; k < count; k += 2, from += 2 * stride) {
    const __m128i one = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m128i two = k + 1 < count ? _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + stride)) : one;  // its weight is zero
    const __m256i a = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(one, two)), b = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(one, two));
    const __m256i high = two_weights(&kernel.high[weights + static_cast<size_t>(k)]), low = two_weights(&kernel.low[weights + static_cast<size_t>(k)]);
    high_a = _mm256_add_epi32(high_a, _mm256_madd_epi16(a, high));
    low_a = _mm256_add_epi32(low_a, _mm256_madd_epi16(a, low));
    high_b = _mm256_add_epi32(high_b, _mm256_madd_epi16(b, high));
    low_b = _mm256_add_epi32(low_b, _mm256_madd_epi16(b, low));
  }
  const __m256i shorts = _mm256_permute4x64_epi64(_mm256_packs_epi32(in_levels(high_a, low_a), in_levels(high_b, low_b)), 0xD8);
  const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(shorts), _mm256_extracti128_si256(shorts, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}

constexpr size_t at_once = 16;

#else

void resample_four(const std::array<const uint8_t*, 4>& rows, const Kernel& kernel, const std::array<uint8_t*, 4>& to) {
  for (size_t r = 0; r < 4; ++r)
    for (int i = 0; i < kernel.out; ++i) {
      const auto at = static_cast<size_t>(i);
      const int32_t* w = &kernel.weights[at * static_cast<size_t>(kernel.taps)];
      const uint8_t* from = rows[r] + static_cast<size_t>(kernel.first[at]) * 3;
      int32_t sums[3] = {half, half, half};
      for (int k = 0; k < kernel.count[at]; ++k, from += 3)
        for (int c = 0; c < 3; ++c) sums[c] += from[c] * w[k];
      for (size_t c = 0; c < 3; ++c) to[r][at * 3 + c] = clamp8(sums[c]);
    }
}

void resample_sixteen(const uint8_t*, size_t, const Kernel&, size_t, uint8_t*) {}
constexpr size_t at_once = SIZE_MAX;

#endif

// Rows [first_row, end_row) of `image`, kernel.out pixels wide.
std::vector<uint8_t> resample_rows(const Image& image, const Kernel& kernel, int first_row, int end_row) {
  const auto width = static_cast<size_t>(image.width), stride = static_cast<size_t>(kernel.out) * 3;
  const size_t size = stride * static_cast<size_t>(end_row - first_row), room = (width + 4) * 3 + 16;
  std::vector<uint8_t> result = buffer_of(size), padded(4 * room), unused(stride);
  for (int y = first_row; y < end_row; y += 4) {
    std::array<const uint8_t*, 4> from;
    std::array<uint8_t*, 4> to;
    for (int r = 0; r < 4; ++r) {
      const auto at = static_cast<size_t>(r);
      const bool there = y + r < end_row;
      if (there) std::memcpy(&padded[at * room], &image.rgb[static_cast<size_t>(y + r) * width * 3], width * 3);
      from[at] = &padded[at * room];
      to[at] = there ? &result[static_cast<size_t>(y + r - first_row) * stride] : unused.data();
    }
    resample_four(from, kernel, to);
  }
  return result;
}

// `rows` starts with row `first_row` of the picture.
void resample_columns(const std::vector<uint8_t>& rows, int first_row, const Kernel& kernel, Image& out) {
  const size_t stride = static_cast<size_t>(out.width) * 3;
  for (int y = 0; y < out.height; ++y) {
    const auto at = static_cast<size_t>(y);
    const uint8_t* from = &rows[static_cast<size_t>(kernel.first[at] - first_row) * stride];
    uint8_t* to = &out.rgb[at * stride];
    if (stride >= at_once) {
      for (size_t x = 0; x + at_once <= stride; x += at_once) resample_sixteen(from + x, stride, kernel, at, to + x);
      if (stride % at_once != 0) resample_sixteen(from + stride - at_once, stride, kernel, at, to + stride - at_once);
      continue;
    }
    const int32_t* w = &kernel.weights[at * static_cast<size_t>(kernel.taps)];
    for (size_t x = 0; x < stride; ++x) {
      int32_t sum = half;
      for (int k = 0; k < kernel.count[at]; ++k) sum += from[static_cast<size_t>(k) * stride + x] * w[k];
      to[x] = clamp8(sum);
    }
  }
}

}  // namespace

Image resize_image(const Image& image, int width, int height) {
  if (width < 1 || height < 1 || image.width < 1 || image.height < 1)
    throw std::invalid_argument("resize_image: a side below 1");
  if (image.width == width && image.height == height) return image;
  Image out;
  out.width = width;
  out.height = height;
  int first_row = 0, end_row = image.height;
  if (image.height != height) {
    const Kernel& columns = kernel_for(image.height, height);
    first_row = columns.first.front();
    end_row = columns.first.back() + columns.count.back();
  }
  std::vector<uint8_t> rows;
  if (image.width == width) {
    const size_t stride = static_cast<size_t>(width) * 3;
    rows.assign(image.rgb.begin() + static_cast<std::ptrdiff_t>(stride * static_cast<size_t>(first_row)),
                image.rgb.begin() + static_cast<std::ptrdiff_t>(stride * static_cast<size_t>(end_row)));
  } else {
    rows = resample_rows(image, kernel_for(image.width, width), first_row, end_row);
  }
  if (image.height == height) {
    out.rgb = std::move(rows);
    return out;
  }
  out.rgb.resize(static_cast<size_t>(width) * 3 * static_cast<size_t>(height));
  resample_columns(rows, first_row, kernel_for(image.height, height), out);
  give_back(std::move(rows));
  return out;
}

}  // namespace mm::data
