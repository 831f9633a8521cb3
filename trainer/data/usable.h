// SPDX-License-Identifier: Apache-2.0
// Samples that can be used, in place of those that cannot: what is wrong is counted and named once, and the replacement is a
// pure function of the sample (Order::replacement), so that ranks agree on it without a word. A data set of which too much cannot
// be used is a data Error; an Error of a read passes through, it says nothing about the sample.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "trainer/data/dataset.h"
#include "trainer/data/make_sample.h"
#include "trainer/data/order/order.h"
#include "trainer/data/quarantine.h"
#include "trainer/data/sample.h"

namespace mm::data {

struct BadSamples {
  double max_percent = 10;  // of the data set, once they are more than 100
  std::string list = {};    // see Quarantine
};

class UsableSamples {
 public:
  // Of a data set and an order that outlive it.
  UsableSamples(const Dataset& dataset, const Order& order, SequenceRule rule, BadSamples bad)
      : dataset_(dataset), order_(order), rule_(rule), max_percent_(bad.max_percent), quarantine_(std::move(bad.list)) {}
  // Any thread.
  Sample make(int64_t sample, const SampleTurn& turn);  // it, or the one that stands in for it
  // Nothing where it cannot be used.
  std::optional<Sample> try_make(int64_t sample, const std::optional<SampleTurn>& turn = {});
  std::string place(int64_t sample) const;         // for messages: shard and key
  int64_t rejected() const;
  int64_t repaired() const;

 private:
  void reject(int64_t sample, const std::string& reason);

  const Dataset& dataset_;
  const Order& order_;
  const SequenceRule rule_;
  const double max_percent_;
  Quarantine quarantine_;
  mutable std::mutex mutex_;
  std::unordered_set<int64_t> rejected_, repaired_;
  std::string last_reason_;
};

}  // namespace mm::data
