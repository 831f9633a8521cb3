// SPDX-License-Identifier: Apache-2.0
#include "agent/incidents/rates.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace mm::agent {
namespace {

constexpr double memory_seconds = 24 * 3600;   // of the mean
constexpr double enough_seconds = 600;         // before it is believed
constexpr double least_usual_an_hour = 0.1;    // a device that never had an error: one is not yet a change
constexpr double surprise = 4;                 // one window in ten thousand
constexpr uint32_t windows = 0xff;
constexpr int changed_windows = 3;

}  // namespace

double poisson_surprise(double n, double mean) {
  if (n <= 0 || n <= mean) return 0;
  if (mean <= 0) return 300;
  // P(N >= n) = sum from k = n of e^-m m^k / k!, of which the first term, times a geometric series, is an upper bound that is near for n > m.
  const double log_first = -mean + n * std::log(mean) - std::lgamma(n + 1);
  const double ratio = mean / (n + 1);
  return std::max(0.0, -(log_first - std::log1p(-ratio)) / std::log(10.0));
}

void RateWatch::add(const std::string& device, const std::string& kind, double errors, double seconds) {
  Series& s = series_[{device, kind}];
  const double usual = std::max(s.rate, least_usual_an_hour / 3600) * seconds;
  const double score = s.seconds_seen < enough_seconds && s.seconds_seen > 0 ? 0 : poisson_surprise(errors, usual);
  const bool surprising = score >= surprise;
  s.surprises = (s.surprises << 1 | (surprising ? 1u : 0u)) & windows;
  if (surprising && score >= s.change.score) s.change = {device, kind, score, errors, usual};
  if (s.surprises == 0) s.change = {};
  if (!surprising) {
    const double weight = std::max(seconds / (s.seconds_seen + seconds), 1 - std::exp(-seconds / memory_seconds));
    s.rate += weight * (errors / seconds - s.rate);
  }
  s.seconds_seen += seconds;
}

std::map<std::pair<std::string, std::string>, RateWatch::Change> RateWatch::changes() const {
  std::map<std::pair<std::string, std::string>, Change> out;
  for (const auto& [key, s] : series_)
    if (std::popcount(s.surprises) >= changed_windows) out[key] = s.change;
  return out;
}

}  // namespace mm::agent
