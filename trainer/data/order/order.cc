// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/order/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/error.h"
#include "trainer/data/order/shuffle.h"

namespace mm::data {
namespace {

// How many of a round's turns each weight has: rounded down, and what is left over to the largest remainders.
std::vector<int> turns_of_weights(const std::vector<Source>& sources) {
  if (sources.size() == 1) return {1};
  double sum = 0;
  for (const Source& s : sources) {
    if (!(s.weight > 0) || !std::isfinite(s.weight)) throw usage_error(fmt::format("data: mix: a weight of {}", s.weight));
    sum += s.weight;
  }
  std::vector<int> turns;
  std::vector<std::pair<double, size_t>> remainders;
  for (size_t i = 0; i < sources.size(); ++i) {
    const double share = sources[i].weight / sum * round_length;
    turns.push_back(static_cast<int>(share + 1e-9));
    remainders.push_back({turns.back() - share, i});
    if (share < 1)
      throw usage_error(fmt::format("data: mix: a weight of {} is below a thousandth of the sum {}", sources[i].weight, sum));
  }
  std::sort(remainders.begin(), remainders.end());
  const int left = round_length - std::accumulate(turns.begin(), turns.end(), 0);
  for (int i = 0; i < left; ++i) ++turns[remainders[static_cast<size_t>(i)].second];
  return turns;
}

}  // namespace

Order::Order(std::vector<Source> sources, bool shuffle, int64_t seed, int64_t window)
    : sources_(std::move(sources)), turns_(sources_.size()), shuffle_(shuffle), seed_(seed), window_(window) {
  for (const Source& s : sources_) samples_ += s.samples;
  // The k-th of n turns stands at (k + 1/2) / n of the round.
  const std::vector<int> turns = turns_of_weights(sources_);
  for (size_t s = 0; s < turns.size(); ++s)
    for (int k = 0; k < turns[s]; ++k) round_.push_back({static_cast<int>(s), k});
  std::stable_sort(round_.begin(), round_.end(), [&](const Turn& a, const Turn& b) {
    return int64_t{2 * a.place + 1} * turns[static_cast<size_t>(b.source)] <
           int64_t{2 * b.place + 1} * turns[static_cast<size_t>(a.source)];
  });
  for (size_t i = 0; i < round_.size(); ++i) turns_[static_cast<size_t>(round_[i].source)].push_back(static_cast<int>(i));
}

int64_t Order::shuffle_seed(int source) const {
  if (source == 0) return seed_;
  return static_cast<int64_t>(mix_bits(static_cast<uint64_t>(seed_) ^ mix_bits(static_cast<uint64_t>(source))));
}

int64_t Order::operator()(int64_t position) const {
  const auto length = static_cast<int64_t>(round_.size());
  const Turn& turn = round_[static_cast<size_t>(position % length)];
  const Source& source = sources_[static_cast<size_t>(turn.source)];
  const auto share = static_cast<int64_t>(turns_[static_cast<size_t>(turn.source)].size());
  const int64_t k = position / length * share + turn.place, epoch = k / source.samples, at = k % source.samples;
  return source.first + (shuffle_ ? Shuffle(source.samples, window_, shuffle_seed(turn.source), epoch)(at) : at);
}

int Order::source_of(int64_t sample) const {
  const auto after = std::upper_bound(sources_.begin(), sources_.end(), sample,
                                      [](int64_t value, const Source& s) { return value < s.first; });
  return static_cast<int>(after - sources_.begin()) - 1;
}

int64_t Order::replacement(int64_t sample, int64_t n) const {
  const Source& source = sources_[static_cast<size_t>(source_of(sample))];
  return source.first + (sample - source.first + n) % source.samples;
}

int64_t Order::next_use(int64_t sample, int64_t from) const {
  const int number = source_of(sample);
  const Source& source = sources_[static_cast<size_t>(number)];
  const std::vector<int>& turns = turns_[static_cast<size_t>(number)];
  const auto length = static_cast<int64_t>(round_.size()), share = static_cast<int64_t>(turns.size());
  const auto before = std::lower_bound(turns.begin(), turns.end(), static_cast<int>(from % length)) - turns.begin();
  const int64_t k_from = from / length * share + before;  // of the source's own turns
  for (int64_t epoch = k_from / source.samples;; ++epoch) {
    int64_t at = sample - source.first;
    if (shuffle_) at = Shuffle(source.samples, window_, shuffle_seed(number), epoch).position_of(at);
    const int64_t k = epoch * source.samples + at;
    if (k >= k_from) return k / share * length + turns[static_cast<size_t>(k % share)];
  }
}

}  // namespace mm::data
