// SPDX-License-Identifier: Apache-2.0
#include "agent/loop.h"

#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>

#include "common/log.h"

namespace mm::agent {
namespace asio = boost::asio;

namespace {

void guarded(const Loop::Action& action) {
  try {
    action();
  } catch (const std::exception& e) {
    log::error("{}", e.what());
  }
}

struct Workers {
  explicit Workers(size_t threads) : pool(threads) {}
  std::atomic<size_t> waiting = 0;
  asio::thread_pool pool;
};

}  // namespace

struct Loop::Core {
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{io.get_executor()};
  std::unique_ptr<asio::signal_set> signals;
  // slurm, probe, encode, decode, disk
  std::array<Workers, 5> pools{Workers(2), Workers(2), Workers(1), Workers(1), Workers(1)};
};

Loop::Loop() : core_(std::make_unique<Core>()) {}

Loop::~Loop() {
  for (Workers& w : core_->pools) w.pool.stop();
  for (Workers& w : core_->pools) w.pool.join();
}

asio::io_context& Loop::io() { return core_->io; }
void Loop::run() { core_->io.run(); }
void Loop::stop() { core_->io.stop(); }

void Loop::post(Action action) {
  asio::post(core_->io, [action = std::move(action)] { guarded(action); });
}

void Loop::work(Pool pool, Job job) {
  Workers& workers = core_->pools[static_cast<size_t>(pool)];
  ++workers.waiting;
  asio::post(workers.pool, [this, &workers, job = std::move(job)] {
    Action then;
    guarded([&] { then = job(); });
    --workers.waiting;
    if (then) post(std::move(then));
  });
}

size_t Loop::waiting(Pool pool) const { return core_->pools[static_cast<size_t>(pool)].waiting; }

void Loop::after(milliseconds delay, Action action) {
  auto timer = std::make_shared<asio::steady_timer>(core_->io, delay);
  timer->async_wait([timer, action = std::move(action)](const boost::system::error_code& error) {
    if (!error) guarded(action);
  });
}

void Loop::on_signals(const std::vector<int>& signals, std::function<void(int)> handler) {
  core_->signals = std::make_unique<asio::signal_set>(core_->io);
  for (int s : signals) core_->signals->add(s);
  wait_for_signal(std::make_shared<std::function<void(int)>>(std::move(handler)));
}

void Loop::wait_for_signal(std::shared_ptr<std::function<void(int)>> handler) {
  core_->signals->async_wait([this, handler](const boost::system::error_code& error, int signal) {
    if (error) return;
    guarded([&] { (*handler)(signal); });
    wait_for_signal(handler);
  });
}

struct Timer::State : std::enable_shared_from_this<Timer::State> {
  explicit State(Loop& loop) : timer(loop.core().io) {}
  asio::steady_timer timer;
  Loop::Action action;
  milliseconds period{0};
  uint64_t turn = 0;  // a start or cancel makes an earlier wait void

  void wait() {
    timer.async_wait([self = shared_from_this(), mine = turn](const boost::system::error_code& error) {
      if (error || self->turn != mine) return;
      const Loop::Action run = self->action;  // it may replace itself
      guarded(run);
      if (self->turn != mine || self->period.count() == 0) return;
      // After a stall the missed periods are skipped, not made up for.
      self->timer.expires_at(std::max(self->timer.expiry() + self->period, Clock::now()));
      self->wait();
    });
  }
};

Timer::Timer(Loop& loop) : state_(std::make_shared<State>(loop)) {}
Timer::~Timer() {
  if (state_) cancel();
}
Timer::Timer(Timer&&) noexcept = default;
Timer& Timer::operator=(Timer&& other) noexcept {
  if (state_) cancel();
  state_ = std::move(other.state_);
  return *this;
}

void Timer::start(milliseconds delay, Loop::Action action) {
  ++state_->turn;
  state_->action = std::move(action);
  state_->period = milliseconds(0);
  state_->timer.expires_after(delay);
  state_->wait();
}

void Timer::repeat(milliseconds period, Loop::Action action) {
  ++state_->turn;
  state_->action = std::move(action);
  state_->period = period;
  state_->timer.expires_after(period);
  state_->wait();
}

void Timer::cancel() {
  ++state_->turn;
  state_->timer.cancel();
}

struct FdWatch::State : std::enable_shared_from_this<FdWatch::State> {
  State(Loop& loop, int fd) : descriptor(loop.core().io, fd) {}
  // The loop may end with the wait pending.
  ~State() {
    if (!stopped) descriptor.release();
  }
  asio::posix::stream_descriptor descriptor;
  Loop::Action action;
  asio::posix::stream_descriptor::wait_type type = asio::posix::stream_descriptor::wait_read;
  bool stopped = false;

  void stop() {
    if (stopped) return;
    stopped = true;
    descriptor.release();  // cancels the wait; the descriptor is not ours to close
  }
  void wait() {
    descriptor.async_wait(type, [self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->stopped) return;
      guarded(self->action);
      if (!self->stopped) self->wait();
    });
  }
};

FdWatch::FdWatch(Loop& loop, int fd, Loop::Action action, For what) : state_(std::make_shared<State>(loop, fd)) {
  state_->action = std::move(action);
  if (what == For::write) state_->type = asio::posix::stream_descriptor::wait_write;
  state_->wait();
}
FdWatch::~FdWatch() {
  if (state_) state_->stop();
}
FdWatch::FdWatch(FdWatch&&) noexcept = default;
FdWatch& FdWatch::operator=(FdWatch&& other) noexcept {
  if (state_) state_->stop();
  state_ = std::move(other.state_);
  return *this;
}

}  // namespace mm::agent
