// SPDX-License-Identifier: Apache-2.0
// interval: how often to save, and why.
#include "checkpoint/interval.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/tool/verbs.h"

namespace mm::checkpoint::tool {
namespace {

using nlohmann::json;

std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Measured {
  std::optional<double> step, stall, flush;
};

// Medians of what the run's last steps and saves took.
Measured measure(const std::string& run) {
  constexpr size_t last_steps = 1000;
  std::vector<double> step, stall, flush;
  std::ifstream metrics(run + "/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) {
    const json j = json::parse(line, nullptr, false);
    if (!j.is_object()) continue;
    const auto number = [&](const char* key) { return j.contains(key) && j[key].is_number() ? j[key].get<double>() : 0.0; };
    if (number("step_s") > 0) step.push_back(number("step_s"));
    if (number("save_s") > 0) stall.push_back(number("save_s"));
  }
  for (const StepInfo& s : RunFolder(run, false).list()) {
    try {
      const double seconds = read_manifest(s.path, s.step).seconds;
      if (seconds > 0) flush.push_back(seconds);
    } catch (const BadStep&) {
    }
  }
  if (step.size() > last_steps) step.erase(step.begin(), step.end() - last_steps);
  return {median(step), median(stall), median(flush)};
}

std::string text_of_seconds(double s) {
  if (s < 120) return fmt::format("{:.3g} s", s);
  if (s < 7200) return fmt::format("{:.3g} min", s / 60);
  if (s < 2 * 86400) return fmt::format("{:.3g} h", s / 3600);
  return fmt::format("{:.3g} days", s / 86400);
}

}  // namespace

int interval(const IntervalOptions& options, bool as_json) {
  const Measured measured = options.run.empty() ? Measured{} : measure(options.run);
  const auto given = [](const std::optional<double>& a, const std::optional<double>& b) { return a ? a : b; };
  const std::optional<double> flush = given(options.flush, measured.flush);
  const std::optional<double> stall = given(given(options.stall, measured.stall), flush);
  const std::optional<double> step = given(options.step, measured.step);
  if (!stall) throw usage_error("interval: no save was measured: give --stall, or a RUN that has saved");
  const SaveCosts costs{*stall, flush.value_or(0), options.restart.value_or(60),
                        job_mtbf_seconds(options.node_mtbf_hours, options.nodes)};
  const Interval best = best_interval(costs);
  const double steps = step && *step > 0 ? std::max(1.0, std::round(best.seconds / *step)) : 0;
  if (as_json) {
    json j = {{"seconds", best.seconds}, {"young", best.young},      {"lost", best.lost}, {"stall", costs.stall},
              {"flush", costs.flush},    {"restart", costs.restart}, {"mtbf", costs.mtbf}};
    if (steps > 0) j.update({{"steps", static_cast<int64_t>(steps)}, {"step", *step}});
    fmt::print("{}\n", j.dump());
    return exit_status::ok;
  }
  fmt::print("A save stops training for {} and is committed after {}.\n", text_of_seconds(costs.stall),
             text_of_seconds(costs.flush));
  fmt::print("{} nodes that each fail every {} make a job that fails every {}.\n", options.nodes,
             text_of_seconds(options.node_mtbf_hours * 3600), text_of_seconds(costs.mtbf));
  fmt::print("Young: sqrt(2 x {} x {}) = {}. With Daly's terms, and no shorter than a flush:\n", text_of_seconds(costs.stall),
             text_of_seconds(costs.mtbf), text_of_seconds(best.young));
  if (steps > 0)
    fmt::print("save every {}, which is every {:.0f} steps of {}.\n", text_of_seconds(best.seconds), steps,
               text_of_seconds(*step));
  else
    fmt::print("save every {}.\n", text_of_seconds(best.seconds));
  fmt::print("Then {:.2g} % of the time is lost to saves, to work done again and to restarts of {}.\n", 100 * best.lost,
             text_of_seconds(costs.restart));
  return exit_status::ok;
}

}  // namespace mm::checkpoint::tool
