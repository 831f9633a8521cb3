// SPDX-License-Identifier: Apache-2.0
#include "agent/incidents/incident_json.h"

#include <nlohmann/json.hpp>

namespace mm::agent {

nlohmann::ordered_json json_from_incident(const Incident& i) {
  nlohmann::ordered_json out = {{"id", i.id},         {"time", i.time},         {"node", i.node},     {"class", i.kind},   {"code", i.code},
                                {"device", i.device}, {"severity", i.severity}, {"action", i.action}, {"count", i.count}, {"scope", scope_of(i)},
                                {"job", i.job},       {"evidence", i.evidence}};
  if (!i.step.empty()) out["step"] = i.step;
  if (i.rank >= 0) out["rank"] = i.rank;
  return out;
}

Incident incident_from_json(const nlohmann::ordered_json& json) {
  Incident i;
  i.id = json.at("id");
  i.time = json.at("time");
  i.node = i.origin = json.at("node");
  i.kind = json.at("class");
  i.scope = json.at("scope");
  i.code = json.at("code");
  i.device = json.at("device");
  i.severity = json.at("severity");
  i.action = json.at("action");
  i.count = json.at("count");
  i.job = json.at("job");
  i.evidence = json.at("evidence").get<std::vector<std::string>>();
  i.step = json.value("step", "");
  i.rank = json.value("rank", -1);
  return i;
}

}  // namespace mm::agent
