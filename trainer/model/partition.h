// SPDX-License-Identifier: Apache-2.0
// How a decoder's layers are dealt out to pipeline stages: pp * virtual_chunks consecutive pieces; rank p holds pieces p, p + pp,
// p + 2 pp, ... They are as even as it goes, or where stages are given their layers, each stage's own are.
#pragma once

#include <vector>

#include "trainer/comm/comm.h"

namespace mm::model {

struct Chunk {
  int first_layer = 0, end_layer = 0;
  bool embeds = false;  // begins with the embedding (and the vision tower's features)
  bool heads = false;   // ends with the norm, the head and the loss
};

// `of_stages`: layers of each stage; empty: even.
inline std::vector<Chunk> chunks_of(int layers, int pp_rank, int pp, int virtual_chunks, const std::vector<int>& of_stages = {}) {
  std::vector<Chunk> chunks;
  const int pieces = pp * virtual_chunks;
  int begin = 0;
  for (int piece = 0; piece < pieces; ++piece) {
    const comm::Range range = of_stages.empty()
                                  ? comm::part_of(layers, piece, pieces)
                                  : comm::part_of(of_stages[static_cast<size_t>(piece % pp)], piece / pp, virtual_chunks);
    const int end = begin + static_cast<int>(range.end - range.begin);
    if (piece % pp == pp_rank) chunks.push_back({begin, end, piece == 0, piece == pieces - 1});
    begin = end;
  }
  return chunks;
}

}  // namespace mm::model
