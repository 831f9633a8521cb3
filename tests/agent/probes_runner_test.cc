// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <condition_variable>

#include "agent/probes/probe.h"

namespace mm::agent {
namespace {

// A gate that a probe waits at, as if a driver did not answer.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return open; });
  }
  void release() {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
};

Probe probe(const std::string& name, milliseconds deadline, std::function<ProbeResult()> run) {
  Probe p;
  p.name = name;
  p.period = milliseconds(3600000);
  p.deadline = deadline;
  p.run = std::move(run);
  return p;
}

TEST(ProbeRunner, OneThatHangsIsToldAndHoldsUpNobody) {
  Loop loop;
  auto gate = std::make_shared<Gate>();
  std::vector<std::string> heard;
  ProbeRunner* runner = nullptr;
  const auto note = [&](const std::string& what) {
    heard.push_back(what);
    if (what == "hangs slow") gate->release();
    if (what == "back slow") loop.stop();
  };
  ProbeRunner owned(loop, {[&](const std::string& name, const ProbeResult&) { note("result " + name); },
                           [&](const std::string& name, const std::string& words) {
                             EXPECT_NE(words.find("at the driver"), std::string::npos) << words;
                             note("hangs " + name);
                           },
                           [&](const std::string& name) { note("back " + name); }});
  runner = &owned;
  Probe slow = probe("slow", milliseconds(50), [gate] {
    gate->wait();
    return ProbeResult();
  });
  slow.doing = [] { return "the driver"; };
  runner->add(std::move(slow));
  runner->add(probe("fast", milliseconds(20000), [] { return ProbeResult(); }));
  loop.after(milliseconds(20000), [&] { loop.stop(); });
  loop.run();
  EXPECT_EQ(std::count(heard.begin(), heard.end(), "result fast"), 1);
  EXPECT_EQ(std::count(heard.begin(), heard.end(), "hangs slow"), 1);
  EXPECT_EQ(std::count(heard.begin(), heard.end(), "back slow"), 1);
}

TEST(ProbeRunner, RunAllEndsWhereOneHangsForEver) {
  Loop loop;
  auto gate = std::make_shared<Gate>();
  bool done = false;
  {
    ProbeRunner runner(loop, {[](const std::string&, const ProbeResult&) {}, [](const std::string&, const std::string&) {}, [](const std::string&) {}});
    runner.add(probe("slow", milliseconds(30), [gate] {
      gate->wait();
      return ProbeResult();
    }));
    runner.add(probe("throws", milliseconds(20000), []() -> ProbeResult { throw std::runtime_error("no such file"); }));
    runner.run_all([&] {
      done = true;
      loop.stop();
    });
    loop.after(milliseconds(20000), [&] { loop.stop(); });
    loop.run();
  }
  EXPECT_TRUE(done);
  gate->release();  // its thread outlives the runner, and touches nothing of it
}

}  // namespace
}  // namespace mm::agent
