// SPDX-License-Identifier: Apache-2.0
// What the loader of a run did in its last steps, from RUN/metrics.jsonl: where samples wait is where more of what follows helps.
#include <fmt/format.h>

#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "trainer/data/verbs/verbs.h"

namespace mm::data {
namespace {

constexpr size_t most_steps = 100;

struct Line {
  const char* key;
  const char* about;
};
constexpr Line means[] = {
    {"step_s", "seconds of a step"},
    {"data_wait_s", "  of these the training waited for its batch"},
    {"data_read_wait_s", "  the thread that reads had nothing to do, or no memory to do it in"},
    {"data_decode_wait_s", "  the threads that decode had nothing to do, together"},
    {"data_read_queue", "samples that are being read"},
    {"data_decode_queue", "samples that are read and wait to be decoded"},
    {"data_batch_queue", "samples that are ready"},
    {"data_bytes", "bytes of all these"},
    {"data_budget", "  of at most"},
};
constexpr Line totals[] = {
    {"cache_memory_hits", "reads that found their block in memory"},
    {"cache_disk_hits", "reads that found their block on the node's disk"},
    {"cache_misses", "reads that found it nowhere"},
};

}  // namespace

int print_run_stats(const std::string& run, bool json) {
  const std::string path = run + "/metrics.jsonl";
  std::ifstream file(path);
  if (!file) throw usage_error("stats: " + path + ": cannot be read");
  std::deque<nlohmann::json> steps;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json step = nlohmann::json::parse(line, nullptr, false);
    if (!step.is_object() || !step.contains("data_budget")) continue;
    steps.push_back(step);
    if (steps.size() > most_steps) steps.pop_front();
  }
  if (steps.empty()) throw data_error("stats: " + path + ": no step says what its loader did");
  nlohmann::ordered_json out = {{"run", run}, {"steps", steps.size()}};
  const auto say = [&](const Line& line, double value) {
    out[line.key] = value;
    if (!json) fmt::print("{:<70} {:.6g}\n", line.about, value);
  };
  if (!json) fmt::print("means of the last {} steps\n", steps.size());
  for (const Line& line : means) {
    double sum = 0;
    for (const nlohmann::json& step : steps)
      if (const auto at = step.find(line.key); at != step.end() && at->is_number()) sum += at->get<double>();
    say(line, sum / static_cast<double>(steps.size()));
  }
  for (const Line& line : totals)
    if (const auto at = steps.back().find(line.key); at != steps.back().end() && at->is_number()) say(line, at->get<double>());
  if (json) fmt::print("{}\n", out.dump());
  return exit_status::ok;
}

}  // namespace mm::data
