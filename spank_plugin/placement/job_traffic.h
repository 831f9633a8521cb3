// SPDX-License-Identifier: Apache-2.0
// From what --mm-train says to what the ranks send: by common/plan where the job file's model can be read, else a nominal
// model's.
#pragma once

#include <string>

#include "common/job.h"
#include "common/site.h"
#include "spank_plugin/placement/cost.h"
#include "spank_plugin/placement/traffic.h"

namespace mm::placement {

// The job of `tasks` ranks. `note` says why amounts are nominal, where they are. Throws a usage Error where the layout does not
// fit.
Job job_of(const mm::Job& file, int tasks, const Site& site, std::string& note);

// The site's speeds. `oversubscription` and `rails` are those of its network.
Links links_of(const Site& site);

}  // namespace mm::placement
