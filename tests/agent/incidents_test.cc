// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "agent/incidents/clock_skew.h"
#include "agent/incidents/history.h"
#include "agent/incidents/incident.h"
#include "agent/incidents/journal.h"
#include "agent/incidents/rates.h"
#include "agent/probes/kernel_log.h"

namespace mm::agent {
namespace {

namespace fs = std::filesystem;

TEST(Rates, PoissonAgainstTheSum) {
  for (const double mean : {0.01, 0.5, 3.0, 20.0})
    for (int n = static_cast<int>(mean) + 2; n < mean + 40; n += 3) {
      double p = 0;
      for (int k = n; k < n + 400; ++k) p += std::exp(-mean + k * std::log(mean) - std::lgamma(k + 1));
      EXPECT_NEAR(poisson_surprise(n, mean), -std::log10(p), 0.35) << n << " of " << mean;
      EXPECT_LE(poisson_surprise(n, mean), -std::log10(p) + 1e-9) << "never more surprised than is right";
    }
  EXPECT_EQ(poisson_surprise(0, 1), 0);
  EXPECT_EQ(poisson_surprise(2, 3), 0);
}

TEST(Rates, SteadyErrorsAreNoNewsAndAChangeIs) {
  std::mt19937 random(1);
  int false_alarms = 0, found = 0;
  for (int device = 0; device < 50; ++device) {
    RateWatch watch;
    const std::string name = std::to_string(device);
    std::poisson_distribution<int> usual(device % 5), worse(10 + 5 * (device % 5));
    for (int minute = 0; minute < 1500; ++minute) {
      watch.add(name, "ecc", usual(random), 60);
      false_alarms += minute > 30 && !watch.changes().empty();
    }
    for (int minute = 0; minute < 8; ++minute) watch.add(name, "ecc", worse(random), 60);
    found += !watch.changes().empty();
  }
  EXPECT_EQ(false_alarms, 0);
  EXPECT_GE(found, 48);
}

TEST(Rates, ALoneBurstIsNoChange) {
  RateWatch watch;
  for (int minute = 0; minute < 100; ++minute) watch.add("a", "ecc", 0, 60);
  watch.add("a", "ecc", 1000, 60);
  for (int minute = 0; minute < 20; ++minute) {
    EXPECT_TRUE(watch.changes().empty());
    watch.add("a", "ecc", 0, 60);
  }
}

TEST(ClockSkew, OnlyMostOfThePeersTell) {
  ClockSkew clock;
  const auto hear = [&](const char* peer, double offset) {
    for (int i = 0; i < 8; ++i) clock.add(peer, offset + (i == 3 ? 0.0005 : 0.2));  // one of them came fast
  };
  hear("a", 0);
  hear("b", 0);
  EXPECT_FALSE(clock.skew());
  hear("b", 7.5);
  EXPECT_FALSE(clock.skew()) << "then it is b's clock";
  hear("a", 7.4);
  ASSERT_TRUE(clock.skew());
  EXPECT_NEAR(*clock.skew(), 7.5, 0.2);
  hear("c", 7.4);
  hear("d", -30);
  EXPECT_TRUE(clock.skew()) << "three against one";
  for (const char* peer : {"a", "b", "c"}) hear(peer, -3);
  EXPECT_NEAR(*clock.skew(), -3, 0.2);
  clock.forget("a");
  clock.forget("b");
  clock.forget("c");
  EXPECT_FALSE(clock.skew()) << "one peer alone cannot say who is wrong";
}

class Folder : public testing::Test {
 protected:
  Folder() { fs::create_directories(path_); }
  ~Folder() override { fs::remove_all(path_); }
  // Runs the loop until each of the conditions, in order, was true (what follows it is done then), or fails after ten seconds. A loop runs once.
  using Stage = std::pair<std::function<bool()>, std::function<void()>>;
  void run_stages(Loop& loop, const std::vector<Stage>& stages) {
    Timer poll(loop);
    bool late = false;
    size_t at = 0;
    poll.repeat(milliseconds(5), [&] {
      while (at < stages.size() && stages[at].first()) stages[at++].second();
      if (at == stages.size()) loop.stop();
    });
    loop.after(milliseconds(10000), [&] {
      late = true;
      loop.stop();
    });
    loop.run();
    EXPECT_FALSE(late) << "at stage " << at;
  }
  void run_until(Loop& loop, const std::function<bool()>& done) {
    run_stages(loop, {{done, [] {}}});
  }
  std::string path_ = testing::TempDir() + "incidents-" + std::to_string(::getpid());
};
using HistoryTest = Folder;
using KernelLogTest = Folder;

Incident incident(int64_t id, double time, const std::string& kind, const std::string& action) {
  Incident i;
  i.id = id;
  i.time = time;
  i.kind = kind;
  i.device = kind == "gpu" ? "0000:1b:00.0" : "";
  i.code = "79";
  i.severity = "fatal";
  i.action = action;
  i.node = "n1";
  i.evidence = {"first 'line'", "second"};
  return i;
}

TEST(Journal, NumbersNeverRepeatAlsoWhereTheDiskTakesNone) {
  const std::string folder = testing::TempDir() + "journal-" + std::to_string(::getpid()), numbers = folder + "/numbers-n1";
  std::vector<int64_t> given;
  const auto take = [&](int count, bool full) {
    Loop loop;
    Journal journal(loop, folder, "n1");
    if (full) fs::create_directory(numbers);  // where the file belongs: nothing can be put there
    for (int i = 0; i < count; ++i) given.push_back(journal.next_incident());
    if (full) fs::remove(numbers);
  };
  const auto clock_goes_on = [] {
    for (const double now = wall_time(); wall_time() < now + 0.005;) {
    }
  };
  take(2, false);
  take(2, false);  // killed in between: the rest of the block is lost
  EXPECT_EQ(given, (std::vector<int64_t>{1, 2, 1001, 1002}));
  fs::remove(numbers);
  for (int start = 0; start < 3; ++start) {
    take(3, true);
    clock_goes_on();
  }
  std::vector<int64_t> sorted = given;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
  EXPECT_EQ(sorted, given) << "they grow";
  fs::remove_all(folder);
}

TEST_F(HistoryTest, KeepsAnswersAndCounts) {
  for (int round = 0; round < 2; ++round) {
    Loop loop;
    History history(loop, path_, "n1");
    if (round == 0) {
      history.add(incident(1, 1000, "gpu", "drain"));
      history.add(incident(2, 2000, "gpu", "restart"));
      history.add(incident(3, 3000, "app", "alert"));
      history.add(incident(4, 4000, "memory", "drain"));
    } else {
      // A second agent finds them.
    }
    std::string json, parts;
    int count = -1;
    history.ask(1500, "", 10, [&](const std::string& text) { json = text; });
    history.count_hardware(0, [&](int n, const std::string& what) { count = n, parts = what; });
    run_until(loop, [&] { return count >= 0 && !json.empty(); });
    const auto all = nlohmann::json::parse(json);
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0]["id"], 4);
    EXPECT_EQ(all[2]["device"], "0000:1b:00.0");
    EXPECT_EQ(all[2]["evidence"], (std::vector<std::string>{"first 'line'", "second"}));
    EXPECT_EQ(count, 3);
    EXPECT_EQ(parts, "gpu 0000:1b:00.0 2 times, memory  1 times");
  }
}

