// SPDX-License-Identifier: Apache-2.0
// Messages to people, on stderr, one line each: "mm-run: text". Under systemd (JOURNAL_STREAM) a line starts with its
// syslog priority, so that journald files it rightly. Never stdout: that is for results.
#pragma once

#include <fmt/format.h>

#include <string>

namespace mm::log {

enum class Level { debug, info, warning, error };

void init(const std::string& program, Level least = Level::info);
void write(Level level, const std::string& message);

template <typename... T>
void debug(fmt::format_string<T...> f, T&&... args) {
  write(Level::debug, fmt::format(f, std::forward<T>(args)...));
}
template <typename... T>
void info(fmt::format_string<T...> f, T&&... args) {
  write(Level::info, fmt::format(f, std::forward<T>(args)...));
}
template <typename... T>
void warn(fmt::format_string<T...> f, T&&... args) {
  write(Level::warning, fmt::format(f, std::forward<T>(args)...));
}
template <typename... T>
void error(fmt::format_string<T...> f, T&&... args) {
  write(Level::error, fmt::format(f, std::forward<T>(args)...));
}

}  // namespace mm::log
