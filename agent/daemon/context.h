// SPDX-License-Identifier: Apache-2.0
// What the parts of the daemon share: who this node is, what it knows of jobs, and the ways to tell others. Each part gets a reference; all
// of it is used in the loop's thread only.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "agent/incidents/journal.h"
#include "agent/loop.h"
#include "agent/peers/contact.h"
#include "agent/peers/mesh.h"
#include "agent/registry/registry.h"
#include "agent/slurm/commands.h"
#include "common/site.h"

namespace mm::agent {

struct Condemned {
  std::string evidence;
  Clock::time_point since;
};

struct Context {
  Loop& loop;
  Site site;
  std::string node;
  Slurm slurm;
  SlurmConfig slurm_config;  // empty until Slurm has answered once
  Registry registry;
  Journal journal;
  Mesh mesh;
  Contacts contacts;
  std::map<std::string, Condemned> condemned;    // nodes found silent; until they are heard again
  Clock::time_point judge_after;                 // no verdict on anyone before: this agent itself was late
  std::function<void()> registry_changed;        // saves it, some milliseconds later

  bool may_judge() const { return Clock::now() >= judge_after; }
  bool is_live(const std::string& peer) const { return peer == node || !condemned.contains(peer); }
  // Asks every node of `nodes` but this one; `done` gets the answers by node when all have answered or the deadline has passed.
  using Answers = std::map<std::string, std::optional<KeyValues>>;
  void ask_all(const std::vector<std::string>& nodes, const KeyValues& message, milliseconds deadline, std::function<void(const Answers&)> done);
};

}  // namespace mm::agent
