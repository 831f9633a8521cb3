// SPDX-License-Identifier: Apache-2.0
// The parts of the loop by themselves: metrics file, agreement on errors, progress to the agent, derangement, facts.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/error.h"
#include "trainer/loop/agree.h"
#include "trainer/loop/evaluate.h"
#include "trainer/loop/metrics.h"
#include "trainer/loop/progress.h"
#include "trainer/loop/save_schedule.h"
#include "trainer/loop/tensors.h"
#include "trainer/loop/time_left.h"

namespace mm::loop {
namespace {

namespace fs = std::filesystem;

class Folder : public testing::Test {
 protected:
  Folder() : folder_(fs::temp_directory_path() / ("mm-loop-" + std::to_string(::getpid()))) { fs::create_directories(folder_); }
  ~Folder() override { fs::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  fs::path folder_;
};

TEST_F(Folder, MetricsKeepWholeLinesBelowTheStep) {
  const auto line = [](int64_t step) { return format_metrics({.step = step, .loss = 0.1, .tokens = 7, .loader = {}}); };
  const std::string path = at("metrics.jsonl");
  std::string expected;
  EXPECT_THROW(MetricsFile("/no/such/folder/metrics.jsonl", 0), Error);
  {
    MetricsFile file(path, 0);
    for (int64_t s = 0; s < 6; ++s) EXPECT_EQ(file.append(line(s)), "");
  }
  for (int64_t s = 0; s < 4; ++s) expected += line(s);
  { const MetricsFile file(path, 4); }
  EXPECT_EQ(read_file(path), expected);
  std::ofstream(path, std::ios::app) << line(4).substr(0, 30);  // a line that a kill cut short
  { const MetricsFile file(path, 9); }
  EXPECT_EQ(read_file(path), expected);
  std::ofstream(path, std::ios::app) << line(2) << line(4);  // a step that is there already
  { const MetricsFile file(path, 9); }
  EXPECT_EQ(read_file(path), expected);
  { const MetricsFile file(path, 0); }
  EXPECT_EQ(read_file(path), "");
  EXPECT_EQ(line(3).substr(0, line(3).find(",\"step_s\"")),
            R"({"step":3,"loss":0.10000000000000001,"grad_norm":0,"lr":0,"tokens":7)");
}

TEST(Agree, AllRanksThrowWhatTheFirstOneMet) {
  std::vector<std::unique_ptr<comm::Comm>> comms = comm::thread_comms(3);
  std::vector<std::string> said(3);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      agree(*comms[r], [] {});
      try {
        agree(*comms[r], [&] {
          if (r == 1) throw data_error("shard x is cut short");
          if (r == 2) throw usage_error("another");
        });
      } catch (const AgreedError& e) {
        EXPECT_EQ(e.status, exit_status::data);
        EXPECT_EQ(e.say, r == 1);
        said[r] = e.what();
      }
      EXPECT_THROW(agree(*comms[r], [] { throw usage_error("the same"); }), AgreedError);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(said[0], "rank 1 on " + comms[0]->node(1) + ": shard x is cut short");
  EXPECT_EQ(said[2], said[0]);
}

class Listener {
 public:
  explicit Listener(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd_.get(), 4), 0);
    const timeval patience = {20, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  KeyValues next() {
    if (!peer_) peer_ = UniqueFd(::accept(fd_.get(), nullptr, nullptr));
    const timeval patience = {20, 0};
    ::setsockopt(peer_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    char buffer[4096];
    const ssize_t n = ::recv(peer_.get(), buffer, sizeof buffer, 0);
    return parse_key_values(std::string_view(buffer, static_cast<size_t>(std::max<ssize_t>(n, 0))));
  }

 private:
  UniqueFd fd_, peer_;
};

TEST_F(Folder, ProgressReachesAnAgentThatWasRestarted) {
  const std::string path = at("agent.sock");
  ::setenv("MM_AGENT_SOCKET", path.c_str(), 1);
  AgentReporter reporter;
  ::unsetenv("MM_AGENT_SOCKET");
  reporter.say({{"PHASE", "load"}});  // no agent yet
  auto first = std::make_unique<Listener>(path);
  KeyValues got;
  const auto say_until_heard = [&](Listener& listener, const std::string& step) {
    // The reporter looks for a new agent once a second; each call is one step of the loop.
    std::thread ear([&] { got = listener.next(); });
    std::atomic<bool> heard = false;
    std::thread mouth([&] {
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(15);
      while (!heard && std::chrono::steady_clock::now() < end) {
        reporter.say({{"STEP", step}, {"PHASE", "train"}});
        std::this_thread::yield();
      }
    });
    ear.join();
    heard = true;
    mouth.join();
  };
  say_until_heard(*first, "3");
  EXPECT_EQ(get(got, "STEP"), "3");
  EXPECT_EQ(get(got, "PHASE"), "train");
  reporter.say({{"CHECKPOINT", "2"}});
  first.reset();
  fs::remove(path);
  reporter.say({{"STEP", "4"}});  // nobody hears
  Listener second(path);
  say_until_heard(second, "5");
  EXPECT_EQ(get(got, "STEP"), "5");
  EXPECT_EQ(get(got, "CHECKPOINT"), "2") << "what the old agent was told is told again";
}

TEST(Derangement, MovesEveryElement) {
  for (int64_t n = 2; n < 50; ++n)
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const std::vector<int64_t> to = derangement(n, seed);
      std::vector<bool> taken(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) {
        EXPECT_NE(to[static_cast<size_t>(i)], i);
        taken[static_cast<size_t>(to[static_cast<size_t>(i)])] = true;
      }
      EXPECT_TRUE(std::all_of(taken.begin(), taken.end(), [](bool t) { return t; }));
    }
}

// Slices by tensor parallelism, cut again into the parts of their holders: each element of each tensor has one owner, and the
// views of it point at its value.
TEST(Views, Case08PartsOfSlicesCoverTheTensors) {
  const std::vector<model::ParamSpec> specs = {{.name = "rows", .shape = {6, 5}, .cut = {0, 3}},
                                               {.name = "columns", .shape = {3, 5, 2}, .cut = {1, 5}},
                                               {.name = "keys", .shape = {4, 3}, .cut = {0, 8, 2}},
                                               {.name = "scalar", .shape = {}},
                                               {.name = "whole", .shape = {7}}};
  model::ParamStore<double> one(specs);
  model::initialise(one, 3);
  for (int tp : {1, 2, 3, 4})
    for (int copies : {1, 2, 5}) {
      std::map<std::string, std::vector<int>> seen;
      for (const model::ParamSpec& spec : specs) seen[spec.name].resize(static_cast<size_t>(spec.size()));
      for (int t = 0; t < tp; ++t) {
        model::ParamStore<double> store(specs, {.tp = tp, .tp_rank = t});
        model::initialise(store, 3);
        for (const model::Run& run : store.runs()) {
          const bool everywhere = run.holders == model::Holders::stage;
          const int holders = everywhere ? copies * tp : copies;
          for (int c = 0; c < copies; ++c) {
            const comm::Range part = comm::part_of(run.size, everywhere ? c * tp + t : c, holders);
            std::vector<checkpoint::View> views;
            add_views(store, run, part, "m", store.values() + run.value_at + part.begin, views);
            for (const checkpoint::View& v : views) {
              const double* whole = one.value(one.index(v.name));
              for (int64_t i = 0; i < checkpoint::elements(v.box.shape); ++i) {
                int64_t rest = i, flat = 0, stride = 1;
                for (size_t d = v.global_shape.size(); d-- > 0; stride *= v.global_shape[d]) {
                  flat += (v.box.offset[d] + rest % v.box.shape[d]) * stride;
                  rest /= v.box.shape[d];
                }
                EXPECT_EQ(static_cast<double*>(v.data)[i], whole[flat]) << v.name;
                ++seen[v.name][static_cast<size_t>(flat)];
              }
            }
          }
        }
      }
      for (const auto& [name, counts] : seen)
        EXPECT_EQ(counts, std::vector<int>(counts.size(), 1)) << name << " tp " << tp << " copies " << copies;
    }
}

TEST(SaveSchedule, StepsEpochsAndMinutes) {
  using namespace std::chrono_literals;
  const SaveSchedule::Clock::time_point start{};
  Job job;
  const auto due = [&](const std::string& every, double steps_per_epoch) {
    job.checkpoint.every = every;
    const SaveSchedule schedule(job, steps_per_epoch, 1, start);
    EXPECT_FALSE(schedule.due_at(start + 1000h));
    std::vector<int64_t> steps;
    for (int64_t done = 1; done <= 10; ++done)
      if (schedule.due_after(done)) steps.push_back(done);
    return steps;
  };
  EXPECT_EQ(due("4", 2.5), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(due("1 epoch", 2.5), (std::vector<int64_t>{3, 5, 8, 10}));
  EXPECT_EQ(due("2 epochs", 2.5), (std::vector<int64_t>{5, 10}));
  job.checkpoint.every = "2 min";
  SaveSchedule minutes(job, 2.5, 1, start);
  EXPECT_FALSE(minutes.due_after(4) || minutes.due_at(start + 119s));
  EXPECT_TRUE(minutes.due_at(start + 120s));
  minutes.begun(start + 130s, 1);
  EXPECT_FALSE(minutes.due_at(start + 249s));
  EXPECT_TRUE(minutes.due_at(start + 250s));
}

// The interval is the one that `mm-ckpt interval` computes from the same costs.
TEST(SaveSchedule, AutoFollowsWhatSavesCost) {
  using namespace std::chrono_literals;
  const SaveSchedule::Clock::time_point start{};
  Job job;
  job.checkpoint.every = "auto";
  job.checkpoint.node_mtbf = 100;
  SaveSchedule schedule(job, 10, 4, start);
  EXPECT_FALSE(schedule.due_after(100) || schedule.due_at(start + 59s));
  EXPECT_TRUE(schedule.due_at(start + 60s));
  const auto interval = [&](double stall, double flush) {
    schedule.begun(start, stall);
    schedule.committed(flush);
    const double best = checkpoint::best_interval({stall, flush, 0, 25 * 3600}).seconds;
    const auto whole = std::chrono::seconds(static_cast<int64_t>(best));
    EXPECT_TRUE(!schedule.due_at(start + whole - 1s) && schedule.due_at(start + whole + 1s)) << best;
    return best;
  };
  EXPECT_NEAR(interval(2, 5), 600, 5);  // sqrt(2 x 2 s x 25 h)
  EXPECT_NEAR(interval(0.5, 5), 300, 5);
  EXPECT_EQ(interval(0.5, 700), 700);
  EXPECT_NE(schedule.committed(5), "");
  EXPECT_EQ(schedule.committed(5.1), "");
  job.checkpoint.node_mtbf = 0.1;  // a job that fails every 90 s does not wait for a minute
  const SaveSchedule often(job, 10, 4, start);
  EXPECT_FALSE(often.due_at(start + 8s));
  EXPECT_TRUE(often.due_at(start + 9s));
}

TEST(TimeLeft, KeepsTwoSavesAndTwoStepsInReserve) {
  TimeLeft left(30);
  left.stepped(2);
  EXPECT_FALSE(left.is_up(1e9)) << "no end was told";
  left.ends_at(1000);
  EXPECT_EQ(left.reserve(), 5 + 2 * 30 + 2 * 2);
  EXPECT_FALSE(left.is_up(930));
  EXPECT_TRUE(left.is_up(931));
  left.saved(3);  // measured: better than the estimate
  EXPECT_FALSE(left.is_up(931));
  EXPECT_TRUE(left.is_up(985));
  left.saved(10);
  left.saved(1);
  EXPECT_EQ(left.reserve(), 5 + 2 * 10 + 2 * 2) << "the longest counts";
  left.ends_at(2000);  // an admin's gift
  EXPECT_FALSE(left.is_up(1000));
}

TEST(Console, SaysDurationsAsPeopleDo) {
  EXPECT_EQ(format_duration(4.4), "4 s");
  EXPECT_EQ(format_duration(125), "2:05");
  EXPECT_EQ(format_duration(3723), "1:02:03");
}

}  // namespace
}  // namespace mm::loop
