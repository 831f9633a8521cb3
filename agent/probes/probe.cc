// SPDX-License-Identifier: Apache-2.0
#include "agent/probes/probe.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <thread>

#include "common/error.h"
#include "common/log.h"

namespace mm::agent {

struct ProbeRunner::Mailbox {
  std::mutex mutex;
  std::deque<std::pair<size_t, ProbeResult>> results;
  UniqueFd event{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
};

struct ProbeRunner::Entry {
  explicit Entry(Loop& loop) : timer(loop), deadline(loop) {}
  Probe probe;
  size_t index = 0;
  Timer timer, deadline;
  bool running = false, hangs = false;
  bool fresh = false;  // has come back, or was found late, since run_all
};

ProbeRunner::ProbeRunner(Loop& loop, Handlers handlers) : loop_(loop), handlers_(std::move(handlers)), mailbox_(std::make_shared<Mailbox>()) {
  if (!mailbox_->event) throw system_error("agent: eventfd", errno);
  watch_ = FdWatch(loop_, mailbox_->event.get(), [this] { collect(); });
}

ProbeRunner::~ProbeRunner() = default;

void ProbeRunner::add(Probe probe) {
  auto entry = std::make_unique<Entry>(loop_);
  entry->probe = std::move(probe);
  entry->index = entries_.size();
  Entry& e = *entry;
  entries_.push_back(std::move(entry));
  e.timer.repeat(e.probe.period, [this, &e] { start(e); });
  start(e);
}

void ProbeRunner::start(Entry& e) {
  if (e.running) return;
  e.running = true;
  e.deadline.start(e.probe.deadline, [this, &e] { late(e); });
  try {
    std::thread([mailbox = mailbox_, index = e.index, run = e.probe.run, name = e.probe.name] {
      ProbeResult result;
      try {
        result = run();
      } catch (const std::exception& error) {
        log::warn("probe {}: {}", name, error.what());
      }
      const std::lock_guard lock(mailbox->mutex);
      mailbox->results.emplace_back(index, std::move(result));
      const uint64_t one = 1;
      if (::write(mailbox->event.get(), &one, sizeof one) < 0) log::debug("probe {}: eventfd", name);
    }).detach();
  } catch (const std::system_error& error) {
    e.running = false;
    log::warn("probe {}: no thread: {}", e.probe.name, error.what());
  }
}

void ProbeRunner::late(Entry& e) {
  if (!e.running) return;
  e.hangs = e.fresh = true;
  const std::string doing = e.probe.doing ? e.probe.doing() : "";
  handlers_.hangs(e.probe.name, fmt::format("probe {} has not come back within {} ms{}{}", e.probe.name, e.probe.deadline.count(), doing.empty() ? "" : ", at ", doing));
  settle();
}

void ProbeRunner::collect() {
  uint64_t count = 0;
  while (::read(mailbox_->event.get(), &count, sizeof count) > 0) {}
  std::deque<std::pair<size_t, ProbeResult>> results;
  {
    const std::lock_guard lock(mailbox_->mutex);
    results.swap(mailbox_->results);
  }
  for (auto& [index, result] : results) {
    Entry& e = *entries_[index];
    e.running = false;
    e.fresh = true;
    e.deadline.cancel();
    if (std::exchange(e.hangs, false)) handlers_.back(e.probe.name);
    handlers_.result(e.probe.name, result);
  }
  settle();
}

void ProbeRunner::run_all(std::function<void()> done) {
  waiting_.push_back(std::move(done));
  for (const auto& e : entries_) {
    e->fresh = e->hangs;  // one that hangs is known
    start(*e);
  }
  loop_.post([this] { settle(); });
}

void ProbeRunner::settle() {
  for (const auto& e : entries_)
    if (!e->fresh) return;
  for (const auto& done : std::exchange(waiting_, {})) done();
}

}  // namespace mm::agent
