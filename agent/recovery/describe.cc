// SPDX-License-Identifier: Apache-2.0
#include "agent/recovery/describe.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>

#include "agent/recovery/exits.h"

namespace mm::recovery {

std::string describe(const Incident& incident) {
  const std::string on = incident.node.empty() ? "a node" : incident.node;
  const std::string quoted = incident.evidence.empty() ? "" : " (" + incident.evidence + ")";
  const std::string device = incident.device.empty() ? "" : " " + incident.device;
  if (is_straggler(incident)) return on + " is slow" + quoted;
  if (incident.action == "checkpoint") return on + " may fail soon" + quoted;
  if (incident.klass == "nic") return on + " lost its training link" + device + quoted;
  if (incident.klass == "node") return on + " is gone" + quoted;
  if (incident.klass == "slurm") return on + " is not served by Slurm" + quoted;
  if (incident.klass == "gpu") return fmt::format("GPU{} of {} failed{}", device, on, quoted);
  if (incident.klass == "app" && incident.rank >= 0) return fmt::format("rank {} on {}{}", incident.rank, on, quoted);
  return fmt::format("{} has a {} fault{}{}", on, incident.klass, device.empty() ? "" : " at" + device, quoted);
}

std::string describe(const RankExit& exit) {
  std::string out = exit.rank < 0 ? std::string("a rank") : fmt::format("rank {}", exit.rank);
  if (!exit.node.empty()) out += " on " + exit.node;
  const Ending end = ending(exit.wait_status);
  if (end.signal != 0) return out + fmt::format(" was killed by signal {} ({})", end.signal, ::sigdescr_np(end.signal));
  if (end.status < 0) return out + " ended, and nobody saw how";
  return out + fmt::format(" exited with status {}{}", end.status, meaning(end.status));
}

std::string describe(const Hang& hang) {
  return fmt::format("rank {} on {} made no progress for {:.0f} s", hang.rank, hang.node, hang.seconds);
}

}  // namespace mm::recovery
