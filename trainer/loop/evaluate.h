// SPDX-License-Identifier: Apache-2.0
// `mm-trainer eval RUN`: the loss over a data set, each sample once, with its own picture and, on request, with another's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mm::loop {

struct EvalOptions {
  std::string run;
  std::vector<std::string> shards;  // glob patterns; empty: the data that the run trains on
  bool derange = false;             // also with the pictures moved round among the samples, none at its own place
  int64_t batch = 16;
  int threads = 0;
  bool json = false;
};

int evaluate(const EvalOptions& options);

// A cyclic shift of 0 .. n - 1 by a distance that depends on n and the seed: element i goes to result[i] != i. n is at least 2.
std::vector<int64_t> derangement(int64_t n, uint64_t seed);

}  // namespace mm::loop
