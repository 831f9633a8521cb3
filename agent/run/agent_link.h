// SPDX-License-Identifier: Apache-2.0
// mm-run's side of the local agent: one connection that watches the job, kept up while the agent comes and goes, and a
// short-lived one for each request. Nothing here throws: an agent that does not answer is an answer.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/agent_client.h"

namespace mm::run {

class AgentLink {
 public:
  AgentLink(std::string socket, std::string job) : socket_(std::move(socket)), job_(std::move(job)) {}

  // Tries to begin watching; true where it does (already); why_not() says why where it does not.
  bool watch();
  bool watching() const { return watch_ != nullptr; }
  int fd() const { return watch_ ? watch_->fd() : -1; }
  const std::string& why_not() const { return why_not_; }
  // The spares that the job's run number `requeues` has. A run that begins is known to the agent at once, but not its number:
  // the agent asks slurmctld for it, which is waited for.
  std::optional<int> spares_of_run(int requeues);
  // What has arrived. Stops watching where the agent has gone.
  std::vector<KeyValues> events();

  struct Probe {
    std::vector<std::string> good;
    std::map<std::string, std::string> why_bad;
    std::map<std::string, std::string> doubtful;  // good ones of which a failure is foretold, and how
  };
  std::optional<Probe> probe(const std::vector<std::string>& nodes);

  struct Killed {
    int64_t ranks = 0;
    std::vector<std::string> late;  // nodes that did not answer
  };
  std::optional<Killed> kill(const std::string& step);

  // The ranks that listen are asked to save a checkpoint soon; `why` is for people.
  bool ask_to_save(const std::string& why);
  // The job is requeued as soon as this run of it has ended, without the nodes of `exclude`; false where the agent will not, or is away.
  bool requeue(const std::vector<std::string>& exclude, const std::string& why);

 private:
  std::optional<KeyValues> ask(const KeyValues& message, std::chrono::milliseconds deadline);

  std::string socket_, job_, why_not_;
  std::unique_ptr<AgentClient> watch_;
};

}  // namespace mm::run
