// SPDX-License-Identifier: Apache-2.0
// The sample stream: which sample comes when is a pure function of (shards, seed, position), whatever the number of ranks or
// threads.
//
// Position p (from 0, over all epochs) is a sample as order/order.h says: of the epochs one after another, shuffled or not, or of
// several sources by weight. Global batch b is positions [b B, (b + 1) B), of which each rank takes as
// many in order, or what it is dealt out (shares.h). A sample that cannot be used (a picture that does not decode, no caption, too long for its images) is replaced by the next
// usable one of its source in dataset order, counted and named once: a pure function of the sample, so that ranks stay in step.
// Reading and decoding run on their own threads, ahead of the training loop, in bounded memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trainer/data/cache/block_cache.h"
#include "trainer/data/order/shuffle.h"
#include "trainer/data/sample.h"
#include "trainer/data/usable.h"
#include "trainer/data/shares.h"
#include "trainer/data/stream_pipeline.h"

namespace mm::data {

struct StreamOptions {
  std::vector<std::string> shards;    // glob patterns
  std::map<std::string, double> mix;  // or patterns with weights
  std::string index, version;         // see DatasetOptions
  bool shuffle = true;
  int64_t shuffle_window = default_shuffle_window;
  int64_t seed = 1;
  BadSamples bad;
  int64_t global_batch = 1;
  int rank = 0, ranks = 1;
  int threads = 0;  // decoding threads; 0: one or two, by the CPUs that the process may use
  SequenceRule rule;
  int node_ranks = 1;  // of `ranks`, how many share this node, its memory and its cache; they follow each other
  int64_t budget = 0;  // bytes of what is ahead; 0: by what memory is available
  CacheOptions cache;
  DealOptions deal;
};

struct StreamCounters {
  int64_t rejected = 0;      // distinct samples that could not be used so far, on this rank
  int64_t invalid_utf8 = 0;  // captions repaired
  double wait_seconds = 0;   // time that next() has waited
  StageCounters stages;
  CacheCounters cache;
};

class Stream {
 public:
  // Opens and indexes the shards. Throws a data Error (exit 3) that names the shard: none that matches, cut short, no sample.
  explicit Stream(StreamOptions options);
  ~Stream();
  int64_t samples() const;  // N
  // A short text that identifies what is read (names, sizes, number of samples), kept in checkpoints to notice a changed data
  // set.
  std::string fingerprint() const;
  // This rank's part of global batch `batch`, micro-batch after micro-batch. Consecutive calls are prefetched; any jump is allowed.
  std::vector<Sample> next(int64_t batch);
  // How many of these samples each micro-batch has.
  std::vector<int64_t> pieces(int64_t batch);
  Shares::Imbalance imbalance(int64_t first, int64_t batches) const;
  // Evaluation: sample i of the data set in dataset order, for i < samples(); usable == false where it was rejected.
  struct Item {
    Sample sample;
    bool usable = true;
  };
  std::vector<Item> at(int64_t first, int64_t count);
  StreamCounters counters() const;
  // Where the node is short: at each level, from 1 on, half of the threads and of the work ahead that there were before. The samples stay the same.
  void shrink(int level);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mm::data
