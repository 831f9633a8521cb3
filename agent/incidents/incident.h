// SPDX-License-Identifier: Apache-2.0
// One fault as the agents agreed on it: what is broken, how bad, what to do about it, and every line of evidence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/key_values.h"

namespace mm::agent {

struct Incident {
  int64_t id = 0;        // unique among those of `origin`
  std::string origin;    // node whose agent opened it
  std::string kind;      // its class: app, gpu, nic, node, storage, memory, clock, slurm, peer
  std::string scope;     // how far it reaches: rank, gpu, node, switch; empty: see scope_of
  std::string code;      // what it is: an Xid's number, "aer_fatal", ...; may be empty
  std::string device;    // such as "eth1"; may be empty
  std::string severity;  // info, warning, error, fatal
  std::string action;    // ignore, alert, checkpoint, restart, requeue, drain
  std::string node;      // node that it is about
  std::string job, step; // where it is about one
  int rank = -1;
  double time = 0;       // seconds since 1970
  int64_t count = 1;     // events that it stands for
  std::vector<std::string> evidence;
};

KeyValues message_from_incident(const Incident& incident);
Incident incident_from_message(const KeyValues& message);

// Where the incident does not say: a rank's own is of the rank, a GPU's of the GPU, any other of the node.
std::string scope_of(const Incident& incident);

// What is written as a node's reason: "mm-agent: nic eth1 carrier lost ... (incident 7)", one line, no double quote.
std::string drain_reason(const std::string& evidence, int64_t id);
// Seconds since 1970.
double wall_time();
// 2.06 -> "2.1 s"
std::string seconds_text(double seconds);

}  // namespace mm::agent
