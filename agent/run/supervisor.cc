// SPDX-License-Identifier: Apache-2.0
#include "agent/run/supervisor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>
#include <utility>

#include "agent/recovery/describe.h"
#include "agent/recovery/exits.h"
#include "agent/recovery/nodes.h"
#include "agent/run/reports.h"
#include "agent/run/standing.h"
#include "common/error.h"
#include "common/hostlist.h"
#include "common/log.h"
#include "common/process.h"

namespace mm::run {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
// How long to wait for nodes that may come back (a slurmd that restarts).
constexpr double patience_for_nodes = 60;
constexpr double between_probes = 1;
constexpr double between_agent_tries = 1;
constexpr auto scavenge_deadline = std::chrono::seconds(60);
// Ranks whose peer ended with an error of the user's are given so long to end on their own.
constexpr double grace_for_others = 3;

double read_clock(clockid_t clock) {
  timespec t;
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

Instant now() {
  return {read_clock(CLOCK_REALTIME), read_clock(CLOCK_MONOTONIC)};
}

UniqueFd block_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT, SIGHUP, SIGCONT, SIGUSR1, SIGUSR2}) ::sigaddset(&set, s);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) throw system_error("sigprocmask", errno);
  ::signal(SIGPIPE, SIG_IGN);
  UniqueFd fd(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd) throw system_error("signalfd", errno);
  return fd;
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

// Reads what is there; false at the end of the stream or where there is nothing.
bool read_some(int fd, std::string& to) {
  char buffer[1 << 14];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  if (n > 0) to.assign(buffer, static_cast<size_t>(n));
  return n > 0;
}

}  // namespace

Supervisor::Supervisor(Plan plan)
    : plan_(std::move(plan)),
      agent_(plan_.agent_socket, plan_.job_id),
      ledger_(plan_.run_folder.empty() ? "" : plan_.run_folder + "/incidents.jsonl", now().wall),
      signals_(block_signals()),
      stderr_(make_pipe()),
      roster_(plan_.allocation, plan_.nodes),
      budget_{plan_.max_restarts, 0} {}

void Supervisor::say(const char* event, const std::string& text, const std::string& details) {
  log::info("{}", text);
  if (plan_.json) write_all(STDOUT_FILENO, event_line(event, now().wall, plan_.job_id, text, details) + "\n");
}

// Where the job was requeued, the last training step is the last thing that is known of the run before.
void Supervisor::note_requeue() {
  if (plan_.requeues == 0) return;
  std::string since;
  struct stat s;
  if (!plan_.run_folder.empty() && ::stat((plan_.run_folder + "/metrics.jsonl").c_str(), &s) == 0) {
    const double last = static_cast<double>(s.st_mtim.tv_sec) + static_cast<double>(s.st_mtim.tv_nsec) * 1e-9;
    ledger_.requeued(last, fmt::format("the job was requeued (requeue {})", plan_.requeues));
    since = fmt::format(", {:.1f} s after the last training step", now().wall - last);
  }
  say("requeued", fmt::format("the job was requeued{}; continuing from the newest checkpoint", since));
}

int Supervisor::run() {
  note_requeue();
  follow_agent();
  for (;;) {
    if (auto end = choose()) return finish(*end);
    launch();
    const Action action = observe();
    switch (action.kind) {
      case Action::Kind::restart:
        restart(action);
        break;
      case Action::Kind::wait_for_slurm:
        if (auto end = wait_for_slurm(action)) return finish(*end);
        break;
      default:
        return finish(action);
    }
  }
}

// ---------------------------------------------------------------- nodes and launch

std::optional<recovery::Action> Supervisor::choose() {
  const double deadline = now().steady + patience_for_nodes;
  bool told = false;
  for (;;) {
    Action end;
    if (stop_signal_ != 0) {
      end.kind = Action::Kind::requeue;
      end.exit_status = exit_status::requeue;
      return end;
    }
    const auto probe = agent_.probe(roster_.allocation());
    const Roster::Choice choice = roster_.choose(probe, now().steady);
    Standing standing = Standing::ours;
    if (choice.possible && told) standing = ask_standing(plan_.job_id, plan_.requeues);
    if (standing == Standing::another) {
      ledger_.abandon();
      end.kind = Action::Kind::give_up;
      end.cause = "requeue";
      end.exit_status = exit_status::requeue;
      end.reason = "while this node was cut off, the job has ended or was started again";
      return end;
    }
    if (choice.possible && standing == Standing::ours) {
      for (const Roster::Move& m : choice.moves)
        say("avoided", fmt::format("{} is avoided ({}); {} takes its ranks", m.from, m.why, m.to));
      return std::nullopt;
    }
    if (choice.hopeless || now().steady > deadline) {
      end.kind = Action::Kind::give_up;
      end.cause = "nodes";
      end.exit_status = exit_status::requeue;
      if (cut_off(probe)) {
        // The agents on the other side have requeued the job, and it may run there already: its books are theirs.
        ledger_.abandon();
        end.reason = fmt::format("{} is cut off from all other nodes of the job", plan_.node);
      } else {
        end.reason = fmt::format("too few nodes are left: {} are needed, of the {} of the job these cannot be used: {}",
                                 plan_.nodes, plan_.allocation.size(), choice.missing);
      }
      return end;
    }
    if (!told)
      say("waiting", fmt::format("waiting up to {:.0f} s for nodes to come back ({})", patience_for_nodes, choice.missing));
    told = true;
    const double next = now().steady + between_probes;
    while (now().steady < next && stop_signal_ == 0) poll_once(next);
  }
}

