// SPDX-License-Identifier: Apache-2.0
// What one stage's rank has to do with one micro-batch: the ground that operations, memory and messages are counted on.
#pragma once

#include "common/plan/flops.h"
#include "common/plan/parameters.h"
#include "common/plan/plan.h"

namespace mm::plan {

struct Load {
  int stage = 0;
  bool first = false, last = false;  // stages of the decoder: begins with the embedding, ends with the head
  bool tower = false;                // runs the encoder
  int64_t layers = 0;                // of the decoder, the last one of the model included
  int64_t micro_batches = 1;         // of a step
  // Of a micro-batch of mean size, for a rank of a context-parallel group: positions, labels; and pictures, dealt out whole.
  double rows = 0, labels = 0, pictures = 0;
  double length = 0, labels_of_sample = 0, samples = 0;  // of whole sequences
  double share = 1;  // of the largest micro-batch to the mean one
};
Load load_of(const Model& model, const Batch& batch, const Parallelism& parallelism, int stage);

// Operations of the rank with the most in one micro-batch, without recomputation.
Work stage_work(const Model& model, const Parallelism& parallelism, const Load& load);
// Of these, the layers that recomputation does a second time.
double recomputed_work(const Model& model, const Parallelism& parallelism, const Load& load);

// Elements that are kept from forward to backward of one micro-batch.
double saved_elements(const Model& model, const Parallelism& parallelism, const Load& load);
// Of a rank that holds `runs`, with the activations of one pass of one chunk.
Memory memory_of(const Model& model, const Parallelism& parallelism, const Numbers& numbers, const Load& load, const std::vector<Run>& runs);
// Most forward passes of a stage's chunks whose backward has not ended.
int passes_in_flight(const Parallelism& parallelism, int64_t micro_batches, int stage);

// Bytes and calls of a step; seconds as the links of the machine have it.
std::vector<Volume> volumes_of(const Model& model, const Parallelism& parallelism, const Numbers& numbers, const Machine& machine,
                               const Load& load, const std::vector<Run>& runs);

}  // namespace mm::plan
