// SPDX-License-Identifier: Apache-2.0
#include "agent/run/launch_size.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/files.h"
#include "common/log.h"

namespace mm::run {
namespace {

std::string path_in(const std::string& run_folder) { return run_folder + "/launch.json"; }

}  // namespace

void write_launch_size(const std::string& run_folder, const std::string& job, int nodes) {
  if (run_folder.empty()) return;
  try {
    std::filesystem::create_directories(run_folder);
    write_file_durably(path_in(run_folder), nlohmann::json{{"job", job}, {"nodes", nodes}}.dump() + "\n");
  } catch (const std::exception& e) {
    log::warn("{}", e.what());
  }
}

std::optional<int> read_launch_size(const std::string& run_folder, const std::string& job) {
  try {
    const auto known = nlohmann::json::parse(read_file(path_in(run_folder)), nullptr, false);
    if (known.is_object() && known.value("job", "") == job) return known.value("nodes", 0);
  } catch (const std::exception&) {
    // No such file, or not ours.
  }
  return std::nullopt;
}

}  // namespace mm::run
