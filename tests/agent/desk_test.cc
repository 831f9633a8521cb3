// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/desk.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

namespace mm::agent {
namespace {

// A desk without a cluster: nothing is drained, since nobody knows the nodes.
class DeskTest : public testing::Test {
 protected:
  DeskTest()
      : context_{loop_, Site(), "n1", Slurm("", true), {}, {}, Journal(loop_, folder_.path, "n1"), Mesh(loop_, "n1", {}), {}, {}, {}, [] {}},
        events_(context_, [](ClientId, const std::string&) {}),
        desk_(context_, events_) {
    desk_.on_report([this](const Incident& i) { kept_.push_back(i.code + "/" + i.action); });
  }
  static Report report(const char* code, Severity severity, Action action, int64_t count = 1) {
    Report r;
    r.part = Part::gpu;
    r.code = code;
    r.device = "0000:1b:00.0";
    r.severity = severity;
    r.action = action;
    r.count = count;
    r.evidence = {"the line"};
    return r;
  }
  // "kind action count" of each event so far.
  std::vector<std::string> told() const {
    std::vector<std::string> out;
    for (const Journal::Event& e : context_.journal.events()) {
      const auto json = nlohmann::json::parse(e.json);
      out.push_back(json["kind"].get<std::string>() + (json["kind"] == "incident" ? " " + json["action"].get<std::string>() + " " + json["count"].dump() : ""));
    }
    return out;
  }
  // Declared first: it goes when the loop's workers have ended.
  struct Folder {
    std::string path = testing::TempDir() + "desk-" + std::to_string(::getpid());
    ~Folder() { std::filesystem::remove_all(path); }
  } folder_;
  Loop loop_;
  Context context_;
  Events events_;
  Desk desk_;
  std::vector<std::string> kept_;
};

TEST_F(DeskTest, OneFaultIsOneIncident) {
  const int64_t id = desk_.report("k", report("94", Severity::error, Action::restart));
  EXPECT_GT(id, 0);
  for (int64_t n = 2; n <= 1000; ++n) EXPECT_EQ(desk_.report("k", report("94", Severity::error, Action::restart, n)), id);
  EXPECT_EQ(desk_.report("k", report("48", Severity::fatal, Action::drain, 1001)), id);
  EXPECT_EQ(told(), (std::vector<std::string>{"incident restart 1", "incident restart 10", "incident restart 100", "incident restart 1000", "incident drain 1001"}));
  EXPECT_EQ(desk_.problems().size(), 1u);
  desk_.over("k");
  EXPECT_EQ(told().back(), "over");
  EXPECT_TRUE(desk_.problems().empty());
  EXPECT_GT(desk_.report("k", report("94", Severity::error, Action::restart)), id) << "the next one has a number of its own";
}

TEST_F(DeskTest, WhatAsksForNothingIsOnlyKept) {
  EXPECT_EQ(desk_.report("k", report("63", Severity::info, Action::ignore)), 0);
  EXPECT_TRUE(told().empty());
  EXPECT_EQ(kept_, std::vector<std::string>{"63/ignore"});
  EXPECT_GT(desk_.report("k", report("64", Severity::fatal, Action::drain)), 0);
}

TEST_F(DeskTest, SurvivesTheAgent) {
  const int64_t id = desk_.report("k", report("79", Severity::fatal, Action::drain));
  desk_.report("a", report("temperature", Severity::warning, Action::alert, 7));
  const std::string saved = desk_.state_to_text();
  Desk second(context_, events_);
  second.state_from_text(saved);
  EXPECT_EQ(second.state_to_text(), saved);
  EXPECT_EQ(second.problems(), desk_.problems());
  EXPECT_EQ(second.report("k", report("79", Severity::fatal, Action::drain)), id) << "the same fault is not a new incident";
}

}  // namespace
}  // namespace mm::agent
