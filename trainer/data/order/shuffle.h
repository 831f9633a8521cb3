// SPDX-License-Identifier: Apache-2.0
// The order of one data set of n samples in one epoch: a bijection of 0 ... n-1, keyed by (seed, epoch), computed in constant
// time for any position, in both directions. Nothing is stored.
//
// Runs of `run_length` neighbours are permuted as a whole; the permuted runs are cut into windows of at least `window` samples,
// and the samples of a window are permuted. So a batch draws from runs all over the data set, almost as a uniform shuffle does
// (tests hold it within 5 %), while a block of a shard is read during one window and then not until the next epoch, and a cache
// as large as a window reads every block once. Up to two windows of samples, or with window 0, the whole is one permutation.
// What is left over after the last whole run lies in a window chosen by the epoch.
#pragma once

#include <cstdint>

#include "trainer/data/order/permutation.h"

namespace mm::data {

inline constexpr int64_t run_length = 64;
inline constexpr int64_t default_shuffle_window = 262144;

class Shuffle {
 public:
  Shuffle(int64_t samples, int64_t window, int64_t seed, int64_t epoch);
  int64_t operator()(int64_t position) const;    // position < samples; the sample
  int64_t position_of(int64_t sample) const;
  int64_t windows() const { return windows_; }

 private:
  int64_t first_run(int64_t window) const { return window * runs_ / windows_; }
  int64_t begin_of(int64_t window) const;
  int64_t size_of(int64_t window) const;
  int64_t window_at(int64_t position) const;
  int64_t window_of_run(int64_t place) const { return ((place + 1) * windows_ - 1) / runs_; }
  Permutation inside(int64_t window) const;

  int64_t samples_, seed_, epoch_;
  int64_t runs_, windows_;  // whole runs; 1 window: samples are permuted at once
  int64_t rest_, rest_window_ = 0;
  Permutation outer_;  // of runs, or of all samples
};

}  // namespace mm::data