// No other node of the job answers: more likely this one is alone than all others are gone.
bool Supervisor::cut_off(const std::optional<AgentLink::Probe>& probe) const {
  return probe && plan_.allocation.size() > 2 &&
         std::none_of(probe->good.begin(), probe->good.end(), [&](const std::string& n) { return n != plan_.node; });
}

void Supervisor::launch() {
  resumed_.reset();
  step_log_.clear();
  step_pipe_ = make_pipe();
  step_lines_ = LineCutter();
  UniqueFd hosts;
  std::vector<int> inherited = {step_pipe_.write.get()};
  if (plan_.plugin) {
    hosts = memory_file(hostfile(plan_, roster_.slots()));
    inherited.push_back(hosts.get());
  }
  const auto environment = srun_environment(environ, roster_.slots(), ledger_.restarts(), step_pipe_.write.get(),
                                            hosts ? std::optional<int>(hosts.get()) : std::nullopt);
  launch_.emplace(roster_.slots(), plan_.tasks(), launch_ ? launch_->last_step() : -1);
  srun_.emplace(srun_command(plan_, roster_.slots()), environment, stderr_.write.get(), inherited);
  step_pipe_.write.reset();
  ledger_.launched(roster_.slots(), now().wall);
  say("launch",
      fmt::format("{} rank{} on {}{}", plan_.tasks(), plan_.tasks() == 1 ? "" : "s", compress_hostlist(roster_.slots()),
                  roster_.spares().empty() ? "" : ", spare: " + compress_hostlist(roster_.spares())));
}

// ---------------------------------------------------------------- watching

recovery::Action Supervisor::observe() {
  for (;;) {
    const recovery::JobState job{launch_->nodes(), launch_->ranks(), stop_signal_ != 0};
    const Action action = recovery::decide(launch_->evidence(now()), job, budget_);
    if (action.kind == Action::Kind::settle)
      poll_once(now().steady + action.wait_ms * 1e-3);
    else if (action.kind == Action::Kind::proceed)
      poll_once(never);
    else
      return action;
  }
}

void Supervisor::poll_once(double deadline) {
  if (!agent_.watching()) deadline = std::min(deadline, next_agent_try_);
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
    if (fds[0].revents != 0) read_signals();
    if (fds[1].revents != 0) read_agent();
    if (fds[2].revents != 0) read_stderr();
    if (fds[4].revents != 0 && srun_) srun_gone();
  }
  if (!agent_.watching() && now().steady >= next_agent_try_) follow_agent();
}

void Supervisor::read_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGTERM || number == SIGINT)
      asked_to_end(number);
    else if (srun_)
      srun_->signal(number);
  }
}

