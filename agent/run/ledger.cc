// SPDX-License-Identifier: Apache-2.0
#include "agent/run/ledger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/error.h"
#include "common/files.h"
#include "common/hostlist.h"
#include "common/log.h"

namespace mm::run {
namespace {

// One write, so that a line is there as a whole or not at all. Books that cannot be kept do not stop the run.
void append(const std::string& path, const std::string& line) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  const std::string text = line + "\n";
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    log::warn("{}", system_error("append to " + path, errno).what());
}

std::string seconds(double s) {
  return s < 100 ? fmt::format("{:.1f} s", s) : fmt::format("{:.0f} s", s);
}

double rounded(double s) {
  return static_cast<double>(static_cast<int64_t>(s * 1000 + 0.5)) / 1000;
}

bool is_restart(const recovery::Action& a) {
  return a.kind == recovery::Action::Kind::restart || a.kind == recovery::Action::Kind::smaller;
}

}  // namespace

Ledger::Ledger(std::string path, double now) : path_(std::move(path)), began_(now) {}

void Ledger::requeued(double fault_time, const std::string& evidence) {
  recovery::Action action;
  action.kind = recovery::Action::Kind::restart;
  action.cause = "requeue";
  action.reason = action.evidence = evidence;
  open_ = Open{action, fault_time, {}, std::nullopt};
  reached("requeue", began_);
}

void Ledger::launched(const std::vector<std::string>& nodes, double now) {
  nodes_ = nodes;
  training_since_ = now;
  reached("stop", now);
  // Ranks that never told a step tell none now: the recovery ends here.
  if (open_ && !step_ && open_->action.cause != "requeue") book(now, std::nullopt);
}

bool Ledger::stepped(int64_t step, int64_t resumed, double now) {
  const bool recovered = open_.has_value();
  if (recovered) {
    training_since_ = now;
    reached("step", now);
    book(now, Resumed{step, resumed});
  }
  step_ = step;
  return recovered;
}

void Ledger::reached(const char* name, double now) {
  if (!open_) return;
  auto& parts = open_->parts;
  if (std::none_of(parts.begin(), parts.end(), [&](const auto& p) { return std::string_view(p.first) == name; })) parts.emplace_back(name, now);
}

void Ledger::asks_for_requeue(const recovery::Action& action, double now) {
  if (open_) book(now, std::nullopt);
  nlohmann::ordered_json line = {{"time", rounded(now)},      {"event", "requeue"},      {"cause", action.cause},
                                 {"reason", action.reason},   {"excluded", action.exclude}, {"restarts", restarts_}};
  if (step_) line["step_before"] = *step_;
  last_line_ = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (!path_.empty()) append(path_, last_line_);
}

void Ledger::fault(const recovery::Action& action, double fault_time, double known, double now) {
  fault_time = std::clamp(fault_time, training_since_.value_or(began_), now);
  // A fault during recovery: the earlier one ends here, and has cost all until now.
  if (open_)
    book(fault_time, std::nullopt);
  else if (training_since_)
    training_ += fault_time - *training_since_;
  training_since_.reset();
  open_ = Open{action, fault_time, nodes_, step_};
  reached("detect", std::clamp(known, fault_time, now));
  reached("decide", now);
  restarts_ += is_restart(action);
}

void Ledger::book(double until, std::optional<Resumed> at) {
  const recovery::Action& a = open_->action;
  last_lost_ = std::max(0.0, until - open_->fault_time);
  lost_[a.cause] += last_lost_;
  nlohmann::ordered_json line = {
      {"time", rounded(open_->fault_time)},
      {"event", is_restart(a) ? "restart" : "end"},
      {"cause", a.cause},
      {"node", a.node},
      {"evidence", a.evidence.empty() ? a.reason : a.evidence},
      {"reason", a.reason},
      {"lost_seconds", rounded(last_lost_)},
      {"nodes", compress_hostlist(open_->nodes)},
      {"excluded", a.exclude},
      {"restarts", restarts_},
  };
  if (open_->step_before) line["step_before"] = *open_->step_before;
  if (at) line["step_after"] = at->step_after;
  if (at) line["nodes_after"] = compress_hostlist(nodes_);
  if (open_->step_before && at) line["lost_steps"] = std::max<int64_t>(0, *open_->step_before - at->resumed);
  if (at) {
    nlohmann::ordered_json parts = nlohmann::ordered_json::object();
    double begin = open_->fault_time;
    for (const auto& [name, end] : open_->parts) {
      parts[name] = rounded(std::max(0.0, end - begin));
      begin = end;
    }
    line["parts"] = parts;
  }
  last_line_ = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  if (!path_.empty()) append(path_, last_line_);
  open_.reset();
}

void Ledger::abandon() {
  path_.clear();
  open_.reset();
}

std::string Ledger::close(const std::string& outcome, double now) {
  if (open_)
    book(now, std::nullopt);
  else if (training_since_)
    training_ += now - *training_since_;
  training_since_.reset();
  double lost = 0;
  std::string causes;
  for (const auto& [cause, s] : lost_) {
    lost += s;
    causes += fmt::format("{}{} {}", causes.empty() ? "" : ", ", cause, seconds(s));
  }
  return fmt::format("{}: {} restart{}, {} of training, {} lost{}", outcome, restarts_, restarts_ == 1 ? "" : "s",
                     seconds(training_), seconds(lost), causes.empty() ? "" : " (" + causes + ")");
}

int fruitless_ends(const std::string& path) {
  std::ifstream in(path);
  int count = 0;
  for (std::string line; std::getline(in, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object()) count = json.contains("step_after") ? 0 : count + 1;
  }
  return count;
}

}  // namespace mm::run
