// SPDX-License-Identifier: Apache-2.0
// Jobs that nobody watches over: started with plain srun instead of mm-run. The agent of their batch node requeues them where a fault of a
// node would leave them hanging, without that node, and where their ranks have saved and ask for it (exit status 75).
//
// mm-run may be away for a moment, as while its agent is started again: so a job counts as unattended where nobody has watched it for half a
// minute, and nobody does five seconds after the event.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "agent/daemon/context.h"
#include "agent/daemon/jobs.h"

namespace mm::agent {

class Unattended {
 public:
  using IsWatched = std::function<bool(const std::string& job)>;  // by a local client, now
  Unattended(Context& context, Jobs& jobs, IsWatched is_watched) : c_(context), jobs_(jobs), is_watched_(std::move(is_watched)) {}
  // Every event of a job that reaches this node; progress is one.
  void event(const KeyValues& event);
  void job_ended(const std::string& job);

 private:
  void consider(const std::string& job, const std::string& exclude, const std::string& why);

  Context& c_;
  Jobs& jobs_;
  IsWatched is_watched_;
  std::map<std::string, Clock::time_point> last_watched_;
  std::set<std::string> considered_;
};

}  // namespace mm::agent
