// SPDX-License-Identifier: Apache-2.0
// Every schedule for up to 8 stages, 8 micro-batches and 3 chunks a stage: complete, free of deadlock, and as short as the
// formulas say.
#include "trainer/parallel/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "common/error.h"

namespace mm::parallel {
namespace {

using Direction = Pass::Direction;

void for_all(const std::function<void(ScheduleKind, int pp, int chunks, int micro_batches)>& body) {
  for (int pp = 1; pp <= 8; ++pp)
    for (int m = 1; m <= 8; ++m)
      for (int chunks = 1; chunks <= 3; ++chunks)
        for (ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved}) {
          if (kind == ScheduleKind::one_f_one_b && chunks > 1) continue;
          SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + " pp " + std::to_string(pp) + " virtual " +
                       std::to_string(chunks) + " micro-batches " + std::to_string(m));
          body(kind, pp, chunks, m);
        }
}

TEST(Schedule, EveryPassOnceAndForwardFirst) {
  for_all([](ScheduleKind kind, int pp, int chunks, int m) {
    const Schedule schedule = generate(kind, pp, chunks, m);
    ASSERT_EQ(schedule.size(), static_cast<size_t>(pp));
    for (const std::vector<Pass>& list : schedule) {
      std::set<std::tuple<int, int>> forward, backward;
      for (const Pass& pass : list) {
        ASSERT_TRUE(pass.chunk >= 0 && pass.chunk < chunks && pass.micro_batch >= 0 && pass.micro_batch < m);
        const std::tuple key(pass.chunk, pass.micro_batch);
        if (pass.direction == Direction::forward) {
          EXPECT_TRUE(forward.insert(key).second);
        } else {
          EXPECT_TRUE(forward.contains(key));
          EXPECT_TRUE(backward.insert(key).second);
        }
      }
      EXPECT_EQ(forward.size(), static_cast<size_t>(chunks * m));
      EXPECT_EQ(backward.size(), static_cast<size_t>(chunks * m));
    }
  });
}

TEST(Schedule, NoDeadlock) {
  for_all(
      [](ScheduleKind kind, int pp, int chunks, int m) { EXPECT_EQ(simulate(generate(kind, pp, chunks, m)).deadlock, ""); });
}

// Gradients of a chunk are added in the order of micro-batches, so that sums do not depend on the schedule.
TEST(Schedule, BackwardInOrderOfMicroBatches) {
  for_all([](ScheduleKind kind, int pp, int chunks, int m) {
    for (const std::vector<Pass>& list : generate(kind, pp, chunks, m)) {
      std::map<int, int> last;
      for (const Pass& pass : list)
        if (pass.direction == Direction::backward) {
          EXPECT_EQ(pass.micro_batch, last[pass.chunk]);
          ++last[pass.chunk];
        }
    }
  });
}

TEST(Schedule, BubbleIsWhatTheFormulasSay) {
  for_all([](ScheduleKind kind, int pp, int chunks, int m) {
    const Simulation s = simulate(generate(kind, pp, chunks, m));
    const double fill = pp - 1;
    if (chunks == 1) {
      EXPECT_NEAR(s.bubble, fill / (m + fill), 1e-12);
    } else if (kind == ScheduleKind::interleaved && m % pp == 0) {
      EXPECT_NEAR(s.bubble, fill / (chunks * m + fill), 1e-12);
    }
  });
}

TEST(Schedule, ActivationsInFlightAreBounded) {
  for_all([](ScheduleKind kind, int pp, int chunks, int m) {
    const Simulation s = simulate(generate(kind, pp, chunks, m));
    for (int r = 0; r < pp; ++r) {
      const int bound = kind == ScheduleKind::gpipe         ? chunks * m
                        : kind == ScheduleKind::one_f_one_b ? std::min(m, pp - r)
                                                            : std::min(chunks * m, 2 * (pp - r - 1) + (chunks - 1) * pp + 1);
      EXPECT_LE(s.most_in_flight[static_cast<size_t>(r)], bound);
    }
  });
}

TEST(Schedule, TheSimulatorSeesADeadlock) {
  Schedule schedule = generate(ScheduleKind::one_f_one_b, 2, 1, 2);
  std::swap(schedule[0][1], schedule[0][2]);  // stage 0 now goes backward before stage 1 has what it needs to
  EXPECT_EQ(simulate(schedule).deadlock, "");
  std::swap(schedule[1][0], schedule[1][1]);  // stage 1 goes backward before its own forward
  EXPECT_NE(simulate(schedule).deadlock.find("stage 1 waits for backward of chunk 0, micro-batch 0"), std::string::npos);
}

TEST(Schedule, OneChunkForOneForwardOneBackward) {
  EXPECT_THROW(generate(ScheduleKind::one_f_one_b, 2, 2, 4), Error);
}

// An encoder on ranks of its own talks to the first stage in the order of its passes, has features made before they are asked for,
// and keeps each micro-batch in a slot of its own, one more than the first stage has under way.
TEST(Schedule, AnEncoderIsOneMicroBatchAhead) {
  using What = EncoderAction::What;
  for_all([](ScheduleKind kind, int pp, int chunks, int m) {
    const std::vector<Pass> first = generate(kind, pp, chunks, m).front();
    std::vector<std::pair<bool, int>> passes, talks;  // backward, micro-batch
    for (const Pass& pass : first)
      if (pass.chunk == 0) passes.emplace_back(pass.direction == Direction::backward, pass.micro_batch);
    std::map<int, int> held;  // slot to micro-batch
    std::set<int> made, ended;
    size_t most = 0, stage_most = 0, sent = 0, taken = 0;
    for (const EncoderAction& action : encoder_actions(first)) {
      if (action.what == What::make) {
        EXPECT_TRUE(held.emplace(action.slot, action.micro_batch).second) << "slot " << action.slot << " is in use";
        made.insert(action.micro_batch);
      } else {
        EXPECT_EQ(held[action.slot], action.micro_batch);
      }
      most = std::max(most, held.size());
      if (action.what == What::send) {
        talks.emplace_back(false, action.micro_batch);
        EXPECT_TRUE(made.contains(action.micro_batch));
        stage_most = std::max(stage_most, ++sent - taken);
      }
      if (action.what == What::take) {
        talks.emplace_back(true, action.micro_batch);
        EXPECT_TRUE(m == static_cast<int>(sent) || made.size() > sent) << "nothing is ready while the stage waits";
        ++taken;
      }
      if (action.what == What::backward) {
        EXPECT_EQ(talks.back().first || talks[talks.size() - 2].first, true);
        ended.insert(action.micro_batch);
        held.erase(action.slot);
      }
    }
    EXPECT_EQ(talks, passes);
    EXPECT_EQ(ended.size(), static_cast<size_t>(m));
    EXPECT_LE(most, std::min(stage_most + 1, static_cast<size_t>(m)));
  });
}

}  // namespace
}  // namespace mm::parallel
