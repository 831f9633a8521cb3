// SPDX-License-Identifier: Apache-2.0
// A micro-batch as the model takes it: the sequences of some samples one after another, without padding. Every rank of a
// replica holds the same one, so that each knows the size of every message; pixels lie only where the tower runs.
//
// Only what a label sees is packed: a sequence ends after its last label (never inside an image), one without a label is left
// out, and so are its pictures.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/data/sample.h"
#include "trainer/model/config.h"

namespace mm::model {

struct MicroBatch {
  std::vector<int64_t> starts{0};   // sequence s is the rows [starts[s], starts[s + 1])
  std::vector<int32_t> ids;         // a row each; -1 where features of an image stand
  std::vector<int64_t> image_rows;  // where these are, ascending: feature i goes to row image_rows[i]
  std::vector<int64_t> label_rows;  // rows that have a label, ascending, and it
  std::vector<int32_t> labels;
  int64_t images = 0;
  int64_t first_picture = 0;    // pixels are those of the images [first_picture, first_picture + pictures())
  int64_t picture_bytes = 0;    // of one image: edge * edge * 3
  std::vector<uint8_t> pixels;  // [pictures, edge, edge, 3]

  int64_t rows() const { return static_cast<int64_t>(ids.size()); }
  int64_t label_count() const { return static_cast<int64_t>(labels.size()); }
  void clear();  // of everything but the memory
  int64_t pictures() const { return picture_bytes == 0 ? 0 : static_cast<int64_t>(pixels.size()) / picture_bytes; }
};

// Into `out`, whose memory is used again. Throws a data Error that names a sample which does not fit the model.
void pack(const VlmConfig& config, std::span<const data::Sample> samples, MicroBatch& out);

}  // namespace mm::model
