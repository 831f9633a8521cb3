// SPDX-License-Identifier: Apache-2.0
#include "agent/run/reports.h"

#include <nlohmann/json.hpp>

namespace mm::run {

std::string event_line(const char* event, double time, const std::string& job, const std::string& text,
                       const std::string& details) {
  using Json = nlohmann::ordered_json;
  Json line = {{"time", time}, {"event", event}, {"job", job}, {"text", text}};
  if (!details.empty()) {
    const Json more = Json::parse(details, nullptr, false);
    if (more.is_object())
      for (const auto& [key, value] : more.items())
        if (!line.contains(key)) line[key] = value;
  }
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mm::run
