// SPDX-License-Identifier: Apache-2.0
#include "agent/incidents/incident.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

namespace mm::agent {

KeyValues message_from_incident(const Incident& i) {
  KeyValues out = {{"EVENT", "incident"},   {"ID", std::to_string(i.id)}, {"ORIGIN", i.origin}, {"CLASS", i.kind},       {"SCOPE", scope_of(i)},
                   {"DEVICE", i.device},    {"SEVERITY", i.severity},     {"ACTION", i.action}, {"NODE", i.node},
                   {"TIME", fmt::format("{:.6f}", i.time)}, {"EVIDENCE", fmt::format("{}", fmt::join(i.evidence, "\n"))}};
  if (!i.code.empty()) out["CODE"] = i.code;
  if (i.count != 1) out["COUNT"] = std::to_string(i.count);
  if (!i.job.empty()) out["JOB"] = i.job;
  if (!i.step.empty()) out["STEP"] = i.step;
  if (i.rank >= 0) out["RANK"] = std::to_string(i.rank);
  return out;
}

Incident incident_from_message(const KeyValues& m) {
  Incident i;
  i.id = get_int(m, "ID", 0);
  i.origin = get(m, "ORIGIN");
  i.kind = get(m, "CLASS");
  i.scope = get(m, "SCOPE");
  i.code = get(m, "CODE");
  i.count = get_int(m, "COUNT", 1);
  i.device = get(m, "DEVICE");
  i.severity = get(m, "SEVERITY");
  i.action = get(m, "ACTION");
  i.node = get(m, "NODE");
  i.job = get(m, "JOB");
  i.step = get(m, "STEP");
  i.rank = static_cast<int>(get_int(m, "RANK", -1));
  i.time = std::strtod(get(m, "TIME").c_str(), nullptr);
  std::string rest = get(m, "EVIDENCE");
  for (size_t end; (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1)) i.evidence.push_back(rest.substr(0, end));
  if (!rest.empty()) i.evidence.push_back(rest);
  return i;
}

std::string scope_of(const Incident& i) {
  if (!i.scope.empty()) return i.scope;
  if (i.rank >= 0 || i.kind == "app") return "rank";
  return i.kind == "gpu" && !i.device.empty() ? "gpu" : "node";
}

std::string drain_reason(const std::string& evidence, int64_t id) {
  std::string text = fmt::format("mm-agent: {} (incident {})", evidence, id);
  for (char& c : text)
    if (c == '"' || static_cast<unsigned char>(c) < ' ') c = ' ';
  return text;
}

double wall_time() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string seconds_text(double seconds) { return fmt::format("{:.1f} s", seconds); }

}  // namespace mm::agent
