// SPDX-License-Identifier: Apache-2.0
#include "agent/slurm/spool.h"

#include <filesystem>
#include <system_error>
#include <vector>

namespace mm::agent {

namespace fs = std::filesystem;

namespace {

// spmix_appdir_UID_JOB.STEP
bool is_client_folder(const std::string& name, const std::string& job) {
  const std::string prefix = "spmix_appdir_";
  const size_t after_uid = name.find_first_not_of("0123456789", prefix.size());
  return name.starts_with(prefix) && after_uid != std::string::npos && name.substr(after_uid).starts_with("_" + job + ".");
}

}  // namespace

std::string spool_folder(const std::string& configured, const std::string& node, const std::string& host) {
  std::string out;
  for (size_t i = 0; i < configured.size(); ++i) {
    const char next = configured[i] == '%' && i + 1 < configured.size() ? configured[i + 1] : '\0';
    if (next == 'n') out += node;
    else if (next == 'h') out += host.substr(0, host.find('.'));
    else {
      out += configured[i];
      continue;
    }
    ++i;
  }
  return out;
}

int remove_pmix_leftovers(const std::string& folder, const std::string& job) {
  if (folder.empty() || job.empty()) return 0;
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const fs::file_type type = entry->symlink_status(error).type();
    if ((name.starts_with("stepd.slurm.pmix." + job + ".") && type == fs::file_type::socket) ||
        ((name.starts_with("pmix." + job + ".") || is_client_folder(name, job)) && type == fs::file_type::directory))
      found.push_back(entry->path());
  }
  int removed = 0;
  for (const fs::path& path : found) removed += fs::remove_all(path, error) != 0 && !error ? 1 : 0;
  return removed;
}

}  // namespace mm::agent
