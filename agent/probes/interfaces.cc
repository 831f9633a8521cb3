// SPDX-License-Identifier: Apache-2.0
// Ethernet interfaces with hardware behind them. Carrier itself is rtnetlink's (probes/nic.h); here are speed, flaps and errors.
#include <fmt/format.h>

#include "agent/probes/ethtool.h"
#include "agent/probes/flaps.h"
#include "agent/probes/host.h"
#include "agent/probes/sysfs.h"

namespace mm::agent {
namespace {

constexpr milliseconds period{5000}, deadline{5000};
constexpr int driver_runs = 12;  // a read of the driver's counters asks its firmware, and some log each refusal

struct Interface {
  double best_speed = 0;
  std::optional<double> errors, driver_errors;
  Flaps flaps;
};

// What was added since the last look; a counter that was reset adds nothing.
double grown(std::optional<double>& before, double now) {
  const double out = before && now > *before ? now - *before : 0;
  before = now;
  return out;
}

void look(const std::string& folder, const std::string& name, bool ask_driver, Interface& i, ProbeResult& out) {
  // Mb/s; "-1", or no number, while the link is down.
  if (const double speed = read_number(folder + "/speed").value_or(-1); speed > 0) {
    out.metrics[fmt::format("mm_interface_speed_mbps{{interface=\"{}\"}}", name)] = speed;
    if (speed < i.best_speed) out.reports[name + "/speed"] = report_of(Part::nic, "interface_speed", name, Severity::error, Action::alert, fmt::format("nic {} runs at {:.0f} Mb/s of {:.0f}", name, speed, i.best_speed));
    i.best_speed = std::max(i.best_speed, speed);
  }
  if (const auto down = read_number(folder + "/carrier_down_count")) i.flaps.count(*down);
  if (const int64_t n = i.flaps.recent(); n > 0) {
    Report r = report_of(Part::nic, "link_flap", name, Severity::warning, n >= 3 ? Action::checkpoint : Action::alert, fmt::format("nic {} lost its link {} times", name, n));
    r.count = n;
    out.reports[name + "/link_flap"] = r;
  }
  double errors = 0;
  for (const char* counter : {"rx_crc_errors", "rx_frame_errors", "tx_carrier_errors"}) errors += read_number(folder + "/statistics/" + counter).value_or(0);
  double more = grown(i.errors, errors);
  if (ask_driver) more += grown(i.driver_errors, wire_errors(driver_counters(name)));
  if (more > 0) out.corrected[{name, "interface"}] = more;
  out.metrics[fmt::format("mm_interface_errors_total{{interface=\"{}\"}}", name)] = std::max(errors, i.driver_errors.value_or(0));
}

}  // namespace

Probe interface_probe(const std::string& root) {
  Probe p;
  p.name = "interfaces";
  p.period = period;
  p.deadline = deadline;
  struct Memory {
    std::map<std::string, Interface> interfaces;
    int runs = 0;
  };
  p.run = [base = root + "/sys/class/net/", memory = std::make_shared<Memory>()] {
    ProbeResult out;
    const bool ask_drivers = memory->runs++ % driver_runs == 0;
    for (const std::string& name : list_folder(base))
      if (name != "lo" && !list_folder(base + name + "/device").empty()) look(base + name, name, ask_drivers, memory->interfaces[name], out);
    return out;
  };
  return p;
}

}  // namespace mm::agent
