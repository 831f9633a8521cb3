// SPDX-License-Identifier: Apache-2.0
// Foretells failure from errors that were corrected. Each device and kind of error has a usual rate of its own, an exponentially weighted mean that
// is learnt slowly; a window with more errors than that rate explains is a change.
//
// The test: were the counts Poisson with the usual rate, how probable is a window with at least this many? The score is -log10 of it. A
// lone burst is no change: three windows within the last eight must say so. While a change lasts the usual rate is not learnt from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace mm::agent {

// -log10 of P(N >= n) for a Poisson distribution of mean `mean`; 0 for n = 0. Exact to some digits, for any size.
double poisson_surprise(double n, double mean);

class RateWatch {
 public:
  struct Change {
    std::string device, kind;
    double score = 0;  // of the worst of the windows
    double count = 0, usual = 0;  // a window
  };
  // `errors` within a window of `seconds`.
  void add(const std::string& device, const std::string& kind, double errors, double seconds);
  // Devices whose rate has changed.
  std::map<std::pair<std::string, std::string>, Change> changes() const;

 private:
  struct Series {
    double rate = 0, seconds_seen = 0;  // usual errors a second
    uint32_t surprises = 0;             // of the last windows, newest in the lowest bit
    Change change;
  };
  std::map<std::pair<std::string, std::string>, Series> series_;
};

}  // namespace mm::agent
