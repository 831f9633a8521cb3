// SPDX-License-Identifier: Apache-2.0
#include "agent/probes/temperature_drift.h"

#include <cmath>

#include "agent/incidents/robust.h"

namespace mm::agent {
namespace {

constexpr double usual_seconds = 24 * 3600, recent_seconds = 300;  // memory of the means
constexpr double learning_seconds = 1800;                          // before the usual is believed
constexpr double too_much = 8;                                     // degrees
constexpr double similar_power = 0.25;
constexpr size_t least_peers = 2;

void follow(double& mean, double value, double seconds, double memory, double seen) {
  mean += std::max(seconds / (seen + seconds), 1 - std::exp(-seconds / memory)) * (value - mean);
}

}  // namespace

std::map<std::string, TemperatureDrift::Drift> TemperatureDrift::look(const GpuStates& gpus, double seconds) {
  std::map<std::string, Drift> out;
  for (const auto& [device, gpu] : gpus) {
    if (!gpu.temperature) continue;
    std::vector<double> temperatures, watts;
    for (const auto& [other, peer] : gpus) {
      if (other == device || !peer.temperature || peer.watts.has_value() != gpu.watts.has_value()) continue;
      temperatures.push_back(*peer.temperature);
      watts.push_back(peer.watts.value_or(0));
    }
    if (temperatures.size() < least_peers) continue;
    const double power = median(watts);
    if (gpu.watts && std::abs(*gpu.watts - power) > similar_power * power) continue;
    const double distance = *gpu.temperature - median(temperatures);
    Series& s = series_[device];
    follow(s.recent, distance, seconds, recent_seconds, s.seen);
    const double drift = s.recent - s.usual;
    const bool above = s.seen >= learning_seconds && drift >= too_much;
    s.above = above ? s.above + seconds : 0;
    if (!above) follow(s.usual, distance, seconds, usual_seconds, s.seen);
    if (s.above >= recent_seconds) out[device] = {drift, s.usual};
    s.seen += seconds;
  }
  return out;
}

}  // namespace mm::agent
