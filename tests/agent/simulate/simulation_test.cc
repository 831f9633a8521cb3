// SPDX-License-Identifier: Apache-2.0
#include "agent/simulate/simulation.h"

#include <gtest/gtest.h>

#include "agent/simulate/report.h"
#include "checkpoint/interval.h"

namespace mm::simulate {
namespace {

constexpr double day = 86400;

Machine of(int nodes, double node_mtbf_days, int spares = 1) {
  return {nodes, spares, node_mtbf_days * day};
}

TEST(Simulation, TheCausesAreThoseOfThePaper) {
  double all = 0;
  for (const Cause& cause : causes()) all += cause.weight;
  EXPECT_EQ(all, 419);
}

TEST(Simulation, WithoutFaultsOnlySavesCost) {
  const Costs costs;
  for (const Way way : {Way::requeue, Way::scripted, Way::ours}) {
    const Outcome o = simulate(of(8, 1e9), costs, way, 1, 1);
    EXPECT_EQ(o.faults, 0);
    EXPECT_NEAR(o.trained, 1 - 50 / day, 1e-3) << name_of(way);  // the launch
  }
}

TEST(Simulation, EverySecondIsTrainingOrSavingOrWorkDoneAgainOrDown) {
  for (const Way way : {Way::requeue, Way::scripted, Way::ours})
    for (const int nodes : {1, 128, 2048, 16384})
      for (uint64_t seed = 1; seed <= 5; ++seed) {
        const Outcome o = simulate(of(nodes, 150), {}, way, 20, seed);
        EXPECT_NEAR(o.trained + o.saving + o.again + o.down, 1, 1e-9)
            << name_of(way) << " " << nodes << " nodes, seed " << seed;
        EXPECT_GE(o.trained, 0);
      }
}

// Faults of 128 nodes come every 28 h; the mean of many runs is what the interval's own formula expects.
TEST(Simulation, AgreesWithTheExpectationOfTheIntervalsFormula) {
  const Costs costs;
  const Machine machine = of(128, 150, 1 << 20);
  double lost = 0;
  constexpr int seeds = 200;
  for (uint64_t seed = 1; seed <= seeds; ++seed)
    lost += (1 - simulate(machine, costs, Way::scripted, 60, seed).trained) / seeds;
  const double mtbf = machine.node_mtbf / machine.nodes;
  const double restart = costs.sleep + costs.launch + costs.load + costs.first_step + costs.collective_timeout * 7 / 419;
  const double expected = checkpoint::best_interval({costs.stall, costs.flush, restart, mtbf}).lost;
  EXPECT_NEAR(lost, expected, 0.05 * expected);
}

TEST(Simulation, SameSeedSameRun) {
  const Outcome a = simulate(of(2048, 150), {}, Way::ours, 10, 7), b = simulate(of(2048, 150), {}, Way::ours, 10, 7);
  EXPECT_EQ(a.trained, b.trained);
  EXPECT_EQ(a.faults, b.faults);
}

TEST(Simulation, SparesRunOutAndComeBackWithARequeue) {
  Costs costs;
  const Outcome few = simulate(of(2048, 150, 4), costs, Way::ours, 30, 1);
  const Outcome many = simulate(of(2048, 150, 1 << 20), costs, Way::ours, 30, 1);
  EXPECT_EQ(many.requeues, 0);
  // Five of six faults take a node; every fifth of these finds no spare.
  const double taken = static_cast<double>(few.faults) * (190 + 72 + 42 + 46) / 419;
  EXPECT_NEAR(static_cast<double>(few.requeues), taken / 5, 0.25 * taken / 5);
  EXPECT_EQ(few.unattended, few.faults);
}

// Faults without a step between them use up the budget that the policy is given: then a person is needed.
TEST(Simulation, ThePolicyGivesUpWhereNothingEverTrains) {
  const Outcome o = simulate(of(2048, 0.05), {}, Way::ours, 2, 1);
  EXPECT_LT(o.unattended, o.faults);
  EXPECT_LT(o.trained, 0.05);
}

TEST(Simulation, ShorterRecoveriesTrainMore) {
  for (const int nodes : {128, 2048, 16384}) {
    const auto trained = [&](Way way) { return simulate(of(nodes, 150, nodes / 100), {}, way, 54, 3).trained; };
    EXPECT_GT(trained(Way::ours), trained(Way::scripted)) << nodes;
    EXPECT_GT(trained(Way::scripted), trained(Way::requeue)) << nodes;
  }
}

TEST(Report, SaysEverySizeAndWay) {
  std::vector<Row> rows;
  for (const Way way : {Way::requeue, Way::ours})
    for (const int nodes : {128, 256})
      rows.push_back({nodes * 8, of(nodes, 150), way, {simulate(of(nodes, 150), {}, way, 5, 1)}});
  const std::string lines = json_lines(rows, 5);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4);
  EXPECT_NE(lines.find("\"way\":\"mm-train\""), std::string::npos);
  const std::string picture = plot(rows, "title");
  EXPECT_TRUE(picture.starts_with("<svg "));
  EXPECT_NE(picture.find("1024"), std::string::npos);
  EXPECT_NE(table(rows, 5).find("2048 mm-train"), std::string::npos);
}

}  // namespace
}  // namespace mm::simulate
