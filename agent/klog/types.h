// SPDX-License-Identifier: Apache-2.0
// The words that every incident is told in: which part is broken (class), how bad it is (severity), what is to be done (action). Their names are
// those of the agent's JSON; severities and actions are ordered, so that of two the worse one counts.
#pragma once

#include <string_view>

namespace mm::agent {

enum class Part { app, gpu, nic, node, storage, memory, clock, slurm, peer };
enum class Severity { info, warning, error, fatal };
enum class Action { ignore, alert, checkpoint, restart, requeue, drain };

constexpr std::string_view name(Part part) {
  constexpr std::string_view names[] = {"app", "gpu", "nic", "node", "storage", "memory", "clock", "slurm", "peer"};
  return names[static_cast<int>(part)];
}
constexpr std::string_view name(Severity severity) {
  constexpr std::string_view names[] = {"info", "warning", "error", "fatal"};
  return names[static_cast<int>(severity)];
}
constexpr std::string_view name(Action action) {
  constexpr std::string_view names[] = {"ignore", "alert", "checkpoint", "restart", "requeue", "drain"};
  return names[static_cast<int>(action)];
}

}  // namespace mm::agent
