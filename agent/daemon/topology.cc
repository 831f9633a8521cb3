// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/topology.h"

#include <fmt/format.h>

#include <filesystem>

#include "common/log.h"
#include "common/process.h"

namespace mm::agent {
namespace {

constexpr std::chrono::seconds deadline{60};

// Beside this program, in bin/ beside its sbin/, or where PATH says.
std::string mm_place() {
  std::error_code none;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  for (const std::filesystem::path& path : {here / "mm-place", here.parent_path() / "bin" / "mm-place"})
    if (std::filesystem::exists(path, none)) return path.string();
  return "mm-place";
}

}  // namespace

void share_topology(Loop& loop, const Site& site, const std::string& node) {
  loop.work(Loop::Pool::disk, [path = fmt::format("{}/topology-{}", site.run_dir, node)]() -> Loop::Action {
    std::string problem;
    try {
      const CommandResult r = run_command({mm_place(), "share", path}, deadline);
      if (!r.ok()) problem = r.timed_out ? "no end" : r.err;
    } catch (const std::exception& e) {
      problem = e.what();
    }
    return [path, problem] {
      if (problem.empty()) log::debug("topology: {} is shared", path);
      else log::warn("topology: {} is not shared: {}", path, problem);
    };
  });
}

}  // namespace mm::agent
