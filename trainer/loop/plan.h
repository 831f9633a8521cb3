// SPDX-License-Identifier: Apache-2.0
// mm-trainer --plan: what a job's layout costs on the site's GPUs, and the layout that would be fastest there; from the job file and the
// model's configuration alone. The arithmetic is common/plan.
#pragma once

#include <string>

#include "common/plan/job.h"
#include "common/plan/search.h"
#include "trainer/loop/setup.h"

namespace mm::loop {

struct PlanReport {
  Job job;
  plan::JobPlan of;
  plan::Machine machine;
  plan::Plan plan;
  plan::Search search;

  double memory() const { return static_cast<double>(plan.largest_memory().total()); }
  bool fits() const { return memory() + machine.reserved <= machine.memory; }
};

// Throws a usage Error where the layout is not possible; it names one that is.
PlanReport make_report(const TrainOptions& options, int ranks);
// Why it does not fit, with the numbers.
std::string refusal(const PlanReport& report);

// Stages that are alike are one line.
std::string plan_text(const PlanReport& report);
// A line for the plan, then one for each rank.
std::string plan_json(const PlanReport& report);

// As assignments: "parallel.tp=4 parallel.cp=1 ...".
std::string as_assignments(const plan::Parallelism& parallelism);

}  // namespace mm::loop
