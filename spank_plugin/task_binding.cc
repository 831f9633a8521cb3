// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/task_binding.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "spank_plugin/placement/binding.h"
#include "spank_plugin/placement/gpu_choice.h"

namespace mm::spank {
namespace {

std::vector<std::string> items(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const size_t end = list.find(',');
    out.emplace_back(list.substr(0, end));
    list = end == std::string_view::npos ? std::string_view() : list.substr(end + 1);
  }
  return out;
}

std::string joined(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& item : list) out += (out.empty() ? "" : ",") + item;
  return out;
}

// The variable by which the libraries of a GPU's maker choose devices. One alone is permuted: they filter one after the other.
const char* variable_of(const placement::NodeMap& map, const std::map<std::string, std::string>& visible) {
  const std::string vendor = map.gpus.empty() ? "" : map.gpus.front().vendor;
  if (vendor == "AMD" && visible.count("ROCR_VISIBLE_DEVICES") != 0) return "ROCR_VISIBLE_DEVICES";
  if (vendor == "Intel" && visible.count("ZE_AFFINITY_MASK") != 0) return "ZE_AFFINITY_MASK";
  return "CUDA_VISIBLE_DEVICES";
}

// -1: no number. MIG instances and GPUs by UUID are named otherwise.
int number_of(const std::string& device) {
  int number = 0;
  const auto [end, error] = std::from_chars(device.data(), device.data() + device.size(), number);
  return error != std::errc() || end != device.data() + device.size() || number < 0 ? -1 : number;
}

// Which GPU of the map a device is that Slurm names; -1: unknown.
int gpu_of(const placement::NodeMap& map, const TaskView& view, const std::string& device) {
  const int number = number_of(device);
  if (number < 0) return -1;
  if (const auto minor = view.minors.find(number); minor != view.minors.end()) {
    const std::string id = placement::format_address(minor->second);
    for (size_t i = 0; i < map.gpus.size(); ++i)
      if (map.gpus[i].id == id) return static_cast<int>(i);
    return -1;
  }
  return view.minors.empty() && static_cast<size_t>(number) < map.gpus.size() ? number : -1;
}

}  // namespace

std::optional<placement::Job> job_of_record(const Record& record, int tasks) {
  placement::Job job;
  job.encoder_tp = record.encoder_tp;
  job.encoder_dp = record.encoder_dp;
  const int model = record.tp * record.cp * record.pp, mesh = tasks - job.encoder_ranks();
  if (model < 1 || mesh < model || mesh % model != 0) return {};
  job.mesh = {record.tp, record.cp, mesh / model, record.pp};
  placement::set_nominal_amounts(job);
  if (!record.bytes.empty())
    for (size_t k = 0; k < job.amounts.size(); ++k) job.amounts[k] = {{k < record.bytes.size() ? record.bytes[k] : 0, 0}};
  return job;
}

placement::CpuSet granted_cpus(std::string_view type, std::string_view list) {
  placement::CpuSet out;
  const bool masks = type.find("mask_cpu") != std::string_view::npos;
  if (!masks && type.find("map_cpu") == std::string_view::npos) return out;
  for (const std::string& item : items(list)) {
    const std::string text = item.substr(0, item.find('*'));
    const std::optional<placement::CpuSet> set =
        masks || text.rfind("0x", 0) == 0 ? placement::parse_mask(text) : placement::parse_list(text);
    if (set) out |= *set;
  }
  return out;
}

TaskBinding bind_task(const placement::NodeMap& map, const Record& record, const std::string& reserved,
                      const placement::Links& links, const TaskView& view) {
  TaskBinding out;
  const size_t local = view.ranks.size(), self = static_cast<size_t>(view.local_rank);
  if (self >= local) return out;
  const std::string name = variable_of(map, view.visible);
  const auto entry = view.visible.find(name);
  const std::vector<std::string> seen = entry == view.visible.end() ? std::vector<std::string>() : items(entry->second);
  std::vector<std::string> devices = items(view.step_gpus);
  if (devices.size() != seen.size()) devices = seen;
  std::vector<int> gpus;  // of the map, as listed
  for (const std::string& d : devices) gpus.push_back(gpu_of(map, view, d));
  // Numbers alone are GPUs: of a MIG instance the step's list has a number that is none of these.
  const bool known = !gpus.empty() && std::find(gpus.begin(), gpus.end(), -1) == gpus.end() &&
                     std::all_of(seen.begin(), seen.end(), [](const std::string& d) { return number_of(d) >= 0; });
  const bool by_slurm = !view.step_gpus.empty();  // else the list is the user's own, and its order stays

  placement::BindingRequest request;
  request.gpus.assign(local, -1);
  request.granted = view.granted;
  request.cpus_per_rank = record.cpus;
  if (known && view.narrowed) {
    request.gpus.assign(local, gpus.front());  // the others' are not known here: the share is a fair one all the same
  } else if (known && gpus.size() >= local) {
    std::vector<int> chosen(gpus.begin(), gpus.begin() + static_cast<std::ptrdiff_t>(local));
    if (const std::optional<placement::Job> job = job_of_record(record, view.tasks); job && by_slurm && local > 1) {
      const std::vector<placement::Family> families = families_of(*job);
      const placement::Memberships memberships(families, job->ranks());
      chosen = choose_gpus(slots_of(map, links), links, node_traffic(memberships, view.ranks), gpus);
    }
    for (size_t i = 0; i < local; ++i) request.gpus[i] = chosen[i];
    // The task's own device is the LOCAL_RANK-th in its list; what is over stays behind.
    std::vector<std::string> order;
    std::vector<bool> used(gpus.size(), false);
    for (const int g : chosen) {
      const size_t at = static_cast<size_t>(std::find(gpus.begin(), gpus.end(), g) - gpus.begin());
      order.push_back(seen[at]);
      used[at] = true;
    }
    for (size_t i = 0; i < seen.size(); ++i)
      if (!used[i]) order.push_back(seen[i]);
    if (order != seen) out.visible[name] = joined(order);
  }
  const int own = request.gpus[self];
  if (own >= 0) {
    out.gpu = map.gpus[static_cast<size_t>(own)].id;
    const std::vector<int>& nics = map.gpus[static_cast<size_t>(own)].nics;
    if (!nics.empty()) out.nic = map.nics[static_cast<size_t>(nics.front())].name;
  }
  // One task with several GPUs starts programs of its own: it keeps all that is granted.
  if (local == 1 && gpus.size() > 1) request.gpus.front() = -1;
  const std::optional<placement::CpuSet> set = placement::reserved_cpus(map, reserved.empty() ? "0" : reserved);
  if (set) request.reserved = *set;
  const placement::Binding binding = placement::bind_ranks(map, request)[self];
  if (!record.user_cpus && !view.bound) out.cpus = binding.cpus & (view.granted.empty() ? binding.cpus : view.granted);
  if (!record.user_memory) out.numa = binding.numa;
  return out;
}

}  // namespace mm::spank
