// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>

namespace mm::log {
namespace {

std::shared_ptr<spdlog::logger> make(const std::string& program) {
  auto logger = std::make_shared<spdlog::logger>(program, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%n: %v");
  logger->set_level(spdlog::level::info);
  return logger;
}

std::shared_ptr<spdlog::logger>& logger() {
  static std::shared_ptr<spdlog::logger> one = make("mm-train");
  return one;
}

bool journal() {
  static const bool under_journald = std::getenv("JOURNAL_STREAM") != nullptr;
  return under_journald;
}

}  // namespace

void init(const std::string& program, Level least) {
  logger() = make(program);
  logger()->set_level(least == Level::debug     ? spdlog::level::debug
                      : least == Level::info    ? spdlog::level::info
                      : least == Level::warning ? spdlog::level::warn
                                                : spdlog::level::err);
}

void write(Level level, const std::string& message) {
  struct Names {
    spdlog::level::level_enum spd;
    const char* journal;
    const char* plain;
  };
  static constexpr Names names[] = {{spdlog::level::debug, "<7>", ""},
                                    {spdlog::level::info, "<6>", ""},
                                    {spdlog::level::warn, "<4>", "warning: "},
                                    {spdlog::level::err, "<3>", "error: "}};
  const Names& n = names[static_cast<int>(level)];
  if (journal()) logger()->log(n.spd, "{}{}", n.journal, message);
  else logger()->log(n.spd, "{}{}", n.plain, message);
}

}  // namespace mm::log
