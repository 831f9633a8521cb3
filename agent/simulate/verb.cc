// SPDX-License-Identifier: Apache-2.0
#include "agent/simulate/verb.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "agent/simulate/report.h"
#include "common/error.h"

namespace mm::simulate {
namespace {

constexpr int most_gpus = 1 << 22;

struct Options {
  std::vector<int> gpus = {1024, 16384, 131072};
  std::string rate = "llama3", plot;
  double mtbf_hours = 0, spares = 0.01, days = 54;
  int seeds = 5;
  bool json = false;
  Costs costs;
};

std::vector<Row> rows_of(const Options& o, int gpus) {
  Machine machine;
  machine.nodes = std::max(1, gpus / gpus_per_node);
  machine.spares = std::max(1, static_cast<int>(o.spares * machine.nodes + 0.5));
  machine.node_mtbf = o.mtbf_hours > 0 ? o.mtbf_hours * 3600 * machine.nodes : 86400 / rate_named(o.rate).per_node_day;
  std::vector<Row> rows;
  for (const Way way : {Way::requeue, Way::scripted, Way::ours}) {
    Row row{gpus, machine, way, {}};
    for (int seed = 1; seed <= o.seeds; ++seed)
      row.outcomes.push_back(simulate(machine, o.costs, way, o.days, static_cast<uint64_t>(seed)));
    rows.push_back(std::move(row));
  }
  return rows;
}

int run(const Options& o) {
  const std::string failures =
      o.mtbf_hours > 0 ? fmt::format("one in {:g} h of the whole job, at every size", o.mtbf_hours) : rate_named(o.rate).source;
  std::vector<Row> rows;
  for (const int gpus : o.gpus)
    for (Row& row : rows_of(o, gpus)) rows.push_back(std::move(row));
  if (o.json)
    std::fputs(json_lines(rows, o.days).c_str(), stdout);
  else
    fmt::print("{}\n{}", assumptions(failures, o.costs, o.days, static_cast<size_t>(o.seeds)), table(rows, o.days));
  if (o.plot.empty()) return exit_status::ok;

  std::vector<Row> line;
  const auto [least, most] = std::ranges::minmax(o.gpus);
  for (int64_t gpus = least; gpus < most; gpus *= 2)
    for (Row& row : rows_of(o, static_cast<int>(gpus))) line.push_back(std::move(row));
  for (Row& row : rows_of(o, most)) line.push_back(std::move(row));
  std::ofstream file(o.plot);
  file << plot(line, "Part of the time that is training, " + (o.mtbf_hours > 0 ? failures : "failures as " + o.rate));
  if (!file.flush()) throw system_error("mm-run simulate: write " + o.plot, errno, exit_status::usage);
  return exit_status::ok;
}

}  // namespace

std::function<int()> add_verb(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("simulate", "how much of its time a job of so many GPUs trains, from published failure rates");
  const auto seconds = [&](const char* name, double& value, const char* what) {
    verb->add_option(name, value, fmt::format("{} (default: {:g} s)", what, value))->check(CLI::Range(0.0, 1e6));
  };
  verb->add_option("--gpus", o->gpus, "Sizes of the job (default: 1024 16384 131072)")
      ->check(CLI::Range(gpus_per_node, most_gpus));
  verb->add_option("--rate", o->rate, "Failures as in rsc1, rsc2 or llama3 (default: llama3)");
  verb->add_option("--mtbf-hours", o->mtbf_hours, "Hours between failures of the whole job, in place of a rate")
      ->check(CLI::Range(1e-3, 1e6));
  verb->add_option("--spare-share", o->spares, "Spare nodes, as a part of those that train (default: 0.01, at least one)")
      ->check(CLI::Range(0.0, 1.0));
  verb->add_option("--days", o->days, "Length of the run (default: 54)")->check(CLI::Range(0.1, 3650.0));
  verb->add_option("--seeds", o->seeds, "Runs of each size (default: 5)")->check(CLI::Range(1, 1000));
  seconds("--stall", o->costs.stall, "What an asynchronous save stops training for");
  seconds("--flush", o->costs.flush, "Until an asynchronous save counts");
  seconds("--blocking-save", o->costs.blocking_save, "What a save stops training for where only Slurm's requeue helps");
  seconds("--launch", o->costs.launch, "srun and the forming of groups");
  seconds("--load", o->costs.load, "Loading a checkpoint");
  seconds("--first-step", o->costs.first_step, "The first step after a launch");
  seconds("--hang", o->costs.hang, "Until a hang is noticed");
  verb->add_option("--plot", o->plot, "Write an SVG with the part of the time that is training, by size");
  verb->add_flag("--json", o->json, "A JSON object for each size and way");
  return [verb, o]() -> int { return verb->parsed() ? run(*o) : -1; };
}

}  // namespace mm::simulate
