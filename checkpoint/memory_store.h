// SPDX-License-Identifier: Apache-2.0
// Copies of rank files in memory that outlives this process: sealed memfds that the node's agent keeps for the job
// (common/memory_keeper.h), under keys RUN/step-0000012.NAME/rank-00003.h5 and .../manifest.json. RUN is a hash of the run's path,
// for a job may train several.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/rank_file_writer.h"
#include "checkpoint/source.h"
#include "common/memory_keeper.h"

namespace mm::checkpoint {

class MemoryStore {
 public:
  MemoryStore(const std::string& socket, const std::string& job, const std::string& run);

  // All of them throw Error.
  FileRecord write(const Identity& identity, const std::vector<ConstView>& views, const WriteOptions& options);
  void commit(int64_t step, const std::string& name, const std::string& manifest);
  void remove_old(int keep, int64_t step);  // as NodeStore's

  struct Copy {
    int64_t step = 0;
    std::string name, file;  // rank-00003.h5 or manifest.json
  };
  std::vector<Copy> list();
  std::string read_manifest(int64_t step, const std::string& name);
  Place place(const Copy& copy);

 private:
  bool has_manifest(int64_t step, const std::string& name);
  std::string key_of(int64_t step, const std::string& name, const std::string& file) const;

  MemoryKeeperClient keeper_;
  std::string prefix_;  // of this run's keys
};

}  // namespace mm::checkpoint
