// SPDX-License-Identifier: Apache-2.0
// Whether a rank compresses its next file. "on": always. "automatic": where it is expected to take less time, that is where the
// link to the shared file system is slower than the cores. The link is measured by a save that does not compress: the first, and
// each tenth after it, for behind compressed ones its speed does not show. Cores and ratio are measured on samples of the values
// that are to be saved.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace mm::checkpoint {

// Bytes of payload a second that the threads compress, and what a byte becomes.
struct CompressionRate {
  double bytes_per_second = 0, ratio = 1;
};
// Compresses up to 4 MiB, taken from all over the views, which takes some 20 ms.
CompressionRate sample_compression(const std::vector<ConstView>& views, int threads);

// Compressing and writing overlap: the slower of the two counts. Less than a tenth gained is not worth it.
bool is_worth_compressing(double link_bytes_per_second, const CompressionRate& rate);

class CompressionChoice {
 public:
  void set(Compression mode) { mode_ = mode; }
  // `shared`: the file goes over the link; where it stays on the node it is compressed only where that is always wanted.
  bool next(bool shared, const std::vector<ConstView>& views, int threads);
  // What writing a file over the link took, fsync included.
  void written(bool compressed, uint64_t bytes, double seconds);

 private:
  static constexpr int plain_every = 10;
  Compression mode_ = Compression::off;
  double link_ = 0;  // bytes a second; 0: not measured yet
  int since_plain_ = 0;
};

}  // namespace mm::checkpoint
