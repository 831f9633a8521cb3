// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/job_traffic.h"

#include <algorithm>
#include <numeric>

#include "common/error.h"
#include "common/plan/job.h"
#include "common/plan/stages.h"

namespace mm::placement {
namespace {

Kind kind_of(plan::Group group) {
  switch (group) {
    case plan::Group::tensor:
      return Kind::tensor;
    case plan::Group::context:
      return Kind::context;
    case plan::Group::pipeline:
      return Kind::pipeline;
    case plan::Group::data:
      return Kind::data;
    case plan::Group::stage:
      return Kind::stage;
    case plan::Group::tied:
      return Kind::tied;
    case plan::Group::encoder:
      return Kind::encoder;
  }
  return Kind::data;
}

}  // namespace

Job job_of(const mm::Job& file, int tasks, const Site& site, std::string& note) {
  Job job;
  job.mesh = job_layout(file, tasks);  // throws where it does not fit
  if (const int ranks = encoder_ranks(file); ranks > 0) {
    job.encoder_tp = std::max(1, file.parallel.encoder_tp);
    job.encoder_dp = ranks / job.encoder_tp;
  }
  job.stage_layers = stage_layers(file);
  if (!job.stage_layers.empty()) job.layers = std::accumulate(job.stage_layers.begin(), job.stage_layers.end(), 0);
  job.least_layers = pipeline(file).chunks;
  job.layers = std::max(job.layers, job.mesh.pp * job.least_layers);
  set_nominal_amounts(job);
  if (file.model.path.empty()) return job;
  try {
    const plan::JobPlan p = plan::plan_of_job(file, tasks);
    const plan::Plan made =
        plan::make_plan(p.model, p.batch, p.parallelism, p.numbers, plan::machine_of(site, file.parallel.dtype));
    for (std::vector<Amount>& a : job.amounts) a.clear();
    for (const plan::Volume& v : made.volumes) {
      std::vector<Amount>& a = job.amounts[static_cast<size_t>(kind_of(v.group))];
      const size_t stage = static_cast<size_t>(std::max(0, v.stage));
      // One stage's amount would count for all of them.
      if (a.size() < std::max<size_t>(stage + 1, 2)) a.resize(std::max<size_t>(stage + 1, 2));
      a[stage] = {v.bytes, v.calls};
    }
    job.layers = static_cast<int>(std::max<int64_t>(p.model.text.count, job.mesh.pp));
    const plan::ExtraWork extra = plan::extra_work(p.model, p.batch, p.parallelism);
    job.image_layers = extra.pictures;
    job.head_layers = extra.head;
    const plan::StagePlan& last = made.stages.at(static_cast<size_t>(job.mesh.pp) - 1);
    job.layer_seconds = last.busy / std::max(1.0, last.layers + extra.head);
  } catch (const Error& e) {
    note = e.what();
  }
  return job;
}

Links links_of(const Site& site) {
  Links links;
  links.inside = site.gpu_link;
  links.nic = site.gpu_network;
  links.oversubscription = site.oversubscription;
  links.rails = site.rails;
  return links;
}

}  // namespace mm::placement
