// SPDX-License-Identifier: Apache-2.0
#include "agent/run/agent_link.h"

#include <poll.h>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/hostlist.h"

namespace mm::run {
namespace {

using namespace std::chrono_literals;

bool readable(int fd) {
  pollfd p = {fd, POLLIN, 0};
  return ::poll(&p, 1, 0) > 0;
}

std::vector<std::string> hosts(const KeyValues& values, const char* key) {
  try {
    return expand_hostlist(get(values, key));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

bool AgentLink::watch() {
  if (watch_) return true;
  try {
    auto client = std::make_unique<AgentClient>(socket_);
    const KeyValues answer = client->request({{"VERB", "watch"}, {"JOB", job_}}, 1s);
    if (get(answer, "OK") != "1") {
      why_not_ = get(answer, "ERROR", "agent refused to be watched");
      return false;
    }
    watch_ = std::move(client);
  } catch (const Error& e) {
    why_not_ = e.what();
  }
  return watch_ != nullptr;
}

std::vector<KeyValues> AgentLink::events() {
  std::vector<KeyValues> out;
  try {
    while (watch_ && readable(watch_->fd())) out.push_back(watch_->receive(1s));
  } catch (const Error& e) {
    why_not_ = e.what();
    watch_.reset();
  }
  return out;
}

std::optional<KeyValues> AgentLink::ask(const KeyValues& message, std::chrono::milliseconds deadline) {
  try {
    KeyValues answer = AgentClient(socket_).request(message, deadline);
    if (get(answer, "OK") == "1") return answer;
    why_not_ = get(answer, "ERROR", "agent refused");
  } catch (const Error& e) {
    why_not_ = e.what();
  }
  return std::nullopt;
}

std::optional<AgentLink::Probe> AgentLink::probe(const std::vector<std::string>& nodes) {
  const auto answer = ask({{"VERB", "probe"}, {"NODES", compress_hostlist(nodes)}}, 3s);
  if (!answer) return std::nullopt;
  Probe out;
  out.good = hosts(*answer, "GOOD");
  for (const std::string& node : hosts(*answer, "BAD")) out.why_bad[node] = get(*answer, "WHY_" + node, "does not answer");
  for (const std::string& node : hosts(*answer, "DOUBTFUL")) out.doubtful[node] = get(*answer, "WHY_" + node, "its failure is foretold");
  return out;
}

std::optional<int> AgentLink::spares_of_run(int requeues) {
  constexpr std::chrono::milliseconds patience = 3s, pause = 100ms;
  const auto end = std::chrono::steady_clock::now() + patience;
  do {
    const auto answer = ask({{"VERB", "status"}, {"JOB", job_}}, 1s);
    if (!answer) return std::nullopt;
    const auto status = nlohmann::json::parse(get(*answer, "JSON"), nullptr, false);
    if (!status.is_object() || !status.contains("jobs")) return std::nullopt;
    for (const auto& job : status["jobs"])
      if (job.value("job", "") == job_ && job.value("restarts", 0) >= requeues) return job.value("spares", 0);
    ::poll(nullptr, 0, static_cast<int>(pause.count()));
  } while (std::chrono::steady_clock::now() < end);
  return std::nullopt;
}

std::optional<AgentLink::Killed> AgentLink::kill(const std::string& step) {
  KeyValues message = {{"VERB", "kill"}, {"JOB", job_}};
  if (!step.empty()) message["STEP"] = step;
  const auto answer = ask(message, 3s);
  if (!answer) return std::nullopt;
  return Killed{get_int(*answer, "KILLED", 0), hosts(*answer, "LATE")};
}

bool AgentLink::ask_to_save(const std::string& why) {
  return ask({{"VERB", "save"}, {"JOB", job_}, {"WHY", why}}, 3s).has_value();
}

bool AgentLink::requeue(const std::vector<std::string>& exclude, const std::string& why) {
  return ask({{"VERB", "requeue"}, {"JOB", job_}, {"EXCLUDE", compress_hostlist(exclude)}, {"WHY", why}}, 3s).has_value();
}

}  // namespace mm::run
