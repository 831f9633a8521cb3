// SPDX-License-Identifier: Apache-2.0
// What a layout of a training job costs, before anything runs: memory of a rank by kind, floating-point operations, bytes and calls on the
// network, bubble, seconds of a step. Pure arithmetic in O(stages); nothing here runs, allocates a model or asks the machine.
//
// Ranks are tp x cp x dp x pp as common/layout.h numbers them; an encoder on its own ranks comes after them. Within a stage all tp, cp, dp
// ranks do the same work up to the remainder of a division, so a stage is described by its rank with the most: tp = cp = dp = 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/layout.h"
#include "common/plan/model.h"

namespace mm::plan {

// Sizes of a step's data. `images` and `labels` are means over samples; `length` counts positions of pictures, too.
struct Batch {
  int64_t samples = 64;  // global
  double images = 1;     // of a sample
  double length = 0;     // positions of a sample in the decoder (dual_tower: of its text)
  double labels = 0;     // of a sample
};

enum class Schedule { one_f_one_b, interleaved, gpipe };

struct Parallelism {
  Layout mesh;
  int encoder_tp = 0, encoder_dp = 0;  // 0: the encoder is colocated with stage 0
  int chunks = 1;                      // of a rank: virtual stages
  Schedule schedule = Schedule::one_f_one_b;
  int zero = 1;
  int64_t micro_batch = 0;  // most samples of a micro-batch; 0: the rank's whole share
  bool recompute = false;   // only a layer's input is kept
  std::vector<int> layers;  // of the decoder, of each stage; empty: as even as it goes

  int encoder_ranks() const { return encoder_tp * encoder_dp; }
  int ranks() const { return mesh.world_size() + encoder_ranks(); }
  int64_t micro_batches(const Batch& batch) const;  // of a replica in a step
};

// Bytes of an element.
struct Numbers {
  int64_t value = 4, gradient = 4, master = 0, moments = 8, activation = 4;
};
// float64 | float32 | bfloat16 (values and activations of 2 bytes; gradients, master copy and moments in float32).
Numbers numbers_of(const std::string& dtype);

struct Link {
  double latency = 0;    // seconds of a call
  double bandwidth = 1;  // bytes a second that one rank sends
};

// What one rank has. The defaults are one H100 SXM of a node of 8 with a 400 Gb/s NIC each (NVIDIA's data sheet: 989 TFLOP/s dense bf16, 80 GB,
// 3.35 TB/s, NVLink 450 GB/s each way).
struct Machine {
  double flops = 989e12;  // dense peak, operations a second
  // Of the peak, what matrix products reach where their narrowest side is wide; half of it where that side is half_width.
  double efficiency = 0.68, half_width = 350;
  double memory = 80e9;  // bytes
  double memory_bandwidth = 3.35e12;
  int ranks_of_node = 8;
  Link inside{5e-6, 400e9}, across{12e-6, 45e9};
  double reserved = 2e9;      // bytes that libraries and fragmentation take
  double data_overlap = 0.9;  // of the sums of gradients, what can hide behind the backward pass
};

// Bytes.
struct Memory {
  int64_t parameters = 0, gradients = 0, moments = 0;  // moments: with the master copy
  int64_t activations = 0;                             // kept between forward and backward, all micro-batches in flight
  int64_t buffers = 0;                                 // gathered units, gradients of activations, logits, messages
  int64_t total() const { return parameters + gradients + moments + activations + buffers; }
};

struct Flops {
  double forward = 0, backward = 0, recompute = 0;
  double total() const { return forward + backward + recompute; }
};

// The groups that talk (trainer's mesh): tensor, context, pipeline, data = cp x dp; stage = tp x cp x dp, for parameters that all tp ranks hold
// whole; tied = ranks of first and last stage; encoder = encoder ranks and stage 0.
enum class Group { tensor, context, pipeline, data, stage, tied, encoder };
const char* name(Group group);

// What one rank sends in a step: collectives as rings (a gather or a scatter of n bytes sends n (g - 1) / g), messages as they are.
struct Volume {
  Group group = Group::tensor;
  int stage = 0;    // whose ranks; pp counts the encoder's own ranks
  int size = 1;     // ranks of the group
  double bytes = 0, calls = 0;
  double seconds = 0;  // on the machine's links
};

struct StagePlan {
  int layers = 0;  // of the decoder
  Memory memory;
  int in_flight = 0;       // most micro-batches of one chunk whose activations are kept at a time, summed over chunks
  Flops flops;             // of one rank in a step
  double busy = 0;         // seconds of a step that it computes and waits for its tensor and context peers
  double slack = 0;        // seconds of a step that it waits for slower stages; the bubble is not counted
};

struct Plan {
  std::vector<StagePlan> stages;  // [pp], then one for the encoder's own ranks where there are
  std::vector<Volume> volumes;    // only groups of two or more
  int64_t parameters = 0, trained = 0;
  double model_flops = 0;  // of the whole step: forward and backward, without recomputation
  double bubble = 0;       // of the pipeline's time, that a rank of the slowest stage is idle
  double compute_seconds = 0, exposed_data_seconds = 0, optimizer_seconds = 0, step_seconds = 0;
  double mfu = 0;          // model_flops / (step_seconds * ranks * peak)

  const Memory& largest_memory() const;
};

// Empty where the layout is possible, else why not, with the numbers. Memory is not looked at.
std::string why_impossible(const Model& model, const Batch& batch, const Parallelism& parallelism);
// For a possible layout.
Plan make_plan(const Model& model, const Batch& batch, const Parallelism& parallelism, const Numbers& numbers, const Machine& machine);

// The largest memory of a stage alone: quicker than the plan.
int64_t memory_needed(const Model& model, const Batch& batch, const Parallelism& parallelism, const Numbers& numbers);

// Decoder layers of a stage. The model is cut into pp * chunks pieces; piece i runs on stage i % pp. They are as even as it goes, the first
// ones longer, or where Parallelism::layers says otherwise, each stage's own are.
int64_t layers_of_stage(int64_t layers, const Parallelism& parallelism, int stage);

}  // namespace mm::plan
