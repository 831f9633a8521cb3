// SPDX-License-Identifier: Apache-2.0
// The agent's side of common/memory_keeper.h: sealed memfds of running jobs, handed back to their owner only, and a folder for each
// job on the node's disk, and a secret.
//
// Invariants: a descriptor is kept only for a job that is known here and belongs to the peer's uid; it is sealed, a memfd, and
// never mapped or read; each job has at most `most_keys` of them and `most_bytes` in all (0: none). Folders are made where nobody
// but the agent's user can make any, and removed without following a link. What a job has is gone when it ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/local/secret.h"
#include "agent/loop.h"
#include "common/files.h"
#include "common/key_values.h"

namespace mm::agent {

class MemoryKeeper {
 public:
  // `folders`: where those of jobs are made; empty: there are none. `owner_of` says whose a job is; nullopt: it is not known here.
  // Throws an Error that names the socket.
  MemoryKeeper(Loop& loop, const std::string& path, uint64_t most_bytes, std::string folders,
               std::function<std::optional<uid_t>(const std::string& job)> owner_of);
  ~MemoryKeeper();
  void job_ended(const std::string& job);
  // Removes folders of jobs that ended while no agent was there. `runs_here` is asked in a worker; where it throws, the folder stays.
  void sweep(std::function<bool(const std::string& job)> runs_here);

 private:
  struct Kept {
    UniqueFd fd;
    uint64_t bytes = 0;
  };
  struct Client {
    UniqueFd fd;
    uid_t uid = 0;
    FdWatch readable;
  };
  void accept();
  void receive(uint64_t id);
  void send(uint64_t id, const KeyValues& message, int give = -1);
  void check_owner(const std::string& job, uid_t uid) const;
  void give_folder(uint64_t id, const std::string& job, uid_t uid);
  KeyValues answer(uid_t uid, const KeyValues& message, UniqueFd fd, int& give);
  void put(std::map<std::string, Kept>& job, const std::string& key, UniqueFd fd);

  Loop& loop_;
  std::string path_;
  uint64_t most_bytes_;
  std::string folders_;
  std::function<std::optional<uid_t>(const std::string&)> owner_of_;
  UniqueFd listener_;
  FdWatch watch_;
  std::map<uint64_t, std::unique_ptr<Client>> clients_;
  uint64_t next_ = 1;
  std::map<std::string, std::map<std::string, Kept>> kept_;  // of each job
  std::map<std::string, std::unique_ptr<Secret>> secrets_;   // likewise
};

}  // namespace mm::agent
