// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/cache/job_cache.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <cstdlib>
#include <optional>
#include <string>

#include "common/error.h"
#include "common/log.h"
#include "common/memory_keeper.h"
#include "trainer/data/cache/folder.h"

namespace mm::data {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

MemoryKeeperClient agent_of_job() {
  const std::string agent = environment("MM_AGENT_SOCKET"), job = environment("SLURM_JOB_ID");
  if (agent.empty() || job.empty()) throw usage_error("no agent, which serves jobs of Slurm");
  return MemoryKeeperClient(memory_socket_beside(agent), job);
}

}  // namespace

CacheOptions cache_of(const Job& job) {
  constexpr double gigabyte = 1e9;
  CacheOptions options;
  const auto& wanted = job.data.cache;
  options.memory = static_cast<int64_t>(wanted.memory * gigabyte);
  options.disk = static_cast<int64_t>(wanted.disk * gigabyte);
  if (options.disk == 0) return options;
  try {
    options.folder = wanted.folder;
    std::optional<MemoryKeeperClient> agent;
    if (wanted.folder.empty() || wanted.encrypt) agent = agent_of_job();
    if (wanted.folder.empty()) options.folder = agent->folder() + "/cache";
    if (wanted.encrypt) {
      std::array<unsigned char, Cipher::key_bytes> key{};
      agent->secret(key);
      options.cipher = std::make_shared<const Cipher>(key);
      ::explicit_bzero(key.data(), key.size());
    }
    open_private_folder(options.folder);
  } catch (const Error& error) {
    log::warn("data: no cache on this node's disk: {}", error.what());
    options.folder.clear();
    options.disk = 0;
  }
  return options;
}

}  // namespace mm::data
