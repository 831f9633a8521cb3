// SPDX-License-Identifier: Apache-2.0
// The part of Agent that Prometheus sees. Names are documented in mm-agentd(8).
#include <fmt/format.h>

#include <iterator>

#include "agent/daemon/agent.h"
#include "common/version.h"

namespace mm::agent {

std::string Agent::metrics_text() const {
  std::map<std::string, double> all = hardware_ ? hardware_->metrics() : std::map<std::string, double>();
  all[fmt::format("mm_agent_info{{version=\"{}\",node=\"{}\"}}", version(), c_.node)] = 1;
  all["mm_node_fit"] = health_.problems().empty();
  all["mm_jobs"] = static_cast<double>(c_.registry.size());
  for (const auto& [key, open] : desk_.open())
    all[fmt::format("mm_incidents_open{{class=\"{}\",severity=\"{}\",action=\"{}\"}}", name(open.report.part), name(open.report.severity), name(open.report.action))] += 1;
  for (const std::string& nic : c_.site.training_interfaces) all[fmt::format("mm_interface_carrier{{interface=\"{}\"}}", nic)] = health_.nics().state(nic).carrier;
  for (const auto& [count, n] : incident_counts_) all[fmt::format("mm_incidents_total{{class=\"{}\"}}", count)] = static_cast<double>(n);
  const auto now = Clock::now();
  for (const auto& [peer, heard] : c_.contacts.all()) all[fmt::format("mm_peer_heard_seconds{{peer=\"{}\"}}", peer)] = c_.contacts.age(peer, now);
  all["mm_slurmd_listens"] = health_.slurmd_listens();
  all["mm_kernel_log_lines_total"] = kernel_ ? static_cast<double>(kernel_->lines()) : 0;
  all["mm_kernel_log_overruns_total"] = kernel_ ? static_cast<double>(kernel_->lost()) : 0;
  const Mesh::Counts& counts = c_.mesh.counts();
  all["mm_datagrams_sent_total"] = static_cast<double>(counts.sent);
  all["mm_datagrams_received_total"] = static_cast<double>(counts.received);
  all["mm_datagrams_refused_total"] = static_cast<double>(counts.refused);
  std::string out, family;
  for (const auto& [name, value] : all) {
    const std::string base = name.substr(0, name.find('{'));
    if (base != family) fmt::format_to(std::back_inserter(out), "# TYPE {} {}\n", base, base.ends_with("_total") ? "counter" : "gauge");
    family = base;
    fmt::format_to(std::back_inserter(out), "{} {}\n", name, value);
  }
  return out;
}

}  // namespace mm::agent
