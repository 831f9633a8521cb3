// SPDX-License-Identifier: Apache-2.0
// Where a rank says how far it is: to the node's agent, which watches for hangs, and to the person at the terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/agent_client.h"
#include "trainer/loop/metrics.h"

namespace mm::loop {

// Progress to the agent at MM_AGENT_SOCKET; without it does nothing. Never holds the rank up and never fails: an agent that is
// gone is looked for again, once a second, and then told all that it has missed.
class AgentReporter {
 public:
  AgentReporter();
  void say(const KeyValues& news);
  // What the agent has to say to this rank (agent_client.h, ADVICE); nothing where it says nothing.
  std::optional<KeyValues> advice();

 private:
  std::string socket_;
  std::optional<AgentClient> agent_;
  KeyValues state_;
  std::chrono::steady_clock::time_point next_try_{};
};

// A line for people on stderr: on a terminal one that is rewritten, with a bar.
class Console {
 public:
  Console(bool speaks, int64_t first_step, int64_t steps, int64_t every);
  ~Console();
  void step_done(const StepMetrics& metrics);
  // Ends the line that is rewritten, so that a message can follow.
  void end_line();

 private:
  bool speaks_, terminal_, open_ = false;
  int64_t first_step_, steps_, every_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// "4 s", "2:05", "1:02:03"
std::string format_duration(double seconds);

}  // namespace mm::loop
