// SPDX-License-Identifier: Apache-2.0
// srun's use of the placement: the node of each rank of a step, before the step exists.
//
// Trees are the site's files, each node its own where it has one; else all nodes are taken to be like this one, which is one of
// them where a batch script runs, by the site's file or the agent's copy. srun never searches a machine itself.
#pragma once

#include <string>
#include <vector>

#include "common/job.h"
#include "common/site.h"

namespace mm::spank {

struct RankOrder {
  std::vector<std::string> node_of_rank;
  std::vector<double> bytes;  // that a rank sends, by placement::Kind; empty: a nominal model's
  std::string warning;        // the order is Slurm's, because ...
  std::string told;           // what was found
};

// Never throws: in doubt the order is that of `nodes`, which run `tasks[i]` ranks each, with a warning. A step whose tasks do
// not fit the layout (a helper beside the training) has its nodes in the order of the switch tree.
RankOrder order_ranks(const Job& job, const std::vector<std::string>& nodes, const std::vector<int>& tasks,
                      const std::string& topology, const Site& site) noexcept;

// The speed of each pipeline stage (common/plan/stages.h) when ranks are on these nodes; empty where they are all alike, or the job has one stage. Never throws: what is wrong with the site's speeds is the warning of order_ranks.
std::string stage_speeds_of(const Job& job, const std::vector<std::string>& node_of_rank, const Site& site) noexcept;

}  // namespace mm::spank
