// SPDX-License-Identifier: Apache-2.0
// A job file as the plan sees it.
#pragma once

#include "common/job.h"
#include "common/plan/plan.h"
#include "common/plan/stages.h"
#include "common/site.h"

namespace mm::plan {

struct JobPlan {
  Model model;
  Batch batch;
  Parallelism parallelism;
  Numbers numbers;
};

// Of `tasks` ranks, whose pipeline stages have `speeds` (stages.h; none: all the same). Reads the model's config.json. A sample is taken to have one picture and the text that fills data.max_length, or
// `assumed_text` further positions where that is not set. Throws a usage Error with the numbers where the layout is not possible.
JobPlan plan_of_job(const Job& job, int tasks, const std::vector<StageSpeed>& speeds = {});
inline constexpr int64_t assumed_text = 64;

// The layout alone, of any batch; stages that the job leaves open are even. Throws as above.
Parallelism parallelism_of(const Job& job, const Model& model, int tasks);
// The same, but for the layout: model, batch and numbers of any.
JobPlan without_layout(const Job& job);
// A GPU of the site. float32 is taken to run at half the rate of bfloat16 (as TF32), float64 at a fifteenth.
Machine machine_of(const Site& site, const std::string& dtype);

}  // namespace mm::plan
