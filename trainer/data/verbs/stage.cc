// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "common/error.h"
#include "common/job.h"
#include "trainer/data/cache/job_cache.h"
#include "trainer/data/cache/stage.h"
#include "trainer/data/dataset.h"
#include "trainer/data/order/order.h"
#include "trainer/data/read/shard_reader.h"
#include "trainer/data/verbs/verbs.h"

namespace mm::data {
namespace {

struct Arguments {
  std::string job;
  std::vector<std::string> assignments;
  int64_t step = 0;
  bool json = false;
};

int run_stage(const Arguments& arguments) {
  const Job job = load_job(arguments.job, arguments.assignments);
  CacheOptions options = cache_of(job);
  if (options.folder.empty()) throw usage_error(arguments.job + ": data.cache has no folder that could be filled");
  options.memory = 0;
  options.prefetch = false;
  const Dataset dataset(DatasetOptions{job.data.shards, job.data.mix, job.data.index, job.data.version});
  const Order order(dataset.sources(), job.data.shuffle, job.run.seed, job.data.shuffle_window);
  const auto use = std::make_shared<const BlockUse>(dataset, order, NodeShare{job.data.global_batch, 1, 0, 1});
  BlockCache cache(use, options, dataset.source());
  const bool shows = ::isatty(STDERR_FILENO) == 1 && !arguments.json;
  const StageResult result = stage_blocks(cache, *use, arguments.step * job.data.global_batch, [&](const StageResult& r) {
    if (shows) fmt::print(stderr, "\r{} of {} blocks", r.there + r.fetched + r.left, r.wanted);
  });
  if (shows) std::fputs("\n", stderr);
  const int64_t bytes = cache.disk()->used();
  if (arguments.json)
    fmt::print("{{\"folder\": \"{}\", \"blocks\": {}, \"there\": {}, \"fetched\": {}, \"left\": {}, \"bytes\": {}}}\n", options.folder, result.wanted,
               result.there, result.fetched, result.left, bytes);
  else
    fmt::print("{}: {} of {} blocks are there, {} of them fetched now, {} left out; {} bytes\n", options.folder, result.there + result.fetched,
               result.wanted, result.fetched, result.left, bytes);
  return exit_status::ok;
}

}  // namespace

Verb add_stage(CLI::App& app) {
  CLI::App* command = app.add_subcommand("stage", "Fills the cache of a job on this node's disk before it trains");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("JOB.toml", arguments->job, "the job file")->required();
  command->add_option("--set", arguments->assignments, "section.key=value, over the job file; may be repeated");
  command->add_option("--step", arguments->step, "the step that is trained next")->check(CLI::NonNegativeNumber);
  command->add_flag("--json", arguments->json, "print one JSON line");
  return {command, [arguments] { return run_stage(*arguments); }};
}

}  // namespace mm::data
