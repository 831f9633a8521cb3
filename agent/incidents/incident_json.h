// SPDX-License-Identifier: Apache-2.0
// The one JSON form of an incident: in mm-agent's answers, in the state that outlives the agent, and in the history's answers.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "agent/incidents/incident.h"

namespace mm::agent {

nlohmann::ordered_json json_from_incident(const Incident& incident);
// Throws where a key is missing or of another type.
Incident incident_from_json(const nlohmann::ordered_json& json);

}  // namespace mm::agent
