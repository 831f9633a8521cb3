// SPDX-License-Identifier: Apache-2.0
// Which positions of a global batch a rank takes, and how it cuts them into micro-batches: a pure function of the index, that all
// ranks compute alike. In order, or dealt out by work (order/deal.h) as the index lets it be estimated before anything is read: by the
// number of pictures and the length of the text.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "trainer/data/dataset.h"
#include "trainer/data/order/deal.h"
#include "trainer/data/order/order.h"
#include "trainer/data/sample.h"

namespace mm::data {

struct DealOptions {
  int pieces = 1;  // micro-batches of a rank
  // Of a sequence with so many pictures and positions, pictures' included; any unit. None: in order.
  std::function<double(int64_t images, int64_t positions)> work;
  // So many ranks, which follow each other, share out what is theirs in order; it divides the ranks. 0: all of them.
  int group = 0;
};

class Shares {
 public:
  struct Place {
    int64_t global_batch = 1;
    int rank = 0, ranks = 1;
  };
  // Of a data set and an order that outlive it.
  Shares(const Dataset& dataset, const Order& order, SequenceRule rule, Place place, DealOptions options);
  // Of this rank, micro-batch after micro-batch. Any thread. Throws a data Error where an index cannot be read.
  std::vector<int64_t> positions(int64_t batch);
  // How many of them each micro-batch has.
  std::vector<int64_t> pieces(int64_t batch);
  // The work of the busiest rank over the mean, over batches [first, first + batches): in order, and as it is dealt out.
  struct Imbalance {
    double in_order = 1, dealt = 1;
  };
  Imbalance imbalance(int64_t first, int64_t batches) const;

 private:
  int group_size() const { return options_.group > 0 ? options_.group : place_.ranks; }
  double work_of(int64_t position) const;
  std::vector<double> work_of_group(int64_t batch, int group) const;
  Deal deal(const std::vector<double>& work) const;
  std::vector<std::vector<int64_t>> parts(int64_t batch);

  const Dataset& dataset_;
  const Order& order_;
  const SequenceRule rule_;
  const Place place_;
  const DealOptions options_;
  std::mutex mutex_;
  std::map<int64_t, std::vector<std::vector<int64_t>>> known_;  // the parts of the batches asked for last
};

}  // namespace mm::data
