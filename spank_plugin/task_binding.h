// SPDX-License-Identifier: Apache-2.0
// What a task gets of its node: GPU, NIC, CPUs, NUMA node, and the order in which it sees the GPUs. Pure: the node's tree, what
// Slurm gave the step and what the user chose go in.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/placement/cost.h"
#include "spank_plugin/placement/node_map.h"
#include "spank_plugin/placement/traffic.h"
#include "spank_plugin/record.h"

namespace mm::spank {

struct TaskView {
  int local_rank = 0;
  std::vector<int> ranks;                       // of all tasks of the step on this node, by local rank
  int tasks = 1;                                // of the step
  std::map<std::string, std::string> visible;   // variables that list GPUs, as Slurm set them for this task
  std::string step_gpus;                        // SLURM_STEP_GPUS
  bool narrowed = false;                        // Slurm lets each task see its own GPUs only
  std::map<int, placement::PciAddress> minors;  // of device numbers, where the driver tells
  placement::CpuSet granted;                    // CPUs of the step on this node
  bool bound = false;                           // Slurm bound the task in a way that does not tell the step's CPUs: it stays
};

struct TaskBinding {
  std::string gpu, nic;                        // PCI address, name; empty: unknown
  placement::CpuSet cpus;                      // empty: they stay
  int numa = -1;                               // -1: no preference
  std::map<std::string, std::string> visible;  // variables whose order changes
};

TaskBinding bind_task(const placement::NodeMap& map, const Record& record, const std::string& reserved,
                      const placement::Links& links, const TaskView& view);

// The job that a record describes, for `tasks` ranks; nothing where they do not fit its layout.
std::optional<placement::Job> job_of_record(const Record& record, int tasks);

// CPUs of all tasks on the node from SLURM_CPU_BIND_TYPE and SLURM_CPU_BIND_LIST, where Slurm bound them by mask or number;
// else empty.
placement::CpuSet granted_cpus(std::string_view type, std::string_view list);

}  // namespace mm::spank
