// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/layout.h"

namespace mm::spank {
namespace {

constexpr int first_port = 27200, ports = 5500;

// Entries of a comma-separated list.
int entries(std::string_view list) {
  return list.empty() ? 0 : static_cast<int>(std::count(list.begin(), list.end(), ',')) + 1;
}

// FNV-1a, 32 bits.
uint32_t hash(std::string_view text) {
  uint32_t h = 2166136261U;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 16777619U;
  return h;
}

int share_of(const TaskFacts& f) {
  return std::max(entries(f.step_gpus), f.gpu_bind ? f.node_gpus : 0);
}

void add_gpus(const TaskFacts& f, TaskEnvironment& out) {
  const int visible = entries(f.visible_gpus);
  if (visible == 0) return;
  out.values["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
  if (gpus_narrowed(f)) {
    out.values["MM_LOCAL_DEVICE"] = "0";
    out.warning = fmt::format(
        "{}: Slurm lets each task see {} of the step's {} GPUs (--gpus-per-task, --gpu-bind): peers cannot reach each other's "
        "memory; "
        "--gpus-per-node keeps all visible",
        f.node, visible, share_of(f));
  } else {
    out.values["MM_LOCAL_DEVICE"] = fmt::format("{}", f.local_rank % visible);
  }
}

}  // namespace

bool gpus_narrowed(const TaskFacts& f) {
  const int visible = entries(f.visible_gpus);
  return visible > 0 && share_of(f) > visible;
}

int master_port(uint32_t job_id, uint32_t step_id, uint32_t restarts) {
  return first_port + static_cast<int>((uint64_t{job_id} * 31 + step_id + uint64_t{restarts} * 7) % ports);
}

TaskEnvironment task_environment(const TaskFacts& f) {
  TaskEnvironment out;
  const auto set = [&](const char* name, int64_t value) { out.values[name] = fmt::format("{}", value); };
  set("RANK", f.rank);
  set("LOCAL_RANK", f.local_rank);
  set("WORLD_SIZE", f.tasks);
  set("LOCAL_WORLD_SIZE", f.local_tasks);
  const auto self = std::find(f.nodes.begin(), f.nodes.end(), f.node);
  if (self != f.nodes.end()) set("NODE_RANK", self - f.nodes.begin());
  if (!f.nodes.empty()) out.values["MASTER_ADDR"] = f.master.empty() ? f.nodes.front() : f.master;
  set("MASTER_PORT", master_port(f.job_id, f.step_id, f.restarts));
  out.values["MM_AGENT_SOCKET"] = f.agent_socket;

  const int model = f.tp * f.cp * f.pp;
  const int mesh = f.tasks - f.encoder_ranks;
  if (model >= 1 && mesh >= model && mesh % model == 0 && f.rank < mesh) {
    const Coordinates c = Layout{f.tp, f.cp, mesh / model, f.pp}.coordinates(f.rank);
    set("MM_TP_RANK", c.tp);
    set("MM_CP_RANK", c.cp);
    set("MM_DP_RANK", c.dp);
    set("MM_PP_RANK", c.pp);
  }
  if (!f.stage_speeds.empty()) out.values["MM_STAGE_SPEEDS"] = f.stage_speeds;
  add_gpus(f, out);
  if (!f.interfaces.empty()) {
    const std::string list = fmt::format("{}", fmt::join(f.interfaces, ","));
    out.values["GLOO_SOCKET_IFNAME"] = list;
    out.values["NCCL_SOCKET_IFNAME"] = "=" + list;  // '=': these names, not names that begin so
    out.values["OMPI_MCA_btl_tcp_if_include"] = list;
  }
  // More tasks than CPUs: a rank that waits must let its peer run.
  if (f.cpus > 0 && f.local_tasks > f.cpus) out.values["OMPI_MCA_mpi_yield_when_idle"] = "1";
  return out;
}

std::string list_exported(const std::map<std::string, std::string>& values) {
  std::string out;
  for (const auto& [name, value] : values) out += fmt::format("{}{}:{:08x}", out.empty() ? "" : ",", name, hash(value));
  return out;
}

std::vector<std::string> still_ours(std::string_view list,
                                    const std::function<std::optional<std::string>(const std::string&)>& get) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const size_t end = list.find(',');
    const std::string_view item = list.substr(0, end);
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string name(item.substr(0, colon));
    if (const std::optional<std::string> value = get(name);
        value && fmt::format("{:08x}", hash(*value)) == item.substr(colon + 1))
      out.push_back(name);
  }
  return out;
}

}  // namespace mm::spank
