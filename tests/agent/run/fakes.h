// SPDX-License-Identifier: Apache-2.0
// What a test of the run loop needs: a folder with a fake srun, an agent that answers as told, and mm-run's loop in a child
// process. One thread; serve() is the only place that waits.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "agent/run/options.h"
#include "common/files.h"
#include "common/key_values.h"

namespace mm::run {

class Stage {
 public:
  Stage();
  ~Stage();

  // What the fake srun of launch k does: a piece of bash. Without one it exits with 0.
  void behave(int launch, const std::string& script);
  // A command of Slurm's that mm-run may call.
  void fake(const std::string& command, const std::string& script);
  void start(const Plan& plan);
  // Handles requests until `done` holds; false at the deadline.
  bool serve(const std::function<bool()>& done, double seconds = 20);
  // Serves until mm-run ends; its exit status, or -1 at the deadline.
  int wait();
  void signal(int number) const;

  void open_agent();
  void close_agent();
  void emit(const KeyValues& event);  // to all who watch

  bool launched(int launch) const;
  std::string argv(int launch) const, environment(int launch) const;  // a line each
  std::string messages() const;                                       // of mm-run and of srun
  std::vector<std::string> lines_of(const std::string& file) const;

  std::string folder, socket;
  std::vector<std::string> bad;  // nodes that a probe calls bad
  bool answer_kill = true;
  std::vector<KeyValues> kills, requests;  // requests seen: those to kill, and all but probes
  int asked(const std::string& verb) const;  // how often
  bool watched = false;

 private:
  void handle(int fd);

  UniqueFd listen_;
  std::map<int, UniqueFd> clients_;
  std::vector<int> watchers_;
  pid_t child_ = -1;
  int status_ = 0;
};

Plan plan_of(const Stage& stage, int nodes, int spares);

}  // namespace mm::run
