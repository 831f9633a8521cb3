// SPDX-License-Identifier: Apache-2.0
// What a probe, or the kernel log, says of one part of this node. The desk (daemon/desk.h) makes incidents of reports.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "agent/klog/types.h"

namespace mm::agent {

struct Report {
  Part part = Part::node;
  std::string code, device;
  std::string scope;  // where it is another than its class says, see incidents/incident.h
  Severity severity = Severity::warning;
  Action action = Action::alert;
  int64_t count = 1;
  std::vector<std::string> evidence;
  std::string job;  // where it is about one
};

inline Report report_of(Part part, std::string code, std::string device, Severity severity, Action action, std::string words) {
  Report r;
  r.part = part;
  r.code = std::move(code);
  r.device = std::move(device);
  r.severity = severity;
  r.action = action;
  r.evidence = {std::move(words)};
  return r;
}

}  // namespace mm::agent
