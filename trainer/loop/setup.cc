// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/setup.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "common/error.h"
#include "common/files.h"
#include "common/plan/job.h"
#include "trainer/comm/world.h"
#include "trainer/data/cache/job_cache.h"
#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/model/vlm.h"

namespace mm::loop {

Setup prepare(const TrainOptions& options, int rank, int ranks) {
  Setup setup;
  setup.job = load_job(options.job_file, options.assignments);
  refuse_untrainable(setup.job);
  setup.layout = job_layout(setup.job, ranks);
  setup.encoder = encoder_layout(setup.job);
  const int decoders = setup.layout.world_size();
  setup.encodes = rank >= decoders;
  setup.at = setup.encodes ? setup.encoder.coordinates(rank - decoders) : setup.layout.coordinates(rank);
  const std::string& folder = setup.job.model.path;
  if (model::is_dual_tower(folder))
    setup.pairs = model::load_dual_tower_config(folder);
  else
    setup.config = model::load_config(folder);
  // Refuses a layout that the model does not fit.
  setup.stage_layers = plan::parallelism_of(setup.job, plan::read_model(folder), ranks).layers;
  if (const std::vector<plan::StageSpeed> speeds = stage_speeds(); setup.stage_layers.empty() && !speeds.empty())
    setup.stage_layers = plan::plan_of_job(setup.job, ranks, speeds).parallelism.layers;
  setup.config_text = read_file(folder + "/config.json");
  const std::string preprocessor = folder + "/preprocessor_config.json";
  if (::access(preprocessor.c_str(), R_OK) == 0) setup.preprocessor_text = read_file(preprocessor);
  setup.specs = setup.pairs ? model::param_specs(*setup.pairs) : model::param_specs(setup.config);
  std::ranges::sort(setup.specs, {}, &model::ParamSpec::name);
  model::freeze(setup.specs, setup.job.model.freeze);
  model::scale_learning_rates(setup.specs, setup.job.optim.lr_scale);
  if (std::ranges::none_of(setup.specs, &model::ParamSpec::trained))
    throw usage_error(setup.job.file + ": model.freeze leaves nothing to train");
  return setup;
}

data::StreamOptions stream_options(const Setup& setup) {
  data::StreamOptions options;
  options.shards = setup.job.data.shards;
  options.mix = setup.job.data.mix;
  options.index = setup.job.data.index;
  options.version = setup.job.data.version;
  options.shuffle_window = setup.job.data.shuffle_window;
  options.bad.max_percent = setup.job.data.max_bad_percent;
  options.shuffle = setup.job.data.shuffle;
  options.seed = setup.job.run.seed;
  options.global_batch = setup.job.data.global_batch;
  options.rank = setup.at.dp;
  options.ranks = setup.layout.dp;
  options.threads = setup.job.data.threads;
  options.rule = setup.pairs ? setup.pairs->sequence_rule(setup.job.data.max_length)
                             : setup.config.sequence_rule(setup.job.data.max_length);
  const auto& pictures = setup.job.data;
  for (size_t k = 0; k < 3; ++k) options.rule.background[k] = static_cast<uint8_t>(pictures.background[k]);
  options.rule.fast_jpeg = pictures.jpeg == "fast";
  const auto& augment = pictures.augment;
  options.rule.augment = {augment.crop, augment.ratio, augment.flip, augment.brightness, augment.contrast, augment.saturation, augment.hue};
  options.node_ranks = std::clamp(comm::launch_from_environment().local_ranks / (setup.layout.tp * setup.layout.cp), 1, setup.layout.dp);
  options.cache = data::cache_of(setup.job);
  options.rule.tokenizer = data::open_tokenizer(setup.job.data.tokenizer, setup.job.model.path);
  return options;
}

std::vector<plan::StageSpeed> stage_speeds() {
  const char* told = std::getenv("MM_STAGE_SPEEDS");
  return told == nullptr ? std::vector<plan::StageSpeed>() : plan::parse_stage_speeds(told);
}

int compute_threads(int wanted) {
  if (wanted > 0) return wanted;
  cpu_set_t cpus;
  const int usable = ::sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
  return std::max(1, usable / comm::launch_from_environment().local_ranks);
}

}  // namespace mm::loop
