// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/loop/harness.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/trainer/make_fixture.h"

namespace mm::loop {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

Numbers numbers_of(const std::string& json) {
  Numbers out;
  const Json object = Json::parse(json);
  for (const auto& [key, value] : object.items())
    if (value.is_number()) out[key] = value.get<double>();
  return out;
}

std::string text_of(const std::string& json, const std::string& key) {
  return Json::parse(json).at(key).get<std::string>();
}

std::string trainer_program() {
  return (fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "mm-trainer").string();
}

std::vector<std::string> mpirun(int ranks) {
  if (ranks == 1) return {};
  return {"mpirun", "-n", std::to_string(ranks), "--oversubscribe", "--allow-run-as-root"};
}

Child::Child(const std::vector<std::string>& argv, const std::string& err_file) : err_file_(err_file) {
  std::vector<char*> arguments;
  for (const std::string& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
  out_ = UniqueFd(fds[0]);
  const UniqueFd write(fds[1]), err(::open(err_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  pid_ = ::fork();
  if (pid_ == 0) {
    ::setpgid(0, 0);
    ::dup2(write.get(), 1);
    ::dup2(err.get(), 2);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  pidfd_ = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
}

Child::~Child() {
  if (status_) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::optional<std::string> Child::line(std::chrono::seconds deadline) {
  const auto end = Clock::now() + deadline;
  for (;;) {
    if (const size_t newline = buffer_.find('\n'); newline != std::string::npos) {
      const std::string text = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      return text;
    }
    pollfd p = {out_.get(), POLLIN, 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0 || ::poll(&p, 1, static_cast<int>(left)) == 0) {
      ADD_FAILURE() << "no line within " << deadline.count() << " s\n" << read_file(err_file_);
      return std::nullopt;
    }
    char buffer[4096];
    const ssize_t n = ::read(out_.get(), buffer, sizeof buffer);
    if (n <= 0) return std::nullopt;
    buffer_.append(buffer, static_cast<size_t>(n));
  }
}

bool Child::wait_for_step(int64_t step) {
  while (const std::optional<std::string> text = line())
    if (text->starts_with("{\"step\":") && numbers_of(*text).at("step") >= static_cast<double>(step)) return true;
  return false;
}

bool Child::wait_ended(std::chrono::milliseconds patience) {
  pollfd p = {pidfd_.get(), POLLIN, 0};
  return ::poll(&p, 1, static_cast<int>(patience.count())) == 1;
}

Ended Child::end(std::chrono::seconds deadline) {
  if (!wait_ended(deadline)) {
    ADD_FAILURE() << "not ended within " << deadline.count() << " s";
    ::kill(-pid_, SIGKILL);
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return {*status_, read_file(err_file_)};
}

std::vector<pid_t> Child::ranks() const {
  std::vector<pid_t> out;
  for (const fs::directory_entry& task : fs::directory_iterator(fmt::format("/proc/{}/task", pid_))) {
    std::ifstream children(task.path() / "children");
    for (pid_t p; children >> p;) out.push_back(p);
  }
  return out.empty() ? std::vector<pid_t>{pid_} : out;
}

TrainerTest::TrainerTest() {
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  folder_ = fs::temp_directory_path() / fmt::format("mm-trainer-{}-{}", ::getpid(), test.name());
  fs::create_directories(folder_);
  fixture::write_model(at("model"), "tiny");
  fixture::write_shards(at("data"), 64, 4, 32);
  std::ofstream(at("job.toml")) << fmt::format(
      "[run]\nsteps = 20\n[model]\npath = \"{0}/model\"\n[data]\nshards = \"{0}/data/*.tar\"\nshuffle = false\nglobal_batch = "
      "8\n"
      "[parallel]\ndtype = \"float64\"\nthreads = 1\n[optim]\nlr = 1e-3\nwarmup = 4\n[checkpoint]\nevery = 5\n",
      folder_.string());
}

TrainerTest::~TrainerTest() {
  fs::remove_all(folder_);
}

std::vector<std::string> TrainerTest::command(const std::string& run, const std::vector<std::string>& more, int ranks) const {
  std::vector<std::string> argv = mpirun(ranks);
  for (const std::string& a : {trainer_program(), at("job.toml"), std::string("--set"), "run.dir=" + at(run)})
    argv.push_back(a);
  argv.insert(argv.end(), more.begin(), more.end());
  return argv;
}

CommandResult TrainerTest::train(const std::string& run, const std::vector<std::string>& more, int ranks) const {
  return run_command(command(run, more, ranks), std::chrono::seconds(180));
}

CommandResult TrainerTest::trainer(const std::vector<std::string>& arguments) const {
  std::vector<std::string> argv = {trainer_program()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return run_command(argv, std::chrono::seconds(180));
}

std::vector<Numbers> TrainerTest::metrics(const std::string& run) const {
  std::vector<Numbers> out;
  std::ifstream in(at(run + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) out.push_back(numbers_of(line));
  return out;
}

std::vector<std::string> TrainerTest::numbers(const std::string& run) const {
  std::vector<std::string> out;
  std::ifstream in(at(run + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) out.push_back(line.substr(0, line.find(",\"step_s\"")));
  return out;
}

double distance_from_reference(const std::vector<Numbers>& metrics) {
  const Json frozen = Json::parse(read_file("tests/trainer/fixtures/tiny.json"));
  const Json& steps = frozen.at("steps");
  if (metrics.size() != steps.size()) {
    ADD_FAILURE() << metrics.size() << " steps in place of " << steps.size();
    return INFINITY;
  }
  double worst = 0;
  for (size_t i = 0; i < metrics.size(); ++i) {
    EXPECT_EQ(metrics[i].at("step"), static_cast<double>(i));
    EXPECT_EQ(metrics[i].at("tokens"), steps[i].at("tokens").get<double>());
    EXPECT_NEAR(metrics[i].at("lr"), steps[i].at("lr").get<double>(), 1e-18);
    for (const char* key : {"loss", "grad_norm"})
      worst = std::max(worst, std::abs(metrics[i].at(key) / steps[i].at(key).get<double>() - 1));
  }
  return worst;
}

Numbers reference_gradient_norms() {
  Numbers out;
  const Json frozen = Json::parse(read_file("tests/trainer/fixtures/tiny.json"));
  for (const auto& [name, values] : frozen.at("gradients").items()) out[name] = values.at(0).get<double>();
  return out;
}

}  // namespace mm::loop
