// SPDX-License-Identifier: Apache-2.0
#include "agent/slurm/parse.h"

#include <algorithm>
#include <charconv>
#include <ctime>

#include "common/hostlist.h"

namespace mm::agent {
namespace {

std::vector<std::string_view> lines(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (const std::string_view line = text.substr(0, end); !line.empty()) out.push_back(line);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return out;
}

// The word after " KEY=" or at the start of the line; empty where absent or "(null)".
std::string word(std::string_view line, std::string_view key) {
  const std::string pattern = std::string(key) + "=";
  for (size_t at = line.find(pattern); at != std::string_view::npos; at = line.find(pattern, at + 1)) {
    if (at != 0 && line[at - 1] != ' ') continue;
    const std::string_view value = line.substr(at + pattern.size());
    std::string out(value.substr(0, value.find(' ')));
    return out == "(null)" ? "" : out;
  }
  return "";
}

int64_t number(std::string_view text, int64_t otherwise = 0) {
  int64_t out = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}

// " Reason=text of any words [root@2026-11-30T09:14:28]", and perhaps more keys behind it. The text is a person's: it may hold anything.
std::string reason_of(std::string_view line, double& time) {
  const size_t at = line.find(" Reason=");
  if (at == std::string_view::npos) return "";
  std::string_view rest = line.substr(at + 8);
  for (size_t open = rest.rfind(" ["); open != std::string_view::npos && open > 0; open = rest.rfind(" [", open - 1)) {
    const std::string_view mark = rest.substr(open + 2);
    const size_t sign = mark.find('@'), close = mark.find(']');
    if (sign == std::string_view::npos || close == std::string_view::npos || sign > close || mark.substr(0, close).find(' ') != std::string_view::npos) continue;
    tm when = {};
    when.tm_isdst = -1;
    if (::strptime(std::string(mark.substr(sign + 1, close - sign - 1)).c_str(), "%Y-%m-%dT%H:%M:%S", &when) != nullptr) time = static_cast<double>(::mktime(&when));
    return std::string(rest.substr(0, open));
  }
  while (!rest.empty() && rest.back() == ' ') rest.remove_suffix(1);
  return std::string(rest);
}

// Everything in front of the reason: a reason that quotes "State=DOWN" must not count.
std::string_view before_reason(std::string_view line) { return line.substr(0, line.find(" Reason=")); }

}  // namespace

bool NodeRecord::has(std::string_view flag) const { return std::find(state.begin(), state.end(), flag) != state.end(); }

std::vector<NodeRecord> parse_nodes(std::string_view text) {
  std::vector<NodeRecord> out;
  for (std::string_view line : lines(text)) {
    const std::string_view head = before_reason(line);
    NodeRecord node;
    node.name = word(head, "NodeName");
    if (node.name.empty()) continue;
    node.address = word(head, "NodeAddr");
    node.port = static_cast<uint16_t>(number(word(head, "Port"), 6818));
    node.reason = reason_of(line, node.reason_time);
    std::string_view state_text;
    const std::string state = word(head, "State");
    state_text = state;
    while (!state_text.empty()) {
      const size_t plus = state_text.find('+');
      std::string flag(state_text.substr(0, plus));
      // A mark such as '*' (does not respond) ends a base state.
      while (!flag.empty() && (flag.back() < 'A' || flag.back() > 'Z')) flag.pop_back();
      node.state.push_back(std::move(flag));
      state_text.remove_prefix(plus == std::string_view::npos ? state_text.size() : plus + 1);
    }
    out.push_back(std::move(node));
  }
  return out;
}

std::optional<JobRecord> parse_job(std::string_view text) {
  for (std::string_view line : lines(text)) {
    JobRecord job;
    job.id = word(line, "JobId");
    if (job.id.empty()) continue;
    // JobName, Comment and Command are the user's words and might imitate a key; what counts stands before or is unique enough.
    job.state = word(line, "JobState");
    job.restarts = static_cast<int>(number(word(line, "Restarts")));
    job.requeue = word(line, "Requeue") == "1";
    job.has_batch = word(line, "BatchFlag") != "0" && !word(line, "BatchFlag").empty();
    const std::string nodes = word(line, "NodeList");
    if (!nodes.empty()) job.nodes = expand_hostlist(nodes);
    job.batch_host = word(line, "BatchHost");
    job.excluded = word(line, "ExcNodeList");
    job.tasks = static_cast<int>(number(word(line, "NumTasks")));
    job.tasks_per_node = static_cast<int>(number(word(line, "NtasksPerN:B:S:C")));
    job.cpus_per_task = static_cast<int>(number(word(line, "CPUs/Task"), 1));
    return job;
  }
  return std::nullopt;
}

SlurmConfig parse_config(std::string_view text) {
  SlurmConfig config;
  for (std::string_view line : lines(text)) {
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    std::string_view key = line.substr(0, equals), value = line.substr(equals + 1);
    while (!key.empty() && key.back() == ' ') key.remove_suffix(1);
    while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    if (key == "SlurmctldHost[0]") {
      // "name(address)" or "name"
      const size_t open = value.find('('), close = value.find(')');
      config.controller = open != std::string_view::npos && close != std::string_view::npos ? value.substr(open + 1, close - open - 1) : value;
    } else if (key == "SlurmctldPort") {
      config.controller_port = static_cast<uint16_t>(number(value, 6817));
    } else if (key == "UnkillableStepTimeout") {
      config.unkillable_step_timeout = static_cast<int>(number(value));
    } else if (key == "SlurmdSpoolDir") {
      config.spool = value;
    } else if (key == "TmpFS") {
      config.temporary = value;
    } else if (key == "PMIxCliTmpDirBase" && value != "(null)") {
      config.pmix_clients = value;
    } else if (key == "AuthInfo") {
      const size_t at = value.find("socket=");
      if (at != std::string_view::npos) config.munge_socket = value.substr(at + 7, value.substr(at + 7).find_first_of(", "));
    }
  }
  return config;
}

}  // namespace mm::agent
