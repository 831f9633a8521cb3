// SPDX-License-Identifier: Apache-2.0
// Separable bicubic resampling with the arithmetic that Pillow documents by its results: weights in double, normalised over the
// pixels that exist, then 22-bit fixed point; rows first, rounded and clamped to 8 bits, then columns. The results equal
// Pillow's to the bit, on any CPU. (General scalers mirror the borders and keep more bits between the passes; on sharp edges
// that is up to 20 levels away.)
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "trainer/data/image/image.h"

namespace mm::data {
namespace {

constexpr int precision_bits = 22;
constexpr int32_t half = 1 << (precision_bits - 1);

double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

// Output position i is the sum over k < count[i] of input[first[i] + k] * weights[i * taps + k].
struct Kernel {
  int taps = 0;
  std::vector<int> first, count;
  std::vector<int32_t> weights;
};

Kernel make_kernel(int in, int out) {
  const double scale = static_cast<double>(in) / out, filter_scale = std::max(scale, 1.0);
  const double support = 2.0 * filter_scale;
  Kernel kernel;
  kernel.taps = static_cast<int>(std::ceil(support)) * 2 + 1;
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
  return kernel;
}

uint8_t clamp8(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> precision_bits, 0, 255));
}

// A pixel of two rows, four numbers each (the fourth unused): one register on a CPU that has them.
using Pair = int32_t __attribute__((vector_size(32)));

void resample_pair(const Pair* pixels, const Kernel& kernel, int out, uint8_t* row_a, uint8_t* row_b) {
  for (int i = 0; i < out; ++i) {
    const auto at = static_cast<size_t>(i);
    const int32_t* w = &kernel.weights[at * static_cast<size_t>(kernel.taps)];
    const Pair* from = pixels + kernel.first[at];
    Pair sums = {half, half, half, half, half, half, half, half};
    for (int k = 0; k < kernel.count[at]; ++k) sums += from[k] * w[k];
    for (int c = 0; c < 3; ++c) {
      row_a[i * 3 + c] = clamp8(sums[c]);
      row_b[i * 3 + c] = clamp8(sums[c + 4]);
    }
  }
}

// Rows [first_row, end_row) of `image`, `out` pixels wide.
std::vector<uint8_t> resample_rows(const Image& image, const Kernel& kernel, int out, int first_row, int end_row) {
  const auto width = static_cast<size_t>(image.width), stride = static_cast<size_t>(out) * 3;
  std::vector<uint8_t> result(stride * static_cast<size_t>(end_row - first_row)), unused(stride);
  std::vector<Pair> pixels(width);
  for (int y = first_row; y < end_row; y += 2) {
    const bool both = y + 1 < end_row;
    const uint8_t* a = &image.rgb[static_cast<size_t>(y) * width * 3];
    const uint8_t* b = both ? a + width * 3 : a;
    for (size_t x = 0; x < width; ++x)
      pixels[x] = Pair{a[x * 3], a[x * 3 + 1], a[x * 3 + 2], 0, b[x * 3], b[x * 3 + 1], b[x * 3 + 2], 0};
    uint8_t* row_a = &result[static_cast<size_t>(y - first_row) * stride];
    resample_pair(pixels.data(), kernel, out, row_a, both ? row_a + stride : unused.data());
  }
  return result;
}

// `rows` starts with row `first_row` of the picture.
void resample_columns(const std::vector<uint8_t>& rows, int first_row, const Kernel& kernel, Image& out) {
  const size_t stride = static_cast<size_t>(out.width) * 3;
  std::vector<int32_t> sums(stride);
  for (int y = 0; y < out.height; ++y) {
    const auto at = static_cast<size_t>(y);
    const int32_t* w = &kernel.weights[at * static_cast<size_t>(kernel.taps)];
    const uint8_t* from = &rows[static_cast<size_t>(kernel.first[at] - first_row) * stride];
    std::fill(sums.begin(), sums.end(), half);
    for (int k = 0; k < kernel.count[at]; ++k, from += stride)
      for (size_t i = 0; i < stride; ++i) sums[i] += from[i] * w[k];
    uint8_t* to = &out.rgb[at * stride];
    for (size_t i = 0; i < stride; ++i) to[i] = clamp8(sums[i]);
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
  const Kernel columns = image.height == height ? Kernel{} : make_kernel(image.height, height);
  const int first_row = columns.taps == 0 ? 0 : columns.first.front();
  const int end_row = columns.taps == 0 ? image.height : columns.first.back() + columns.count.back();
  std::vector<uint8_t> rows;
  if (image.width == width) {
    const size_t stride = static_cast<size_t>(width) * 3;
    rows.assign(image.rgb.begin() + static_cast<std::ptrdiff_t>(stride * static_cast<size_t>(first_row)),
                image.rgb.begin() + static_cast<std::ptrdiff_t>(stride * static_cast<size_t>(end_row)));
  } else {
    rows = resample_rows(image, make_kernel(image.width, width), width, first_row, end_row);
  }
  if (columns.taps == 0) {
    out.rgb = std::move(rows);
    return out;
  }
  out.rgb.resize(static_cast<size_t>(width) * 3 * static_cast<size_t>(height));
  resample_columns(rows, first_row, columns, out);
  return out;
}

}  // namespace mm::data
