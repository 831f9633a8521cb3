// SPDX-License-Identifier: Apache-2.0
// The part of Supervisor that takes in what comes: signals, the agent's events, srun's words and its end.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <iterator>
#include <utility>

#include "agent/recovery/describe.h"
#include "agent/recovery/exits.h"
#include "agent/run/clock.h"
#include "agent/run/streams.h"
#include "agent/run/supervisor.h"
#include "common/error.h"
#include "common/log.h"
#include "common/process.h"

namespace mm::run {
namespace {

constexpr double between_agent_tries = 1;

}  // namespace

void Supervisor::poll_once(double deadline) {
  if (!agent_.watching()) deadline = std::min(deadline, next_agent_try_);
  deadline = std::min(deadline, leftovers_end_);
  const auto fd_or_none = [](const UniqueFd& fd) { return fd ? fd.get() : -1; };
  pollfd fds[] = {{signals_.get(), POLLIN, 0},
                  {agent_.fd(), POLLIN, 0},
                  {stderr_.read.get(), POLLIN, 0},
                  {fd_or_none(step_pipe_.read), POLLIN, 0},
                  {srun_ ? srun_->fd() : -1, POLLIN, 0}};
  const double left = deadline == never ? -1 : std::clamp(std::ceil((deadline - now().steady) * 1000), 0.0, 1e9);
  const int n = ::poll(fds, std::size(fds), static_cast<int>(left));
  if (n < 0 && errno != EINTR) throw system_error("poll", errno);
  if (n > 0) {
    if (fds[3].revents != 0) read_step_id();
    if (fds[0].revents != 0)
      for (const int number : read_signals(signals_.get())) {
        if (number == SIGTERM || number == SIGINT) asked_to_end(number);
        else if (srun_) srun_->signal(number);
      }
    if (fds[1].revents != 0) read_agent();
    if (fds[2].revents != 0) read_stderr();
    if (fds[4].revents != 0 && srun_) srun_gone();
  }
  if (!agent_.watching() && now().steady >= next_agent_try_) follow_agent();
  if (now().steady >= leftovers_end_) end_leftovers();
}

void Supervisor::end_leftovers() {
  for (const UniqueFd& child : leftovers_) ::syscall(SYS_pidfd_send_signal, child.get(), SIGKILL, nullptr, 0);
  leftovers_.clear();
  leftovers_end_ = never;
}

void Supervisor::pass(double seconds) {
  const double end = now().steady + seconds;
  while (now().steady < end && stop_signal_ == 0) poll_once(end);
}

// srun answers SIGTERM by killing the ranks, which then cannot save: so the signal goes to the ranks by way of Slurm, where the
// step is known. A second SIGINT ends the step at once; a second SIGTERM does not, since Slurm may send several.
void Supervisor::asked_to_end(int number) {
  const bool again = std::exchange(stop_signal_, number) != 0;
  if (number == SIGINT) plan_.may_requeue = false;  // a person's, who wants an end
  if (!again) say("asked", fmt::format("asked to end by signal {} ({}); no restart follows", number, ::sigdescr_np(number)));
  if (!srun_) return;
  if (again && number == SIGINT) return stop_step();
  if (again) return;
  const std::string step = launch_->step_id();
  if (!step.empty()) {
    const auto sent =
        run_command({"scancel", fmt::format("--signal={}", number), plan_.job_id + "." + step}, std::chrono::seconds(5));
    if (sent.ok()) return;
  }
  srun_->signal(number);
}

void Supervisor::read_step_id() {
  std::string bytes;
  if (!read_some(step_pipe_.read.get(), bytes)) {
    step_pipe_.read.reset();
    return;
  }
  for (const std::string& line : step_lines_.add(bytes)) launch_->tell_step(line);
}

void Supervisor::read_stderr() {
  std::string bytes;
  while (read_some(stderr_.read.get(), bytes)) {
    write_all(STDERR_FILENO, bytes);
    for (const std::string& line : stderr_lines_.add(bytes)) {
      step_log_.add(line);
      if (launch_) launch_->take(read_srun_line(line, plan_.job_id), now());
    }
  }
}

void Supervisor::read_agent() {
  for (const KeyValues& event : agent_.events()) {
    if (get(event, "EVENT") == "incident") note_incident(incident_of(event));
    if (!launch_) continue;
    launch_->take(event, now());
    if (const auto progress = launch_->take_progress()) note_progress(*progress);
  }
  if (!agent_.watching()) {
    next_agent_try_ = now().steady + between_agent_tries;
    say("agent", "the agent of this node has gone; trying to reach it again");
  }
}

void Supervisor::follow_agent() {
  const bool back = agent_.watch();
  next_agent_try_ = now().steady + between_agent_tries;
  if (back && agent_told_) say("agent", "the agent of this node answers again");
  if (!back && !agent_told_)
    say("agent",
        "no agent watches this job (" + agent_.why_not() + "): only the end of a rank is noticed, not a hang or a bad node");
  agent_told_ = !back;
}

void Supervisor::note_incident(const recovery::Incident& incident) {
  if (!roster_.has(incident.node)) return;
  if (!told_incidents_.insert(incident.id).second) return;
  const bool in_use = launch_ && roster_.uses(incident.node);
  if (recovery::is_straggler(incident) || incident.action == "checkpoint") return;  // the policy will say what follows
  if (recovery::blames_node(incident)) {
    roster_.leave_out(incident.node, recovery::describe(incident), now().steady);
    if (!in_use) say("spare", "spare " + recovery::describe(incident) + "; it is left out from now on");
  } else if (incident.action == "alert" && in_use) {
    say("alert", recovery::describe(incident) + "; training goes on");
  }
}

void Supervisor::note_progress(const Progress& progress) {
  ledger_.reached("start", now().wall);
  if (progress.phase == "train") ledger_.reached("load", now().wall);
  const auto stepped = headway_.progress(progress);
  if (!stepped) return;
  slurm_away_since_.reset();
  const auto before = ledger_.step();
  if (!ledger_.stepped(stepped->step, stepped->resumed, now().wall)) return;
  say("recovered",
      fmt::format("training again after {:.1f} s, at step {}{}", ledger_.last_lost(), stepped->step,
                  before ? fmt::format(" (it was at {})", *before) : ""),
      ledger_.last_line());
}

void Supervisor::srun_gone() {
  const int status = srun_->reap();
  srun_.reset();
  read_stderr();
  launch_->srun_ended(recovery::shell_status(status), now());
}

}  // namespace mm::run
