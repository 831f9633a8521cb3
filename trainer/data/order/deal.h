// SPDX-License-Identifier: Apache-2.0
// A global batch dealt out to the ranks that read, and on each to its micro-batches, so that all take about as long: a step waits for
// the slowest rank, and a pipeline for the slowest micro-batch. Samples differ in work by their pictures and the length of their
// text. The loss is divided by the tokens of the whole global batch, so it does not matter who has which sample, nor how many.
//
// Longest first: each sample, the heaviest before the others, goes to the rank that has the least work so far, and then, of that rank, to
// the micro-batch that has the least. So the heaviest rank has at most 4/3 of the least possible (Graham, "Bounds on multiprocessing
// timing anomalies", 1969), but for the lightest samples, which go where a rank would else have fewer of them than micro-batches. The batch
// stays in order where the heaviest rank or micro-batch would have more than so.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mm::data {

// Of each part, the positions in the global batch that it has, ascending.
using Deal = std::vector<std::vector<int32_t>>;

// Part r * pieces + k is micro-batch k of rank r. In order: the r-th contiguous share of the batch, cut into pieces whose lengths
// differ by at most one. `samples` divides among the ranks; no rank has fewer samples than pieces.
Deal deal_in_order(int64_t samples, int ranks, int pieces);
// A pure function of the work of each sample (positive). Every part has a sample.
Deal deal_by_work(std::span<const double> work, int ranks, int pieces);

// The work of the heaviest rank, over the mean of all.
double imbalance(const Deal& deal, std::span<const double> work, int ranks);

}  // namespace mm::data
