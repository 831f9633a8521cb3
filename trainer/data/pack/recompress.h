// SPDX-License-Identifier: Apache-2.0
// New shards in which pictures are JPEG files of a given quality and largest side; all else is copied. Lossy, so the loss is measured:
// each new picture is decoded again and held against the one that it was made from, at the new size. A picture that would not get
// smaller, or does not decode, keeps its bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/pack/shard_writer.h"

namespace mm::data {

struct RecompressOptions {
  std::vector<std::string> shards;  // patterns
  std::string out;
  int quality = 90;
  int max_side = 0;  // 0: sizes stay
  ShardLimits limits;
  int threads = 0;  // 0: the CPUs that the process may use
  bool replace = false;
};

struct RecompressResult {
  int64_t samples = 0, pictures = 0, kept = 0, undecodable = 0;  // pictures in all, with their old bytes, and of these damaged ones
  int64_t bytes_before = 0, bytes_after = 0;                      // of the shards
  double psnr_mean = 0, psnr_least = 0;                           // dB, of the new pictures; 0 without any
  int max_difference = 0;                                         // levels
};

// Writes OUT/NAME-00000.tar, ... where the shards are called NAME-*.tar, samples in their order. Throws a usage Error where OUT is
// unfit or two parts of a sample would share a name, a data Error where a shard cannot be read.
RecompressResult recompress(const RecompressOptions& options);

}  // namespace mm::data
