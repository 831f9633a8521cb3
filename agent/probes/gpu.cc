// SPDX-License-Identifier: Apache-2.0
#include "agent/probes/gpu.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/probes/nvml_abi.h"
#include "agent/probes/temperature_drift.h"

namespace mm::agent {
namespace {

constexpr milliseconds period{5000}, deadline{10000};
constexpr double busy_watts = 150;  // below this, PCIe links may sleep at a lower speed

Report gpu(const char* code, const std::string& device, Severity severity, Action action, const std::string& words) {
  return report_of(Part::gpu, code, device, severity, action, fmt::format("gpu {} {}", device, words));
}

const char* recovery_words(unsigned action) {
  constexpr const char* words[] = {"none", "GPU reset", "node reboot", "drain of peer-to-peer", "drain and reset"};
  return action < std::size(words) ? words[action] : "unknown";
}

double grown(const std::optional<uint64_t>& before, const std::optional<uint64_t>& now) {
  return before && now && *now > *before ? static_cast<double>(*now - *before) : 0;
}

void judge(const std::string& device, const GpuState* first, const GpuState* last, const GpuState& g, ProbeResult& out) {
  const auto add = [&](const char* code, Severity severity, Action action, std::string words) {
    out.reports[fmt::format("{}/{}", device, code)] = gpu(code, device, severity, action, std::move(words));
  };
  if (g.lost) return add("gpu_lost", Severity::fatal, Action::drain, "is lost: NVML cannot reach it any more");
  if (g.needs_reset) add("reset_required", Severity::fatal, Action::drain, "requires a reset, says NVML");
  if (g.recovery_action && *g.recovery_action != 0)
    add("recovery_action", *g.recovery_action == 3 ? Severity::error : Severity::fatal, *g.recovery_action == 3 ? Action::restart : Action::drain,
        fmt::format("needs recovery: {}", recovery_words(*g.recovery_action)));
  if (g.remap_failed) add("remap_failed", Severity::fatal, Action::drain, "could not remap a row of its memory");
  if (g.remap_pending) add("remap_pending", Severity::warning, Action::alert, "remaps a row of its memory at its next reset");
  if (g.pages_pending) add("pages_pending", Severity::warning, Action::alert, "retires pages of its memory at its next reset");
  if (last != nullptr && grown(last->uncorrected, g.uncorrected) > 0)
    add("ecc_uncorrected", Severity::error, Action::restart, fmt::format("has {} uncorrected memory errors, {} more than before", *g.uncorrected, grown(last->uncorrected, g.uncorrected)));
  if (first != nullptr)
    for (const auto& [link, active] : first->links)
      if (const auto now = g.links.find(link); active && now != g.links.end() && !now->second)
        out.reports[fmt::format("{}/nvlink/{}", device, link)] = gpu("nvlink_down", device, Severity::fatal, Action::drain, fmt::format("NVLink {} is down, which was up", link));
  if (g.pcie_width && g.pcie_max_width && *g.pcie_width < *g.pcie_max_width)
    add("pcie_width", Severity::error, Action::alert, fmt::format("has PCIe width x{} of x{}", *g.pcie_width, *g.pcie_max_width));
  if (g.watts.value_or(0) > busy_watts && g.pcie_generation && g.pcie_max_generation && *g.pcie_generation < *g.pcie_max_generation)
    add("pcie_speed", Severity::error, Action::alert, fmt::format("runs PCIe generation {} of {} under load", *g.pcie_generation, *g.pcie_max_generation));
  if ((g.throttle & nvml::throttle_hw_power_brake) != 0) add("power_brake", Severity::warning, Action::alert, "is slowed down by the power supply (HW power brake)");
  else if ((g.throttle & nvml::throttle_hw_thermal) != 0) add("thermal_slowdown", Severity::warning, Action::alert, fmt::format("is slowed down by heat, at {} C", g.temperature.value_or(0)));
  else if ((g.throttle & nvml::throttle_hw_slowdown) != 0) add("hw_slowdown", Severity::warning, Action::alert, "is slowed down by its hardware");
  if (g.temperature && g.slowdown_temperature && *g.slowdown_temperature > 0 && *g.temperature >= *g.slowdown_temperature)
    add("temperature", Severity::error, Action::alert, fmt::format("has {} C; it slows down at {} C", *g.temperature, *g.slowdown_temperature));

  const auto metric = [&](const char* name, double value) { out.metrics[fmt::format("mm_gpu_{}{{gpu=\"{}\"}}", name, device)] = value; };
  if (g.temperature) metric("temperature_celsius", *g.temperature);
  if (g.watts) metric("power_watts", *g.watts);
  if (g.sm_clock) metric("sm_clock_mhz", *g.sm_clock);
  if (g.corrected) metric("ecc_corrected_total", static_cast<double>(*g.corrected));
  if (g.uncorrected) metric("ecc_uncorrected_total", static_cast<double>(*g.uncorrected));
  if (g.pcie_replays) metric("pcie_replays_total", *g.pcie_replays);
  metric("processes", g.processes);
  if (last == nullptr) return;
  if (const double n = grown(last->corrected, g.corrected); n > 0) out.corrected[{device, "ecc"}] = n;
  if (last->pcie_replays && g.pcie_replays && *g.pcie_replays > *last->pcie_replays) out.corrected[{device, "pcie_replay"}] = *g.pcie_replays - *last->pcie_replays;
  double link_errors = 0;
  for (const auto& [link, errors] : g.link_errors)
    if (const auto before = last->link_errors.find(link); before != last->link_errors.end() && errors > before->second) link_errors += static_cast<double>(errors - before->second);
  if (link_errors > 0) out.corrected[{device, "nvlink"}] = link_errors;
}

}  // namespace

ProbeResult judge_gpus(const GpuStates& first, const GpuStates& last, const GpuStates& now) {
  ProbeResult out;
  const auto find = [](const GpuStates& states, const std::string& device) {
    const auto at = states.find(device);
    return at == states.end() ? nullptr : &at->second;
  };
  for (const auto& [device, state] : now) judge(device, find(first, device), find(last, device), state, out);
  for (const auto& [device, state] : first)
    if (!now.contains(device))
      out.reports[device + "/gpu_lost"] = gpu("gpu_lost", device, Severity::fatal, Action::drain, "has disappeared: NVML does not list it any more");
  out.metrics["mm_gpus"] = static_cast<double>(now.size());
  return out;
}

std::optional<Probe> gpu_probe(const std::shared_ptr<Nvml>& library) {
  if (!library) return std::nullopt;
  struct Memory {
    std::mutex mutex;
    std::string doing;
    std::optional<GpuStates> first;
    GpuStates last;
    TemperatureDrift drift;
  };
  auto memory = std::make_shared<Memory>();
  Probe probe;
  probe.name = "gpu";
  probe.period = period;
  probe.deadline = deadline;
  probe.run = [library, memory] {
    GpuStates now = library->read([&](const std::string& call) {
      const std::lock_guard lock(memory->mutex);
      memory->doing = call;
    });
    if (!memory->first) memory->first = memory->last = now;
    ProbeResult out = judge_gpus(*memory->first, memory->last, now);
    for (const auto& [device, d] : memory->drift.look(now, std::chrono::duration<double>(period).count()))
      out.reports[device + "/predict_temperature"] =
          gpu("predict_temperature", device, Severity::warning, Action::checkpoint,
              fmt::format("is {:.0f} C hotter than usual against its peers at the same power (usually {:+.0f} C): its cooling may fail", d.degrees, d.usual));
    memory->last = std::move(now);
    return out;
  };
  probe.doing = [memory] {
    const std::lock_guard lock(memory->mutex);
    return memory->doing;
  };
  return probe;
}

}  // namespace mm::agent
