// SPDX-License-Identifier: Apache-2.0
#include "agent/probes/host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "agent/probes/sysfs.h"

namespace mm::agent {
namespace {

constexpr milliseconds period{10000}, deadline{5000};
constexpr double least_memory = 0.02;      // of all, that must be available
constexpr double stalled_percent = 25;     // of the last ten seconds, all tasks together waited for memory
constexpr int runs_in_d = 6;               // the same process in state D at so many runs on end
constexpr int sustained_runs = 6;
constexpr double usual_factor = 3;         // load against the node's own average
constexpr double learning = 0.01;
constexpr double high_memory = 0.85, unusual_memory = 0.15;  // used shares: this much, and this much more than usual

Report node(const char* code, Severity severity, std::string words) {
  Report r;
  r.code = code;
  r.severity = severity;
  r.evidence = {std::move(words)};
  return r;
}

double field(const std::string& text, const std::string& key) {
  const size_t at = text.find(key);
  return at == std::string::npos ? std::nan("") : std::strtod(text.c_str() + at + key.size(), nullptr);
}

struct Memory {
  std::map<std::string, int> in_d;  // pid and start time -> runs
  std::map<std::string, double> throttles;
  double usual_load = -1, usual_memory = -1, last_memory = 0;
  int high_loads = 0, high_memory = 0;
};

// High against the node's own history, which is not learnt from while it lasts.
void look_at_used_memory(double used, Memory& memory) {
  if (memory.usual_memory < 0) memory.usual_memory = used;
  const bool high = used > high_memory && used > memory.usual_memory + unusual_memory;
  memory.high_memory = high ? memory.high_memory + 1 : 0;
  memory.last_memory = used;
  if (!high) memory.usual_memory += learning * (used - memory.usual_memory);
}

void look_at_memory(const std::string& root, Memory& memory, ProbeResult& out) {
  if (const auto info = read_small(root + "/proc/meminfo")) {
    const double total = field(*info, "MemTotal:"), available = field(*info, "MemAvailable:");
    if (total > 0) out.metrics["mm_memory_available_bytes"] = available * 1024;
    if (total > 0 && available < least_memory * total)
      out.reports["memory"] = [&] {
        Report r = node("memory_low", Severity::warning, fmt::format("{:.0f} MiB of {:.0f} MiB of memory are available", available / 1024, total / 1024));
        r.part = Part::memory;
        return r;
      }();
    if (total > 0) look_at_used_memory(1 - available / total, memory);
  }
  if (memory.high_memory >= sustained_runs) {
    Report r = node("memory_high", Severity::warning, fmt::format("{:.0f} % of the memory are used, usually {:.0f} %", 100 * memory.last_memory, 100 * memory.usual_memory));
    r.part = Part::memory;
    out.reports["memory_high"] = r;
  }
  if (const auto pressure = read_small(root + "/proc/pressure/memory")) {
    const size_t full = pressure->find("full ");
    const double stalled = full == std::string::npos ? 0 : field(pressure->substr(full), "avg10=");
    out.metrics["mm_memory_stalled_percent"] = stalled;
    if (stalled > stalled_percent) {
      Report r = node("memory_pressure", Severity::warning, fmt::format("all tasks waited for memory for {:.0f} % of the last ten seconds", stalled));
      r.part = Part::memory;
      out.reports["pressure"] = r;
    }
  }
}

void look_at_processes(const std::string& root, Memory& memory, ProbeResult& out) {
  std::map<std::string, int> in_d;
  size_t zombies = 0;
  std::vector<std::string> stuck;
  for (const std::string& pid : list_folder(root + "/proc")) {
    if (pid[0] < '0' || pid[0] > '9') continue;
    const auto stat = read_line(root + "/proc/" + pid + "/stat");
    if (!stat) continue;
    const size_t close = stat->rfind(')'), open = stat->find('(');
    if (close == std::string::npos || open == std::string::npos || close + 2 >= stat->size()) continue;
    const char state = (*stat)[close + 2];
    if (state == 'Z') ++zombies;
    if (state != 'D') continue;
    // The 22nd field is the start time: a pid may come again.
    size_t at = close + 2;
    for (int i = 3; i < 22 && at != std::string::npos; ++i) at = stat->find(' ', at + 1);
    const std::string id = pid + "/" + (at == std::string::npos ? "" : stat->substr(at + 1, stat->find(' ', at + 1) - at - 1));
    const auto before = memory.in_d.find(id);
    in_d[id] = before == memory.in_d.end() ? 1 : before->second + 1;
    if (in_d[id] >= runs_in_d) stuck.push_back(fmt::format("{} ({})", pid, stat->substr(open + 1, close - open - 1)));
  }
  memory.in_d = std::move(in_d);
  out.metrics["mm_processes_stuck"] = static_cast<double>(stuck.size());
  out.metrics["mm_processes_zombie"] = static_cast<double>(zombies);
  if (!stuck.empty()) {
    const size_t count = stuck.size();
    if (count > 8) stuck.resize(8);
    out.reports["stuck"] = node("process_stuck", Severity::warning, fmt::format("{} processes hang in the kernel (state D) for a minute: {}", count, fmt::join(stuck, ", ")));
  }
}

void look_at_cpus(const std::string& root, Memory& memory, ProbeResult& out) {
  for (const std::string& cpu : list_folder(root + "/sys/devices/system/cpu")) {
    if (!cpu.starts_with("cpu") || cpu.size() < 4 || cpu[3] < '0' || cpu[3] > '9') continue;
    const auto count = read_number(root + "/sys/devices/system/cpu/" + cpu + "/thermal_throttle/package_throttle_count");
    if (!count) continue;
    const auto before = memory.throttles.find(cpu);
    if (before != memory.throttles.end() && *count > before->second && !out.reports.contains("cpu_throttled"))
      out.reports["cpu_throttled"] = node("cpu_throttled", Severity::warning, fmt::format("{} was slowed down by heat {:.0f} times since the last look", cpu, *count - before->second));
    memory.throttles[cpu] = *count;
  }
  const auto load = read_number(root + "/proc/loadavg");
  if (!load) return;
  out.metrics["mm_load"] = *load;
  // High against the node's own history, and more than its CPUs can do.
  const double cpus = static_cast<double>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  if (memory.usual_load < 0) memory.usual_load = *load;
  const bool high = *load > usual_factor * std::max(memory.usual_load, cpus);
  memory.high_loads = high ? memory.high_loads + 1 : 0;
  if (memory.high_loads >= sustained_runs)
    out.reports["load"] = node("load_high", Severity::warning, fmt::format("load {:.1f}, which is usually {:.1f}", *load, memory.usual_load));
  if (!high) memory.usual_load += learning * (*load - memory.usual_load);
}

}  // namespace

Probe host_probe(const std::string& root) {
  Probe p;
  p.name = "host";
  p.period = period;
  p.deadline = deadline;
  p.run = [root, memory = std::make_shared<Memory>()] {
    ProbeResult out;
    look_at_memory(root, *memory, out);
    look_at_processes(root, *memory, out);
    look_at_cpus(root, *memory, out);
    return out;
  };
  return p;
}

}  // namespace mm::agent
