// SPDX-License-Identifier: Apache-2.0
#include "tests/agent/desk_fixture.h"

#include <nlohmann/json.hpp>

#include "agent/incidents/incident_json.h"

namespace mm::agent {
namespace {

class DeskTest : public DeskFixture {
 protected:
  DeskTest() {
    desk_.on_report([this](const Incident& i) { kept_.push_back(i.code + "/" + i.action); });
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

TEST_F(DeskTest, ScopeAndJson) {
  Report r = report("20034", Severity::fatal, Action::drain);
  r.scope = "switch";
  desk_.report("s", r);
  r.scope.clear();
  desk_.report("g", r);
  r.device.clear();
  desk_.report("n", r);
  std::string scopes;
  for (const auto& [key, open] : desk_.open()) {
    Incident i = desk_.incident_of(open);
    i.time = 1796057249.5;  // messages round it to microseconds
    scopes += key + "=" + scope_of(i) + " ";
    EXPECT_EQ(json_from_incident(incident_from_json(json_from_incident(i))), json_from_incident(i));
    EXPECT_EQ(json_from_incident(incident_from_message(message_from_incident(i))), json_from_incident(i)) << "the same by message";
  }
  EXPECT_EQ(scopes, "g=gpu n=node s=switch ");
  Incident of_rank = desk_.incident_of(desk_.open().at("n"));
  of_rank.rank = 3;
  of_rank.step = "0";
  EXPECT_EQ(json_from_incident(of_rank)["scope"], "rank");
  EXPECT_EQ(incident_from_json(json_from_incident(of_rank)).rank, 3);
}

}  // namespace
}  // namespace mm::agent
