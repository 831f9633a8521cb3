// SPDX-License-Identifier: Apache-2.0
// How a decoder's layers are dealt out to pipeline stages: pp * virtual_chunks consecutive pieces, as even as it goes; rank p
// holds pieces p, p + pp, p + 2 pp, ...
#pragma once

#include <vector>

#include "trainer/comm/comm.h"

namespace mm::model {

struct Chunk {
  int first_layer = 0, end_layer = 0;
  bool embeds = false;  // begins with the embedding (and the vision tower's features)
  bool heads = false;   // ends with the norm, the head and the loss
};

inline std::vector<Chunk> chunks_of(int layers, int pp_rank, int pp, int virtual_chunks) {
  std::vector<Chunk> chunks;
  const int pieces = pp * virtual_chunks;
  for (int piece = pp_rank; piece < pieces; piece += pp) {
    const comm::Range range = comm::part_of(layers, piece, pieces);
    chunks.push_back({static_cast<int>(range.begin), static_cast<int>(range.end), piece == 0, piece == pieces - 1});
  }
  return chunks;
}

}  // namespace mm::model
