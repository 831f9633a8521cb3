// SPDX-License-Identifier: Apache-2.0
#include "tests/agent/run/fakes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/run/supervisor.h"
#include "common/hostlist.h"

namespace mm::run {
namespace {

constexpr const char* fake_srun = R"SH(#!/bin/bash
n=0; while [ -e "$STAGE/argv.$n" ]; do n=$((n + 1)); done
env >"$STAGE/env.$n"
if [ -n "$SLURM_HOSTFILE" ]; then tr '\n' ' ' <"$SLURM_HOSTFILE" >"$STAGE/hosts.$n"; fi
echo "$((n + 5))" >&"$MM_RUN_STEP_FD"
printf '%s\n' "$*" >"$STAGE/argv.$n"
[ -e "$STAGE/behave.$n" ] || exit 0
. "$STAGE/behave.$n"
)SH";

std::string content(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace

Stage::Stage() {
  char name[] = "/tmp/mm-run-test-XXXXXX";
  folder = ::mkdtemp(name);
  socket = folder + "/agent.sock";
  std::filesystem::create_directory(folder + "/bin");
  std::ofstream(folder + "/bin/srun") << fake_srun;
  std::filesystem::permissions(folder + "/bin/srun", std::filesystem::perms::owner_all);
}

Stage::~Stage() {
  if (child_ > 0) {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  std::filesystem::remove_all(folder);
}

void Stage::behave(int launch, const std::string& script) {
  std::ofstream(fmt::format("{}/behave.{}", folder, launch)) << script;
}

void Stage::fake(const std::string& command, const std::string& script) {
  const std::string path = folder + "/bin/" + command;
  std::ofstream(path) << "#!/bin/bash\n" << script << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

void Stage::start(const Plan& plan) {
  child_ = ::fork();
  if (child_ != 0) return;
  const int log = ::open((folder + "/messages").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int out = ::open((folder + "/output").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(log, 2);
  ::dup2(out, 1);
  ::setenv("STAGE", folder.c_str(), 1);
  ::setenv("PATH", (folder + "/bin:" + ::getenv("PATH")).c_str(), 1);
  int status = 99;
  try {
    status = Supervisor(plan).run();
  } catch (const std::exception& e) {
    ::dprintf(2, "%s\n", e.what());
  }
  ::_exit(status);
}

void Stage::open_agent() {
  ::unlink(socket.c_str());
  listen_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, socket.c_str());
  ASSERT_EQ(::bind(listen_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listen_.get(), 16), 0);
}

void Stage::close_agent() {
  listen_.reset();
  clients_.clear();
  watchers_.clear();
  watched = false;
}

void Stage::emit(const KeyValues& event) {
  const std::string text = format_key_values(event);
  for (const int fd : watchers_) ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
}

void Stage::handle(int fd) {
  char buffer[4096];
  const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
  if (n <= 0) {
    watchers_.erase(std::remove(watchers_.begin(), watchers_.end(), fd), watchers_.end());
    clients_.erase(fd);
    return;
  }
  const KeyValues request = parse_key_values(std::string_view(buffer, static_cast<size_t>(n)));
  KeyValues answer = {{"OK", "1"}};
  const std::string verb = get(request, "VERB");
  if (verb != "probe") requests.push_back(request);
  if (verb == "watch") {
    watchers_.push_back(fd);
    watched = true;
  } else if (verb == "kill") {
    kills.push_back(request);
    if (!answer_kill) return;
    answer["KILLED"] = "4";
  } else if (verb == "probe") {
    std::vector<std::string> good, not_good;
    for (const std::string& node : expand_hostlist(get(request, "NODES")))
      (std::find(bad.begin(), bad.end(), node) == bad.end() ? good : not_good).push_back(node);
    answer["GOOD"] = compress_hostlist(good);
    answer["BAD"] = compress_hostlist(not_good);
    for (const std::string& node : not_good) answer["WHY_" + node] = "slurmd does not answer";
  }
  const std::string text = format_key_values(answer);
  ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
}

int Stage::asked(const std::string& verb) const {
  return static_cast<int>(std::count_if(requests.begin(), requests.end(), [&](const KeyValues& r) { return get(r, "VERB") == verb; }));
}

bool Stage::serve(const std::function<bool()>& done, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::vector<pollfd> fds;
    if (listen_) fds.push_back({listen_.get(), POLLIN, 0});
    for (const auto& [fd, owner] : clients_) fds.push_back({fd, POLLIN, 0});
    ::poll(fds.data(), fds.size(), 10);
    for (const pollfd& p : fds) {
      if (p.revents == 0) continue;
      if (p.fd != listen_.get()) {
        handle(p.fd);
        continue;
      }
      UniqueFd client(::accept4(p.fd, nullptr, nullptr, SOCK_CLOEXEC));
      const int fd = client.get();
      clients_[fd] = std::move(client);
    }
  }
  return true;
}

int Stage::wait() {
  const bool ended = serve([this] { return ::waitpid(child_, &status_, WNOHANG) == child_; });
  if (!ended) return -1;
  child_ = -1;
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

void Stage::signal(int number) const {
  ::kill(child_, number);
}

bool Stage::launched(int launch) const {
  return !argv(launch).empty();
}
std::string Stage::argv(int launch) const {
  return content(fmt::format("{}/argv.{}", folder, launch));
}
std::string Stage::environment(int launch) const {
  return content(fmt::format("{}/env.{}", folder, launch));
}
std::string Stage::messages() const {
  return content(folder + "/messages");
}

std::vector<std::string> Stage::lines_of(const std::string& file) const {
  std::ifstream in(folder + "/" + file);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

Plan plan_of(const Stage& stage, int nodes, int spares) {
  Plan plan;
  plan.job_id = "77";
  plan.allocation = expand_hostlist(fmt::format("n[1-{}]", nodes + spares));
  plan.nodes = nodes;
  plan.spares = spares;
  plan.tasks_per_node = 1;
  plan.max_restarts = 3;
  plan.agent_socket = stage.socket;
  plan.plugin = true;
  plan.run_folder = stage.folder + "/run";
  plan.command = {"train", "--fast"};
  return plan;
}

}  // namespace mm::run
