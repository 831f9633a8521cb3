// SPDX-License-Identifier: Apache-2.0
#include "agent/incidents/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "agent/incidents/incident.h"
#include "common/error.h"
#include "common/files.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr size_t most_events = 4096;
constexpr int64_t block = 1000;
constexpr off_t largest_file = 16 << 20;

// Keys whose values are numbers in JSON.
bool is_number_key(const std::string& key) {
  static constexpr std::string_view keys[] = {"ID", "RANK", "STATUS", "TIME", "SECONDS", "RESTARTS", "COUNT"};
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
}

nlohmann::ordered_json to_json(int64_t number, const KeyValues& values) {
  nlohmann::ordered_json out;
  out["event"] = number;
  out["kind"] = get(values, "EVENT");
  for (const auto& [key, value] : values) {
    if (key == "EVENT") continue;
    std::string name = key;
    std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    if (key == "EVIDENCE") {
      nlohmann::ordered_json lines = nlohmann::ordered_json::array();
      for (const std::string& line : incident_from_message({{"EVIDENCE", value}}).evidence) lines.push_back(line);
      out[name] = std::move(lines);
      continue;
    }
    if (is_number_key(key)) {
      char* end = nullptr;
      const double number_value = std::strtod(value.c_str(), &end);
      if (end != value.c_str() && *end == '\0') {
        if (key == "TIME" || key == "SECONDS") out[name] = number_value;
        else out[name] = static_cast<int64_t>(number_value);
        continue;
      }
    }
    out[name] = value;
  }
  if (out["kind"] == "incident") {
    if (!out.contains("code")) out["code"] = "";
    if (!out.contains("count")) out["count"] = 1;
  }
  return out;
}

}  // namespace

Journal::Journal(Loop& loop, const std::string& state_dir, const std::string& node)
    : loop_(loop), path_(fmt::format("{}/events-{}.jsonl", state_dir, node)), numbers_path_(fmt::format("{}/numbers-{}", state_dir, node)) {
  std::error_code error;
  std::filesystem::create_directories(state_dir, error);
  if (error) throw Error(exit_status::internal, fmt::format("agent: create {}: {}", state_dir, error.message()));
  if (::access(numbers_path_.c_str(), F_OK) == 0) {
    const KeyValues saved = parse_key_values(read_file(numbers_path_));
    next_event_ = event_limit_ = get_int(saved, "EVENT", 1);
    next_incident_ = incident_limit_ = get_int(saved, "INCIDENT", 1);
  }
}

// A block is on disk before its first number is used; one small durable write in a thousand. Without it a crash would forget which were
// given out: then the clock is ahead of all of them, and of what an earlier agent took from it.
int64_t Journal::reserve(int64_t& next, int64_t& limit) {
  if (next >= limit) {
    const int64_t before = std::exchange(limit, next + block);
    try {
      write_file_durably(numbers_path_, format_key_values({{"EVENT", std::to_string(event_limit_)}, {"INCIDENT", std::to_string(incident_limit_)}}));
    } catch (const Error& e) {
      if (!std::exchange(complained_, true)) log::error("agent: numbers are not reserved on disk and come from the clock: {}", e.what());
      limit = before;  // tried again with the next number
      next = std::max(next, static_cast<int64_t>(wall_time() * 1000));
    }
  }
  return next++;
}

int64_t Journal::next_incident() { return reserve(next_incident_, incident_limit_); }

void Journal::add(const KeyValues& event) { add(event, 0, true); }
void Journal::add(const KeyValues& event, uid_t owner) { add(event, owner, false); }

void Journal::add(const KeyValues& values, uid_t owner, bool open) {
  Event event;
  event.number = reserve(next_event_, event_limit_);
  // A value may hold any bytes: what is no UTF-8 is replaced.
  event.json = to_json(event.number, values).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  event.owner = owner;
  event.open = open;
  append(event.json);
  events_.push_back(std::move(event));
  if (events_.size() > most_events) events_.pop_front();
  if (handler_) handler_(events_.back());
}

void Journal::append(const std::string& line) {
  loop_.work(Loop::Pool::disk, [path = path_, text = line + "\n"]() -> Loop::Action {
    struct stat info = {};
    if (::stat(path.c_str(), &info) == 0 && info.st_size > largest_file) ::rename(path.c_str(), (path + ".1").c_str());
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640));
    if (!fd) throw system_error("agent: open " + path, errno);
    // One write, so that lines never mix.
    if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) throw system_error("agent: append to " + path, errno);
    return {};
  });
}

}  // namespace mm::agent
