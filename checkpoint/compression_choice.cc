// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/compression_choice.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "checkpoint/frame.h"

namespace mm::checkpoint {

CompressionRate sample_compression(const std::vector<ConstView>& views, int threads) {
  constexpr uint64_t piece_bytes = 1 << 20;
  constexpr uint64_t pieces = 4;
  const auto bytes_of = [](const ConstView& v) { return static_cast<uint64_t>(elements(v.box.shape)) * size_of(v.dtype); };
  uint64_t all = 0, sampled = 0, made = 0;
  for (const ConstView& v : views) all += bytes_of(v);
  std::vector<char> frame;
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < pieces; ++i) {
    uint64_t at = all / pieces * i + all / (2 * pieces);
    for (const ConstView& v : views) {
      const uint64_t n = bytes_of(v);
      if (at >= n) {
        at -= n;
        continue;
      }
      if (v.data == nullptr) break;  // a mistake that the save itself reports
      const uint64_t width = size_of(v.dtype), from = at / width * width, count = std::min(piece_bytes, n - from);
      make_frame(static_cast<const char*>(v.data) + from, count, width, frame);
      sampled += count;
      made += frame.size();
      break;
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (sampled == 0) return {};
  return {static_cast<double>(sampled) * std::max(threads, 1) / std::max(seconds, 1e-9),
          static_cast<double>(made) / static_cast<double>(sampled)};
}

bool is_worth_compressing(double link, const CompressionRate& rate) {
  if (link <= 0 || rate.bytes_per_second <= 0) return false;
  const double plain = 1 / link, compressed = std::max(1 / rate.bytes_per_second, rate.ratio / link);
  return 1.1 * compressed < plain;
}

bool CompressionChoice::next(bool shared, const std::vector<ConstView>& views, int threads) {
  if (mode_ != Compression::automatic) return mode_ == Compression::on;
  if (!shared || link_ <= 0 || since_plain_ + 1 >= plain_every) return false;
  try {
    return is_worth_compressing(link_, sample_compression(views, threads));
  } catch (const std::exception&) {
    return false;  // no memory for it
  }
}

void CompressionChoice::written(bool compressed, uint64_t bytes, double seconds) {
  constexpr uint64_t least_bytes = 1 << 20;  // less says more of the operations than of the link
  since_plain_ = compressed ? since_plain_ + 1 : 0;
  if (!compressed && bytes >= least_bytes) link_ = static_cast<double>(bytes) / std::max(seconds, 1e-9);
}

}  // namespace mm::checkpoint
