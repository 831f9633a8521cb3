// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/order/shuffle.h"

#include <algorithm>

namespace mm::data {
namespace {

int64_t windows_in(int64_t samples, int64_t window) {
  if (window <= 0) return 1;
  const int64_t runs_of_window = std::max<int64_t>(1, window / run_length);
  return std::max<int64_t>(1, samples / run_length / runs_of_window);
}

}  // namespace

Shuffle::Shuffle(int64_t samples, int64_t window, int64_t seed, int64_t epoch)
    : samples_(samples),
      seed_(seed),
      epoch_(epoch),
      runs_(samples / run_length),
      windows_(windows_in(samples, window)),
      rest_(samples % run_length),
      outer_(static_cast<uint64_t>(windows_ == 1 ? samples : runs_), static_cast<uint64_t>(seed), static_cast<uint64_t>(epoch)) {
  if (windows_ > 1)
    rest_window_ = static_cast<int64_t>(mix_bits(mix_bits(static_cast<uint64_t>(seed)) + static_cast<uint64_t>(epoch)) %
                                        static_cast<uint64_t>(windows_));
}

int64_t Shuffle::begin_of(int64_t window) const {
  return first_run(window) * run_length + (window > rest_window_ ? rest_ : 0);
}

int64_t Shuffle::size_of(int64_t window) const {
  return (first_run(window + 1) - first_run(window)) * run_length + (window == rest_window_ ? rest_ : 0);
}

int64_t Shuffle::window_at(int64_t position) const {
  const int64_t rest_begins = first_run(rest_window_ + 1) * run_length;  // behind the runs of its window
  if (position < rest_begins) return window_of_run(position / run_length);
  if (position < rest_begins + rest_) return rest_window_;
  return window_of_run((position - rest_) / run_length);
}

Permutation Shuffle::inside(int64_t window) const {
  const uint64_t key = mix_bits(static_cast<uint64_t>(seed_) ^ mix_bits(static_cast<uint64_t>(window) + 1));
  return Permutation(static_cast<uint64_t>(size_of(window)), key, static_cast<uint64_t>(epoch_));
}

int64_t Shuffle::operator()(int64_t position) const {
  if (windows_ == 1) return static_cast<int64_t>(outer_(static_cast<uint64_t>(position)));
  const int64_t window = window_at(position), first = first_run(window), runs = first_run(window + 1) - first;
  const auto at = static_cast<int64_t>(inside(window)(static_cast<uint64_t>(position - begin_of(window))));
  if (at >= runs * run_length) return runs_ * run_length + (at - runs * run_length);
  const auto run = static_cast<int64_t>(outer_(static_cast<uint64_t>(first + at / run_length)));
  return run * run_length + at % run_length;
}

int64_t Shuffle::position_of(int64_t sample) const {
  if (windows_ == 1) return static_cast<int64_t>(outer_.inverse(static_cast<uint64_t>(sample)));
  int64_t window = rest_window_, at = 0;
  if (sample >= runs_ * run_length) {
    at = (first_run(window + 1) - first_run(window)) * run_length + (sample - runs_ * run_length);
  } else {
    const auto place = static_cast<int64_t>(outer_.inverse(static_cast<uint64_t>(sample / run_length)));
    window = window_of_run(place);
    at = (place - first_run(window)) * run_length + sample % run_length;
  }
  return begin_of(window) + static_cast<int64_t>(inside(window).inverse(static_cast<uint64_t>(at)));
}

}  // namespace mm::data