// srun answers SIGTERM by killing the ranks, which then cannot save: so the signal goes to the ranks by way of Slurm, where the
// step is known. A second SIGINT ends the step at once; a second SIGTERM does not, since Slurm may send several.
void Supervisor::asked_to_end(int number) {
  const bool again = std::exchange(stop_signal_, number) != 0;
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

// What the failed step wrote itself, beside what the agents saw.
void Supervisor::tell_log() {
  const auto found = step_log_.explain();
  if (found) say("log", fmt::format("the step's own words: {} ({} {}): {}", found->kind(), found->klass, found->code, found->line));
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
  if (recovery::blames_node(incident)) {
    roster_.leave_out(incident.node, recovery::describe(incident), now().steady);
    if (!in_use) say("spare", "spare " + recovery::describe(incident) + "; it is left out from now on");
  } else if (incident.action == "alert" && in_use) {
    say("alert", recovery::describe(incident) + "; training goes on");
  }
}

void Supervisor::note_progress(const Progress& progress) {
  if (!progress.step) return;
  const int64_t step = *progress.step;
  // 0 is also what is known of a launch of which not all ranks have spoken.
  if (!resumed_ && step > 0) resumed_ = progress.trained ? step - 1 : step;
  reports_loss_ = reports_loss_ || progress.trained;
  // A rank may say first which step it resumes from; that is no training step yet.
  if (step <= 0 || (reports_loss_ && !progress.trained)) return;
  if (!step_at_restart_ || step > *step_at_restart_) budget_.used = 0;
  slurm_away_since_.reset();
  const auto before = ledger_.step();
  if (!ledger_.stepped(step, *resumed_, now().wall)) return;
  say("recovered",
      fmt::format("training again after {:.1f} s, at step {}{}", ledger_.last_lost(), step,
                  before ? fmt::format(" (it was at {})", *before) : ""),
      ledger_.last_line());
}

// ---------------------------------------------------------------- acting

void Supervisor::stop_step() {
  if (agent_.watching()) {
    const auto killed = agent_.kill(launch_->step_id());
    if (killed && !killed->late.empty()) log::debug("no answer to kill from {}", compress_hostlist(killed->late));
  }
  if (!srun_) return;
  srun_->signal(SIGKILL);
  srun_gone();
}

void Supervisor::srun_gone() {
  const int status = srun_->reap();
  srun_.reset();
  read_stderr();
  launch_->srun_ended(recovery::shell_status(status), now());
}

void Supervisor::restart(const Action& action) {
  launch_->stop();
  slurm_away_since_.reset();
  ledger_.fault(action, launch_->fault_time(now()), now().wall);
  for (const std::string& node : action.exclude) roster_.leave_out(node, action.reason, now().steady);
  std::vector<std::string> living;  // those that told of their own fault
  for (const recovery::Incident& i : launch_->evidence(now()).incidents) {
    const bool excluded = std::find(action.exclude.begin(), action.exclude.end(), i.node) != action.exclude.end();
    if (excluded && i.id.starts_with(i.node + "/")) living.push_back(i.node);
  }
  stop_step();
  tell_log();
  if (plan_.scavenge)
    for (const std::string& node : std::set(living.begin(), living.end())) scavenge(node);
  ++budget_.used;
  step_at_restart_ = ledger_.step();
  const auto step = ledger_.step();
  say("restart", fmt::format("{}; restarting {}{}", action.reason,
                             action.exclude.empty() ? "in place" : "without " + compress_hostlist(action.exclude),
                             step ? fmt::format(", step {} -> resumes from the newest checkpoint", *step) : ""));
}

// A node that is left but lives may have checkpoints that nobody else has: they go to the shared file system first.
void Supervisor::scavenge(const std::string& node) {
  const std::string tool = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "mm-ckpt";
  std::vector<std::string> command = {"srun", "--overlap", "--mpi=none", "--nodes=1", "--ntasks=1", "--nodelist=" + node, tool, "scavenge"};
  if (!plan_.node_folder.empty()) command.insert(command.end(), {"--node-folder", plan_.node_folder});
  command.push_back(plan_.run_folder);
  const auto done = run_command(command, scavenge_deadline);
  const std::string& said = done.ok() ? done.out : done.err;
  say("scavenged", fmt::format("checkpoints on {}: {}", node, done.timed_out ? "not within the deadline" : said.substr(0, said.find('\n'))));
}

std::optional<recovery::Action> Supervisor::wait_for_slurm(const Action& action) {
  const double t = now().steady;
  if (!slurm_away_since_) {
    slurm_away_since_ = t;
    say("waiting", action.reason + "; trying again until it does");
  }
  if (t - *slurm_away_since_ > action.wait_ms * 1e-3) {
    Action end;
    end.kind = Action::Kind::give_up;
    end.cause = "slurm";
    end.reason = fmt::format("{}, for {:.0f} s now", action.reason, t - *slurm_away_since_);
    end.exit_status = exit_status::requeue;
    return end;
  }
  const double next = t + between_probes;
  while (now().steady < next && stop_signal_ == 0) poll_once(next);
  return std::nullopt;
}

int Supervisor::finish(const Action& action) {
  if (action.kind == Action::Kind::give_up) {
    if (launch_) {
      const double deadline = now().steady + grace_for_others;
      while (srun_ && now().steady < deadline) poll_once(deadline);
      ledger_.fault(action, launch_->fault_time(now()), now().wall);
      if (srun_) stop_step();
    }
    log::error("giving up: {}", action.reason);
  }
  read_stderr();
  if (action.kind == Action::Kind::give_up || (action.kind == Action::Kind::finished && action.exit_status != 0)) tell_log();
  const char* outcome = action.kind == Action::Kind::requeue                               ? "saved, asks for requeue"
                        : action.kind == Action::Kind::finished && action.exit_status == 0 ? "finished"
                                                                                           : "ended";
  const std::string text = ledger_.close(outcome, now().wall);
  say("end", fmt::format("{}, exit status {}", text, action.exit_status));
  return action.exit_status;
}

}  // namespace mm::run
