// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/near_tiers.h"

#include <fmt/format.h>

#include <cstdlib>
#include <set>
#include <sstream>

#include "common/error.h"
#include "common/memory_keeper.h"
#include "common/site.h"

namespace mm::loop {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

checkpoint::Tiers tiers_of(const Job& job, std::vector<std::string>& problems) {
  checkpoint::Tiers tiers;
  tiers.job = environment("SLURM_JOB_ID");
  tiers.node_name = this_node();
  tiers.node_folder = job.checkpoint.node_folder;
  tiers.peer = has_tier(job, "peer");
  tiers.shared_every = job.checkpoint.shared_every;
  if (!has_tier(job, "node")) tiers.node_folder.clear();
  const bool wants_folder = has_tier(job, "node") && tiers.node_folder.empty();
  if (!has_tier(job, "memory") && !wants_folder) return tiers;
  try {
    const std::string agent = environment("MM_AGENT_SOCKET");
    if (agent.empty() || tiers.job.empty()) throw usage_error("no agent, which keeps them for jobs of Slurm");
    const std::string socket = memory_socket_beside(agent);
    if (has_tier(job, "memory")) tiers.memory_socket = socket;
    if (wants_folder) tiers.node_folder = MemoryKeeperClient(socket, tiers.job).folder();
  } catch (const Error& e) {
    problems.push_back(fmt::format("copies of checkpoints on {}: {}", tiers.node_name, e.what()));
  }
  return tiers;
}

}  // namespace

std::vector<std::string> use_near_tiers(checkpoint::RunFolder& folder, checkpoint::Group& group, const Job& job) {
  std::vector<std::string> mine;
  const checkpoint::Tiers tiers = tiers_of(job, mine);
  for (std::string& problem : folder.use_tiers(group, tiers)) mine.push_back(std::move(problem));
  std::string text;
  for (const std::string& problem : mine) text += problem + "\n";
  std::set<std::string> all;
  for (const std::string& theirs : group.all_gather(text)) {
    std::istringstream lines(theirs);
    for (std::string line; std::getline(lines, line);) all.insert(line);
  }
  return {all.begin(), all.end()};
}

checkpoint::Compression compression_of(const Job& job) {
  if (job.checkpoint.compress == "on") return checkpoint::Compression::on;
  return job.checkpoint.compress == "auto" ? checkpoint::Compression::automatic : checkpoint::Compression::off;
}

}  // namespace mm::loop
