// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/step_agent.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "spank_plugin/spank.h"

namespace mm::spank {
namespace {

constexpr std::chrono::milliseconds answer_deadline{500};
constexpr std::chrono::milliseconds send_deadline{50};  // for an agent that has read nothing for some thousand messages

void hear(const KeyValues& answer, const std::string& of) {
  if (get(answer, "OK") != "1") slurm_info("mm-train: agent: %s: %s", of.c_str(), get(answer, "ERROR").c_str());
}

}  // namespace

void StepAgent::ask(const KeyValues& message) {
  deliver(message, true);
}

void StepAgent::tell(KeyValues message) {
  message.emplace("QUIET", "1");
  deliver(message, false);
}

void StepAgent::started(const KeyValues& step, StartedTask task, size_t tasks) {
  started_.push_back(task);
  if (started_.size() < tasks) return;
  KeyValues message = step;
  std::string &ranks = message["RANK"], &local_ranks = message["LOCAL_RANK"], &pids = message["PID"];
  for (const StartedTask& t : std::exchange(started_, {})) {
    const char* comma = ranks.empty() ? "" : ",";
    ranks += fmt::format("{}{}", comma, t.rank);
    local_ranks += fmt::format("{}{}", comma, t.local_rank);
    pids += fmt::format("{}{}", comma, t.pid);
  }
  tell(std::move(message));
}

void StepAgent::hear_refusals() {
  while (const std::optional<KeyValues> answer = client_->try_receive()) hear(*answer, "an earlier message");
}

void StepAgent::deliver(const KeyValues& message, bool wants_answer) {
  const std::string verb = get(message, "VERB");
  if (std::exchange(phase_, verb) != verb) failed_ = false;
  for (int attempt = client_ ? 0 : 1; attempt < 2 && !failed_; ++attempt) try {
      if (!client_) client_.emplace(socket_path_);
      hear_refusals();
      if (wants_answer)
        hear(client_->request(message, answer_deadline), verb);
      else
        client_->send(message, send_deadline);
      return;
    } catch (const std::exception& e) {
      client_.reset();
      failed_ = attempt == 1;
      if (failed_) slurm_info("mm-train: %s", e.what());
    }
}

}  // namespace mm::spank
