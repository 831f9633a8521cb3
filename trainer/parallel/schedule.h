// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules as data: for every stage the order of its forward and backward passes, which a loop then carries out, and
// a simulator that shows what such an order does.
//
// The model is cut into pp x virtual chunks, one after the other; stage r holds chunks r, r + pp, r + 2 pp, ... and calls them
// 0, 1, 2, ... A pass needs the one before it in the model (forward: the previous chunk; backward: the next chunk, and at the
// end the own forward). Sends never block. Every list is a permutation of all passes of the stage; any numbers >= 1 are
// allowed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mm::parallel {

struct Pass {
  enum class Direction : uint8_t { forward, backward };
  Direction direction = Direction::forward;
  int chunk = 0;
  int micro_batch = 0;
  bool operator==(const Pass&) const = default;
};
using Schedule = std::vector<std::vector<Pass>>;  // of every stage

// gpipe: all forward, then all backward. one_f_one_b: stage r does at most pp - r forward passes ahead of the backward ones
// (Narayanan et al., arXiv 1806.03377). interleaved: the same over several chunks a stage (arXiv 2104.04473), in groups of pp
// micro-batches, of which the last may be smaller.
enum class ScheduleKind : uint8_t { gpipe, one_f_one_b, interleaved };

// one_f_one_b needs virtual_stages == 1: throws a usage Error else.
Schedule generate(ScheduleKind kind, int pp, int virtual_stages, int micro_batches);

// The order of an encoder on ranks of its own, for the chunk that begins the model: it is one micro-batch ahead, so that features
// are made while the first stage works on those before them. Each is done for every replica of the decoder in turn; `send` and
// `take` talk to the first stage, and come in the order of its passes.
struct EncoderAction {
  enum class What : uint8_t { make, send, take, backward };  // features; to the first stage; their gradients from it
  What what = What::make;
  int micro_batch = 0;
  int slot = 0;  // where what backward needs is kept from make to backward
};
std::vector<EncoderAction> encoder_actions(const std::vector<Pass>& first_stage);

struct Simulation {
  std::string deadlock;             // empty, or which stages wait for what
  double time = 0;                  // of the whole step
  double bubble = 0;                // share of all stages' time that is idle
  std::vector<int> most_in_flight;  // of every stage: passes forward whose backward has not ended, over all chunks
};
// With passes that take so long, for all chunks alike, and messages that take no time.
Simulation simulate(const Schedule& schedule, double forward_time = 1, double backward_time = 2);

}  // namespace mm::parallel