TEST_F(HistoryTest, ADamagedDatabaseIsPutAside) {
  std::ofstream(path_ + "/history-n1.db") << std::string(8192, 'x');
  Loop loop;
  History history(loop, path_, "n1");
  history.add(incident(1, 1000, "gpu", "drain"));
  std::string json;
  history.ask(0, "", 10, [&](const std::string& text) { json = text; });
  run_until(loop, [&] { return !json.empty(); });
  EXPECT_EQ(nlohmann::json::parse(json).size(), 1u);
  EXPECT_TRUE(fs::exists(path_ + "/history-n1.db.bad"));
}

TEST_F(KernelLogTest, FollowsAFileThroughRotationAndRestart) {
  const std::string file = path_ + "/log";
  std::vector<std::string> lines;
  Loop loop;
  const KernelLog::Handlers handlers = {[&](std::string_view line) { lines.emplace_back(line); }, [] {}};
  std::string position;
  {
    KernelLog log(loop, file, "", handlers);  // it is not there yet
    std::ofstream(file) << "one\ntwo\nthr";
    run_until(loop, [&] { return lines.size() == 2; });
  }
  {
    Loop second;
    lines.clear();
    KernelLog log(second, file, "", handlers);
    run_stages(second, {{[&] { return lines.size() == 2; }, [&] { std::ofstream(file, std::ios::app) << "ee\n"; }},
                        {[&] { return lines.size() == 3; },
                         [&] {
                           fs::rename(file, file + ".1");
                           std::ofstream(file + ".1", std::ios::app) << "late\n";
                           std::ofstream(file) << "new\n";
                         }},
                        {[&] { return lines.size() == 5; }, [] {}}});
    EXPECT_EQ(lines, (std::vector<std::string>{"one", "two", "three", "late", "new"}));
    position = log.position();
  }
  std::ofstream(file, std::ios::app) << "after\n";
  Loop third;
  lines.clear();
  KernelLog log(third, file, position, handlers);
  run_until(third, [&] { return !lines.empty(); });
  EXPECT_EQ(lines, std::vector<std::string>{"after"});
}

}  // namespace
}  // namespace mm::agent
