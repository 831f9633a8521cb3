// SPDX-License-Identifier: Apache-2.0
#include "agent/run/scavenge.h"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "common/process.h"

namespace mm::run {

std::string scavenge(const Plan& plan, const std::string& node) {
  constexpr auto deadline = std::chrono::seconds(60);
  const std::string tool = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "mm-ckpt";
  std::vector<std::string> command = {"srun", "--overlap", "--mpi=none", "--nodes=1", "--ntasks=1", "--nodelist=" + node, tool, "scavenge"};
  if (!plan.node_folder.empty()) command.insert(command.end(), {"--node-folder", plan.node_folder});
  command.push_back(plan.run_folder);
  const CommandResult done = run_command(command, deadline);
  const std::string& said = done.ok() ? done.out : done.err;
  return fmt::format("checkpoints on {}: {}", node, done.timed_out ? "not within the deadline" : said.substr(0, said.find('\n')));
}

}  // namespace mm::run
