// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/step_binding.h"

#include <errno.h>
#include <fmt/format.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <exception>
#include <vector>

#include "spank_plugin/node_tree.h"
#include "spank_plugin/placement/binding.h"
#include "spank_plugin/placement/job_traffic.h"
#include "spank_plugin/task_binding.h"

namespace mm::spank {
namespace {

constexpr size_t most_cpus = 8192;

std::string variable(spank_t spank, const char* name) {
  std::string buffer(128 * 1024, '\0');
  return spank_getenv(spank, name, buffer.data(), static_cast<int>(buffer.size())) == ESPANK_SUCCESS ? buffer.c_str() : "";
}

struct CpuMask {
  std::vector<cpu_set_t> words = std::vector<cpu_set_t>(most_cpus / CPU_SETSIZE);
  size_t bytes() const { return words.size() * sizeof(cpu_set_t); }
};

placement::CpuSet own_cpus() {
  CpuMask mask;
  placement::CpuSet out;
  if (::sched_getaffinity(0, mask.bytes(), mask.words.data()) != 0) return out;
  for (size_t c = 0; c < most_cpus; ++c)
    if (CPU_ISSET_S(c, mask.bytes(), mask.words.data())) out.add(static_cast<int>(c));
  return out;
}

// Empty, or why not.
std::string bind_cpus(const placement::CpuSet& cpus) {
  CpuMask mask;
  for (const int c : cpus.members())
    if (static_cast<size_t>(c) < most_cpus) CPU_SET_S(static_cast<size_t>(c), mask.bytes(), mask.words.data());
  return ::sched_setaffinity(0, mask.bytes(), mask.words.data()) == 0
             ? ""
             : fmt::format("CPUs {}: {}", format_list(cpus), ::strerror(errno));
}

// Memory comes from the node while it has some, then from anywhere. A tree of another machine may name one that is not here.
std::string prefer_memory(int numa) {
  std::vector<unsigned long> mask(1024 / (8 * sizeof(unsigned long)));
  const size_t bits = 8 * sizeof(unsigned long), n = static_cast<size_t>(numa);
  if (n >= mask.size() * bits) return {};
  mask[n / bits] |= 1UL << (n % bits);
  return ::syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), mask.size() * bits + 1) == 0 || errno == EINVAL
             ? ""
             : fmt::format("memory of NUMA node {}: {}", numa, ::strerror(errno));
}

TaskView view_of(spank_t spank, const TaskFacts& facts) {
  TaskView v;
  v.local_rank = facts.local_rank;
  v.tasks = facts.tasks;
  for (int i = 0; i < facts.local_tasks; ++i) {
    uint32_t rank = 0;
    if (spank_get_item(spank, S_JOB_LOCAL_TO_GLOBAL_ID, static_cast<uint32_t>(i), &rank) != ESPANK_SUCCESS ||
        rank >= static_cast<uint32_t>(facts.tasks))
      return {};
    v.ranks.push_back(static_cast<int>(rank));
  }
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"})
    if (const std::string value = variable(spank, name); !value.empty()) v.visible[name] = value;
  v.step_gpus = facts.step_gpus;
  v.narrowed = gpus_narrowed(facts);
  v.minors = gpu_minors();
  const std::string type = variable(spank, "SLURM_CPU_BIND_TYPE");
  v.granted = granted_cpus(type, variable(spank, "SLURM_CPU_BIND_LIST"));
  if (v.granted.empty()) {
    v.granted = own_cpus();
    v.bound = !type.empty() && type.find("none") == std::string::npos;
  }
  return v;
}

}  // namespace

std::map<std::string, std::string> bind_this_task(spank_t spank, const Record& record, const TaskFacts& facts,
                                                  const Site& site) noexcept {
  std::map<std::string, std::string> out;
  try {
    const placement::NodeMap map = node_tree(site, facts.node, Search::machine_too).value_or(placement::NodeMap());
    const TaskBinding b = bind_task(map, record, site.reserved_cores, placement::links_of(site), view_of(spank, facts));
    if (facts.local_rank == 0 && !site.reserved_cores.empty() && !placement::reserved_cpus(map, site.reserved_cores))
      slurm_spank_log(
          "mm-train: %s: placement.reserved_cores '%s': neither a number of cores nor a list of CPUs; none is reserved",
          facts.node.c_str(), site.reserved_cores.c_str());
    std::string problem;
    if (!b.cpus.empty()) problem = bind_cpus(b.cpus);
    // Of one NUMA node only there is nothing to prefer.
    if (b.numa >= 0 && map.numa.size() > 1)
      if (const std::string why = prefer_memory(b.numa); !why.empty()) problem += (problem.empty() ? "" : "; ") + why;
    for (const auto& [name, value] : b.visible) spank_setenv(spank, name.c_str(), value.c_str(), 1);
    if (!b.gpu.empty()) out["MM_GPU"] = b.gpu;
    if (!b.nic.empty()) out["MM_NIC"] = b.nic;
    const auto or_none = [](const std::string& text) { return text.empty() ? std::string("none") : text; };
    if (record.verbose)
      slurm_spank_log("mm-train: %s: rank %d: GPU %s, NIC %s, CPUs %s%s, NUMA node %d%s%s", facts.node.c_str(), facts.rank,
                      or_none(b.gpu).c_str(), or_none(b.nic).c_str(),
                      b.cpus.empty() ? format_list(own_cpus()).c_str() : format_list(b.cpus).c_str(),
                      record.user_cpus ? " (the user's choice)" : "", b.numa,
                      problem.empty() ? "" : "; not bound: ", problem.c_str());
    else if (facts.local_rank == 0 && !problem.empty())
      slurm_spank_log("mm-train: %s: tasks are not bound: %s", facts.node.c_str(), problem.c_str());
  } catch (const std::exception& e) {
    if (facts.local_rank == 0) slurm_spank_log("mm-train: %s: tasks are not bound: %s", facts.node.c_str(), e.what());
  } catch (...) {
    if (facts.local_rank == 0) slurm_spank_log("mm-train: %s: tasks are not bound", facts.node.c_str());
  }
  return out;
}

}  // namespace mm::spank
