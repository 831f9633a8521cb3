// SPDX-License-Identifier: Apache-2.0
// What scontrol prints, as values. Written for Slurm 22.05 and the same keys of later releases; unknown keys are skipped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mm::agent {

// One record of `scontrol show node --oneliner`.
struct NodeRecord {
  std::string name;
  std::string address;
  uint16_t port = 0;
  std::vector<std::string> state;  // "IDLE", "DRAIN", ...: base state and flags
  std::string reason;              // as written, without the "[user@time]" that Slurm adds; empty: none
  double reason_time = 0;          // seconds since 1970; 0: not known

  bool has(std::string_view flag) const;
  bool drained() const { return has("DRAIN") || has("DRAINING") || has("DRAINED") || has("FAIL"); }
  bool down() const { return has("DOWN"); }
};
std::vector<NodeRecord> parse_nodes(std::string_view text);

// One record of `scontrol show job --oneliner`.
struct JobRecord {
  std::string id;
  std::string state;  // RUNNING, PENDING, COMPLETING, ...
  int restarts = 0;
  bool requeue = false;
  bool has_batch = false;
  std::vector<std::string> nodes;  // empty where it has none
  std::string batch_host;
  std::string excluded;  // host list; empty: none
  int tasks = 0, tasks_per_node = 0, cpus_per_task = 1;  // 0: not stated
};
std::optional<JobRecord> parse_job(std::string_view text);

// The lines of `scontrol show config` that the agent needs.
struct SlurmConfig {
  std::string controller;  // address of the first slurmctld
  uint16_t controller_port = 6817;
  std::string munge_socket;  // from AuthInfo; empty: munge's default
  int unkillable_step_timeout = 0;
  std::string spool;                     // SlurmdSpoolDir as configured, see slurm/spool.h
  std::string pmix_clients, temporary;  // PMIxCliTmpDirBase and TmpFS as configured
};
SlurmConfig parse_config(std::string_view text);

}  // namespace mm::agent
