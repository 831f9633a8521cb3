// SPDX-License-Identifier: Apache-2.0
// scavenge: what only this node has of a run's newest steps goes to the shared file system.
#include "checkpoint/scavenge.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "checkpoint/tool/verbs.h"
#include "common/memory_keeper.h"

namespace mm::checkpoint::tool {

int scavenge_node(const std::string& run, const std::string& node_folder, bool json) {
  const char* agent = std::getenv("MM_AGENT_SOCKET");
  const char* job = std::getenv("SLURM_JOB_ID");
  Tiers tiers;
  tiers.node_folder = node_folder;
  std::vector<std::string> problems;
  if (agent != nullptr && job != nullptr) {
    tiers.job = job;
    tiers.memory_socket = memory_socket_beside(agent);
    try {
      if (node_folder.empty()) tiers.node_folder = MemoryKeeperClient(tiers.memory_socket, tiers.job).folder();
    } catch (const Error& e) {
      problems.emplace_back(e.what());
    }
  } else if (node_folder.empty()) {
    throw usage_error("scavenge: not inside a job whose node has an agent (SLURM_JOB_ID, MM_AGENT_SOCKET): give --node-folder");
  }
  const Scavenged done = scavenge(run, tiers);
  problems.insert(problems.end(), done.problems.begin(), done.problems.end());
  if (json) {
    const nlohmann::json j = {{"run", run}, {"files", done.files}, {"bytes", done.bytes}, {"newest", done.newest}, {"problems", problems}};
    fmt::print("{}\n", j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    for (const std::string& p : problems) fmt::print(stderr, "mm-ckpt: {}\n", p);
    if (done.files > 0)
      fmt::print("{} files, {}, up to step {}\n", done.files, text_of_bytes(done.bytes), done.newest);
    else
      fmt::print("nothing that is not on the shared file system already\n");
  }
  return exit_status::ok;
}

}  // namespace mm::checkpoint::tool
