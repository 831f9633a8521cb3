// SPDX-License-Identifier: Apache-2.0
// The suggested layout against every layout, on cases small enough to try all.
#include "common/plan/search.h"

#include <gtest/gtest.h>

#include "tests/common/plan/models.h"

namespace mm::plan {
namespace {

// Every value of every field, also those that give the same layout twice.
void exhaustive(const Model& m, const Batch& batch, int ranks, const Machine& machine, double& best, int64_t& least) {
  best = 1e300;
  least = INT64_MAX;
  for (int tp = 1; tp <= std::min(ranks, machine.ranks_of_node); ++tp)
    for (int cp = 1; cp <= ranks; ++cp)
      for (int pp = 1; pp <= ranks; ++pp) {
        if (ranks % (tp * cp * pp) != 0 || (cp > 1 && 2 * cp > batch.length)) continue;
        for (int chunks = 1; chunks <= m.text.count; ++chunks)
          for (int zero = 0; zero <= 3; ++zero)
            for (int64_t size = 1; size <= batch.samples; ++size)
              for (const bool recompute : {false, true}) {
                Parallelism p;
                p.mesh = {tp, cp, ranks / (tp * cp * pp), pp};
                p.chunks = chunks;
                p.schedule = chunks > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
                p.zero = zero;
                p.micro_batch = size;
                p.recompute = recompute;
                if ((pp == 1 && chunks > 1) || !why_impossible(m, batch, p).empty()) continue;
                const Plan plan = make_plan(m, batch, p, {}, machine);
                const int64_t memory = plan.largest_memory().total();
                least = std::min(least, memory);
                if (static_cast<double>(memory) + machine.reserved <= machine.memory) best = std::min(best, plan.step_seconds);
              }
      }
}

TEST(Search, IsAsGoodAsTryingAll) {
  Model vlm = decoder(llama_layers(6, 512, 1408, 8, 4), 1024);
  add_tower(vlm, encoder_layers(4, 256, 1024, 4), 96, 16, false, 4);
  const Model text = decoder(llama_layers(5, 2048, 5632, 16, 16), 32000);
  Model clip = clip_model(encoder_layers(4, 256, 512, 4), 96, 16, encoder_layers(4, 256, 512, 4), 128);
  int fitting = 0, tight = 0;
  for (const Model* m : std::initializer_list<const Model*>{&vlm, &text, &clip})
    for (const int ranks : {1, 4, 6, 8})
      for (const double memory : {2e6, 3e7, 1e8, 3e8, 1e9, 80e9}) {
        const bool dual = m->kind == Model::Kind::dual_tower;
        const Batch batch{.samples = 12, .images = dual ? 1 : 1.5, .length = dual ? 20.0 : 60, .labels = 22};
        Machine machine;
        machine.ranks_of_node = 4;
        machine.memory = memory;
        machine.reserved = 1e6;
        const Search found = suggest(*m, batch, ranks, {}, machine);
        double best = 0;
        int64_t least = 0;
        exhaustive(*m, batch, ranks, machine, best, least);
        ASSERT_TRUE(found.best);
        ASSERT_EQ(why_impossible(*m, batch, found.best->parallelism), "");
        EXPECT_EQ(found.fits, best < 1e300);
        if (found.fits) {
          EXPECT_LE(found.best->plan.step_seconds, best);
          EXPECT_LE(static_cast<double>(found.best->plan.largest_memory().total()) + machine.reserved, machine.memory);
        } else {
          EXPECT_EQ(found.best->plan.largest_memory().total(), least);
        }
        (found.fits ? fitting : tight) += 1;
      }
  EXPECT_GT(fitting, 20);
  EXPECT_GT(tight, 5);
}

TEST(Search, HasNothingWhereNoLayoutIsPossible) {
  EXPECT_FALSE(suggest(decoder(llama_layers(2, 64, 128, 2, 2), 100), {.samples = 3, .length = 8, .labels = 8}, 1024, {}, {}).best);
}

// Thousands of ranks take seconds at most, and use what their size offers.
TEST(Search, WorksForThousandsOfRanks) {
  const Model m = decoder(llama_layers(126, 16384, 53248, 128, 8), 128256);
  for (const int ranks : {1024, 16384}) {
    const Batch batch{.samples = 2048, .images = 0, .length = 8192, .labels = 8192};
    const Search found = suggest(m, batch, ranks, numbers_of("bfloat16"), {});
    ASSERT_TRUE(found.best);
    EXPECT_TRUE(found.fits);
    EXPECT_EQ(found.best->parallelism.ranks(), ranks);
    EXPECT_GT(found.best->plan.mfu, 0.3);
    EXPECT_LT(found.best->plan.mfu, 0.6);
  }
}

}  // namespace
}  // namespace mm::plan
