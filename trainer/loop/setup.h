// SPDX-License-Identifier: Apache-2.0
// What a run is made of, before anything large is loaded: job file, layout, the model's configuration and parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/job.h"
#include "common/layout.h"
#include "common/plan/stages.h"
#include "trainer/data/stream.h"
#include "trainer/model/config.h"
#include "trainer/model/dual_tower_config.h"
#include "trainer/model/param.h"

namespace mm::loop {

struct TrainOptions {
  std::string job_file;
  std::vector<std::string> assignments;  // "section.key=value"
  bool plan = false, dry_run = false, allow_data_change = false, json = false;
  int plan_ranks = 0;          // ranks to plan for; 0: those that were started
  double gpu_memory = 0;       // GB, for the plan; 0: the site's
  std::string dump_gradients;  // a file; empty: train
};

struct Setup {
  Job job;
  Layout layout;           // of the decoder, or of both towers of a contrastive model
  Layout encoder{0, 1, 0};  // of a vision tower on ranks of its own, which come after the others; else of no ranks
  bool encodes = false;    // this rank is one of these
  Coordinates at;          // of this rank in its layout
  std::vector<int> stage_layers;  // of the decoder; empty: dealt evenly
  model::VlmConfig config;                     // of a vision-language model
  std::optional<model::DualTowerConfig> pairs;  // of a contrastive model, in its place
  std::string config_text, preprocessor_text;  // of the model's folder; the second may be empty
  std::vector<model::ParamSpec> specs;         // sorted by name, frozen ones marked
};

// Throws a usage Error, also for what this version does not support.
Setup prepare(const TrainOptions& options, int rank, int ranks);
data::StreamOptions stream_options(const Setup& setup);
// Of the nodes that run the pipeline's stages, as the plugin tells each rank in MM_STAGE_SPEEDS; none: all the same.
std::vector<plan::StageSpeed> stage_speeds();
// Compute threads: as the job says, else the CPUs that the process may use, shared with the other ranks of the node.
int compute_threads(int wanted);

}  // namespace mm::loop
