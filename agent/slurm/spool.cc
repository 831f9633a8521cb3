// SPDX-License-Identifier: Apache-2.0
#include "agent/slurm/spool.h"

#include <filesystem>
#include <system_error>
#include <vector>

namespace mm::agent {

namespace fs = std::filesystem;

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

int remove_pmix_sockets(const std::string& folder, const std::string& job) {
  if (folder.empty() || job.empty()) return 0;
  const std::string prefix = "stepd.slurm.pmix." + job + ".";
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename().string().starts_with(prefix) && entry->is_socket(error)) found.push_back(entry->path());
  int removed = 0;
  for (const fs::path& path : found) removed += fs::remove(path, error) ? 1 : 0;
  return removed;
}

}  // namespace mm::agent
