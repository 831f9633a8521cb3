// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "common/error.h"
#include "common/log.h"

namespace mm::loop {

AgentReporter::AgentReporter() {
  const char* socket = std::getenv("MM_AGENT_SOCKET");
  if (socket != nullptr) socket_ = socket;
  state_["LISTEN"] = "1";
}

void AgentReporter::say(const KeyValues& news) {
  if (socket_.empty()) return;
  for (const auto& [key, value] : news) state_[key] = value;
  if (agent_ && agent_->try_send(state_)) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_try_) return;
  next_try_ = now + std::chrono::seconds(1);
  agent_.reset();
  try {
    agent_.emplace(socket_);
    agent_->try_send(state_);
  } catch (const Error& e) {
    log::debug("{}", e.what());
  }
}

std::optional<KeyValues> AgentReporter::advice() { return agent_ ? agent_->try_receive() : std::nullopt; }

std::string format_duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

Console::Console(bool speaks, int64_t first_step, int64_t steps, int64_t every)
    : speaks_(speaks), terminal_(::isatty(STDERR_FILENO) == 1), first_step_(first_step), steps_(steps), every_(every) {}

Console::~Console() {
  end_line();
}

void Console::end_line() {
  if (open_) std::fputc('\n', stderr);
  open_ = false;
}

void Console::step_done(const StepMetrics& m) {
  const int64_t done = m.step + 1;
  if (!speaks_ || (done % every_ != 0 && done != steps_)) return;
  const double each = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count() /
                      static_cast<double>(done - first_step_);
  const double whole = std::max(m.step_s, 1e-9);
  const std::string text = fmt::format(
      "step {}/{}  loss {:.4f}  {:.1f} images/s  {:.0f} tokens/s  MFU {:.0f} %  waits: data {:.0f} %, peers {:.0f} %  {} left", done,
      steps_, m.loss, m.images_s, m.tokens_s, 100 * m.mfu, 100 * m.data_wait_s / whole, 100 * m.comm_wait_s / whole,
      format_duration(each * static_cast<double>(steps_ - done)));
  if (!terminal_) {
    log::info("{}", text);
    return;
  }
  constexpr int64_t width = 30;
  const auto full = static_cast<size_t>(width * done / steps_);
  std::fprintf(stderr, "\r[%s%s] %s\033[K", std::string(full, '#').c_str(), std::string(width - full, '.').c_str(),
               text.c_str());
  std::fflush(stderr);
  open_ = true;
}

}  // namespace mm::loop
