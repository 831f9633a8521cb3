// SPDX-License-Identifier: Apache-2.0
// /sys/class/infiniband/DEVICE/ports/N: "state" is "4: ACTIVE", "phys_state" is "5: LinkUp", "rate" is "400 Gb/sec (4X NDR)".
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "agent/probes/flaps.h"
#include "agent/probes/host.h"
#include "agent/probes/sysfs.h"

namespace mm::agent {
namespace {

constexpr milliseconds period{2000}, deadline{5000};
constexpr double symbol_errors_an_hour = 120;
constexpr int looks_down = 2;                // a port that restarts its link is up again by then

double now_seconds() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

struct Port {
  bool was_active = false;
  int down = 0;
  double best_rate = 0;
  std::map<std::string, double> counters;
  Flaps flaps;
  std::vector<std::pair<double, double>> symbol_errors;  // when, how many
};

// The PCI address behind /sys/class/infiniband/mlx5_0/device; else the name.
std::string address_of(const std::string& folder, const std::string& name) {
  const auto event = read_small(folder + "/device/uevent");
  const size_t at = event ? event->find("PCI_SLOT_NAME=") : std::string::npos;
  return at == std::string::npos ? name : event->substr(at + 14, event->find('\n', at) - at - 14);
}

void look(const std::string& folder, const std::string& name, const std::string& device, Port& port, ProbeResult& out) {
  const auto add = [&](const char* code, Severity severity, Action action, std::string words) {
    out.reports[name + "/" + code] = report_of(Part::nic, code, device, severity, action, std::move(words));
  };
  const std::string state = read_line(folder + "/state").value_or("");
  if (state.empty()) return;
  const bool active = state.find("ACTIVE") != std::string::npos;
  port.down = active ? 0 : port.down + 1;
  if (port.was_active && port.down >= looks_down)
    add("port_down", Severity::fatal, Action::drain, fmt::format("nic {} port {} is down ({}; {}), which was active", device, name, state, read_line(folder + "/phys_state").value_or("")));
  port.was_active |= active;
  const double rate = read_number(folder + "/rate").value_or(0);
  if (active && rate > 0) {
    if (port.best_rate > 0 && rate < port.best_rate)
      add("port_rate", Severity::error, Action::alert, fmt::format("nic {} port {} runs at {:.0f} Gb/s of {:.0f}", device, name, rate, port.best_rate));
    port.best_rate = std::max(port.best_rate, rate);
  }
  out.metrics[fmt::format("mm_port_active{{port=\"{}\"}}", name)] = active;
  const double now = now_seconds();
  double corrected = 0;
  for (const char* counter : {"link_downed", "symbol_error", "port_rcv_errors", "link_error_recovery", "local_link_integrity_errors", "excessive_buffer_overrun_errors"}) {
    const auto value = read_number(folder + "/counters/" + counter);
    if (!value) continue;  // "N/A (no PMA)", or "Invalid argument": the others count all the same
    out.metrics[fmt::format("mm_port_{}_total{{port=\"{}\"}}", counter, name)] = *value;
    const auto before = port.counters.find(counter);
    const double grown = before == port.counters.end() || *value < before->second ? 0 : *value - before->second;
    port.counters[counter] = *value;
    if (counter == std::string_view("link_downed")) port.flaps.count(*value);
    if (grown <= 0) continue;
    if (counter != std::string_view("link_downed")) corrected += grown;
    if (counter == std::string_view("symbol_error")) port.symbol_errors.emplace_back(now, grown);
  }
  if (corrected > 0) out.corrected[{device, "link"}] = corrected;
  std::erase_if(port.symbol_errors, [&](const auto& e) { return now - e.first > 3600; });
  double symbols = 0;
  for (const auto& [when, n] : port.symbol_errors) symbols += n;
  if (symbols > symbol_errors_an_hour) add("symbol_errors", Severity::error, Action::checkpoint, fmt::format("nic {} port {} had {:.0f} symbol errors within the hour", device, name, symbols));
  if (const int64_t n = port.flaps.recent(); n > 0) {
    Report r = report_of(Part::nic, "link_flap", device, Severity::warning, n >= 3 ? Action::checkpoint : Action::alert, fmt::format("nic {} port {} lost its link {} times", device, name, n));
    r.count = n;
    out.reports[name + "/link_flap"] = r;
  }
}

}  // namespace

Probe port_probe(const std::string& root) {
  Probe p;
  p.name = "ports";
  p.period = period;
  p.deadline = deadline;
  struct Memory {
    std::map<std::string, Port> ports;
    std::map<std::string, std::string> addresses;
  };
  p.run = [root, memory = std::make_shared<Memory>()] {
    ProbeResult out;
    const std::string base = root + "/sys/class/infiniband";
    for (const std::string& device : list_folder(base)) {
      auto& address = memory->addresses[device];
      if (address.empty()) address = address_of(base + "/" + device, device);
      for (const std::string& number : list_folder(base + "/" + device + "/ports"))
        look(base + "/" + device + "/ports/" + number, device + "/" + number, address, memory->ports[device + "/" + number], out);
    }
    return out;
  };
  return p;
}

}  // namespace mm::agent
