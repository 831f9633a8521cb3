// SPDX-License-Identifier: Apache-2.0
#include "agent/cli/classify.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "agent/klog/classifier.h"
#include "common/error.h"
#include "common/files.h"

namespace mm::agent {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t block = 256 * 1024, longest_line = 64 * 1024;  // of a longer line only the beginning is looked at

void read_lines(const std::string& file, Classifier& classifier) {
  const UniqueFd owned(file == "-" ? ::dup(STDIN_FILENO) : ::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!owned) throw system_error("classify: open " + file, errno, exit_status::usage);
  std::string rest, buffer(block, '\0');
  bool skipping = false;
  const auto line = [&](std::string_view text) {
    if (!std::exchange(skipping, false)) classifier.add(text);
  };
  for (;;) {
    const ssize_t n = ::read(owned.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("classify: read " + file, errno, exit_status::usage);
    if (n == 0) break;
    std::string_view news(buffer.data(), static_cast<size_t>(n));
    for (size_t end; (end = news.find('\n')) != std::string_view::npos; news.remove_prefix(end + 1)) {
      if (rest.empty()) {
        line(news.substr(0, end));
      } else {
        rest += news.substr(0, end);
        line(rest);
        rest.clear();
      }
    }
    rest += news;
    if (rest.size() > longest_line) {
      line(std::string_view(rest).substr(0, longest_line));
      skipping = true;  // what follows, up to the end of the line
      rest.assign(1, ' ');
    }
  }
  if (!rest.empty()) line(rest);
}

Json to_json(const Finding& f) {
  Json out = {{"class", name(f.part)},       {"code", f.code},   {"device", f.device},    {"severity", name(f.severity)},
              {"action", name(f.action)},    {"count", f.count}, {"evidence", f.evidence}};
  if (f.devices.size() > 1) out["devices"] = f.devices;
  for (const auto& [key, value] : f.facts) {
    const bool number = (key == "instance" || key == "compute_instance" || key == "pid" || key == "uid" || key == "link") && !value.empty();
    if (number) out[key] = std::strtoll(value.c_str(), nullptr, 10);
    else out[key] = value;
  }
  if (f.over) out["over"] = true;
  if (f.earlier_boot) out["earlier_boot"] = true;
  return out;
}

}  // namespace

int classify(const std::vector<std::string>& files, bool json) {
  Classifier classifier;
  for (const std::string& file : files) read_lines(file, classifier);
  for (const Finding& found : classifier.findings()) {
    const Finding f = found.shown();
    if (json) {
      fmt::print("{}\n", to_json(f).dump(-1, ' ', false, Json::error_handler_t::replace));
      continue;
    }
    fmt::print("{:<8} {:<10} {:<8} {:<20} {} {}{}{}\n", name(f.severity), name(f.action), name(f.part), f.device.empty() ? "-" : f.device, f.code,
               f.count == 1 ? "once" : fmt::format("{} times", f.count), f.over ? ", over" : "", f.earlier_boot ? ", before the last boot" : "");
    for (const std::string& line : f.evidence) fmt::print("    {}\n", line);
  }
  return exit_status::ok;
}

}  // namespace mm::agent
