// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "checkpoint/tool/verbs.h"

namespace mm::checkpoint::tool {
namespace {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Target parse_target(const std::string& text) {
  const size_t at = text.rfind('@');
  if (at == std::string::npos || at + 1 == text.size()) return {text, std::nullopt};
  int64_t step = 0;
  const auto [rest, error] = std::from_chars(text.data() + at + 1, text.data() + text.size(), step);
  if (error != std::errc() || rest != text.data() + text.size() || step < 0) return {text, std::nullopt};
  return {text.substr(0, at), step};
}

StepInfo choose(const Target& target) {
  const RunFolder folder(target.run, false);
  const std::vector<StepInfo> steps = folder.list();
  for (const StepInfo& s : steps) {
    if (target.step ? s.step == *target.step : !s.bad) return s;
  }
  if (target.step) throw usage_error(fmt::format("{}: no committed step {}", folder.path(), *target.step));
  throw NothingFound(folder.path() + (steps.empty() ? ": no committed step" : ": every committed step is marked bad"));
}

std::string text_of_bytes(uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

Progress::Progress(std::string what, uint64_t total, bool quiet)
    : what_(std::move(what)), total_(total), shown_(!quiet && ::isatty(STDERR_FILENO) != 0), begin_(now()), drawn_(begin_) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

double Progress::seconds() const {
  return static_cast<double>(now() - begin_) / 1e9;
}

void Progress::add(uint64_t bytes) {
  done_ += bytes;
  constexpr int64_t redraw_every = 100'000'000;
  if (!shown_ || now() - drawn_ < redraw_every) return;
  drawn_ = now();
  draw();
}

void Progress::draw() const {
  constexpr uint64_t width = 30;
  const uint64_t filled = total_ == 0 ? width : std::min(width, done_ * width / total_);
  const auto rate = static_cast<uint64_t>(static_cast<double>(done_) / std::max(seconds(), 1e-9));
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {} of {}, {}/s\x1b[K", what_, "", filled, "", width - filled, text_of_bytes(done_),
             text_of_bytes(total_), text_of_bytes(rate));
}

}  // namespace mm::checkpoint::tool
