// SPDX-License-Identifier: Apache-2.0
// Which sample comes when: a pure function of (sources, weights, seed, position), in constant time for any position.
//
// A source is a range of the data set's samples. Each is walked through again and again, in the order of the data set, or
// shuffled anew each time (Shuffle). Without weights there is one source. With weights, positions are dealt to the sources in
// rounds of `round_length`: in every round each source has its share of the positions, exact to a thousandth of the whole,
// spread evenly, the same in each round. All that a resumed run needs is the position.
#pragma once

#include <cstdint>
#include <vector>

namespace mm::data {

struct Source {
  int64_t first = 0, samples = 0;  // in the data set
  double weight = 1;
};

inline constexpr int round_length = 1000;

class Order {
 public:
  // `window` as Shuffle's. Throws a usage Error where a weight is not positive, or below a thousandth of their sum.
  Order(std::vector<Source> sources, bool shuffle, int64_t seed, int64_t window);
  int64_t samples() const { return samples_; }    // of all sources
  int64_t operator()(int64_t position) const;     // the sample at a position from 0 on, over all epochs
  // The n-th sample that may stand in for one that cannot be used: the n-th after it in its source, around its end. A pure
  // function of the sample, so that ranks and restarts agree on it without a word.
  int64_t replacement(int64_t sample, int64_t n) const;
  // The first position from `from` on that has the sample; for caches that drop what is needed last.
  int64_t next_use(int64_t sample, int64_t from) const;

 private:
  struct Turn {
    int source = 0;
    int place = 0;  // the how-manieth turn of that source in the round
  };
  int source_of(int64_t sample) const;
  int64_t shuffle_seed(int source) const;

  std::vector<Source> sources_;
  std::vector<Turn> round_;              // one turn where there is one source
  std::vector<std::vector<int>> turns_;  // of each source: its turns in the round
  bool shuffle_;
  int64_t seed_, window_, samples_ = 0;
};

}  // namespace mm::data
