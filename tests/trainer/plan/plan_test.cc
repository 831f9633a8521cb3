// SPDX-License-Identifier: Apache-2.0
// The plan's arithmetic against what the trainer does: parameters that a rank holds, schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "common/error.h"
#include "common/files.h"
#include "common/plan/load.h"
#include "common/plan/parameters.h"
#include "tests/trainer/make_fixture.h"
#include "trainer/loop/placement.h"
#include "trainer/loop/plan.h"
#include "trainer/model/vlm.h"
#include "trainer/parallel/schedule.h"

namespace mm::loop {
namespace {

class ModelFolder : public testing::Test {
 protected:
  ModelFolder() {
    char pattern[] = "/tmp/mm-plan-XXXXXX";
    folder_ = ::mkdtemp(pattern);
  }
  ~ModelFolder() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& preset) { write_file_durably(folder_ + "/config.json", fixture::config_json(preset)); }
  std::string folder_;
};

plan::Group group_named(model::Holders holders) {
  if (holders == model::Holders::data) return plan::Group::data;
  return holders == model::Holders::stage ? plan::Group::stage : plan::Group::tied;
}

struct Held {
  int64_t elements = 0, trained = 0, owned = 0, owned_trained = 0;
  bool operator==(const Held&) const = default;
  void add(int64_t size, int64_t part, bool is_trained) {
    elements += size;
    owned += part;
    trained += is_trained ? size : 0;
    owned_trained += is_trained ? part : 0;
  }
};
void PrintTo(const Held& h, std::ostream* out) {
  *out << h.elements << " (trained " << h.trained << "), owned " << h.owned << " (trained " << h.owned_trained << ")";
}

// What the rank tp = cp = dp = 0 of a stage holds of the runs that `group` shares, and owns of them.
Held planned(const plan::Model& m, const plan::Parallelism& p, int stage, plan::Group group) {
  Held held;
  for (const plan::Run& run : plan::runs_of_stage(m, p, stage))
    if (run.holders == group)
      held.add(run.size * run.times, plan::largest_part(run.size, plan::holders_of(run, p)) * run.times, run.trained);
  return held;
}
Held trained_on(const model::ParamStore<float>& store, const Layout& mesh, plan::Group group) {
  const int holders = mesh.cp * mesh.dp * (group == plan::Group::stage ? mesh.tp : group == plan::Group::tied ? 2 : 1);
  Held held;
  for (const model::Run& run : store.runs())
    if (group_named(run.holders) == group) held.add(run.size, comm::part_of(run.size, 0, holders).size(), run.trained);
  return held;
}

std::vector<plan::Parallelism> layouts(int layers) {
  std::vector<plan::Parallelism> out;
  for (const int tp : {1, 2, 3, 4})
    for (const int cp : {1, 2})
      for (const int dp : {1, 3})
        for (const int pp : {1, 2, 4})
          for (const int chunks : {1, 2}) {
            if (pp * chunks > layers || (pp == 1 && chunks > 1)) continue;
            plan::Parallelism p;
            p.mesh = {tp, cp, dp, pp};
            p.chunks = chunks;
            out.push_back(p);
          }
  return out;
}

TEST_F(ModelFolder, ParametersAreThoseOfTheTrainersRanks) {
  for (const std::string& preset : fixture::presets()) {
    write(preset);
    const plan::Model m = plan::read_model(folder_);
    loop::Setup setup;
    setup.config = model::load_config(folder_);
    setup.specs = model::param_specs(setup.config);
    for (const plan::Parallelism& p : layouts(setup.config.text.layers)) {
      setup.layout = p.mesh;
      setup.job.parallel.pp = p.mesh.pp;
      setup.job.parallel.virtual_stages = p.chunks;
      for (int stage = 0; stage < p.mesh.pp; ++stage) {
        setup.at = {0, 0, 0, stage};
        const model::ParamStore<float> store(setup.specs, placement(setup));
        for (const plan::Group group : {plan::Group::data, plan::Group::stage, plan::Group::tied})
          EXPECT_EQ(planned(m, p, stage, group), trained_on(store, p.mesh, group))
              << preset << " tp " << p.mesh.tp << " cp " << p.mesh.cp << " dp " << p.mesh.dp << " pp " << p.mesh.pp << " chunks " << p.chunks
              << " stage " << stage << " " << plan::name(group);
      }
    }
  }
}

TEST_F(ModelFolder, ParametersOfAnEncoderOnItsOwnRanksAreThoseOfTheTrainersRanks) {
  for (const std::string& preset : fixture::presets()) {
    write(preset);
    const plan::Model m = plan::read_model(folder_);
    loop::Setup setup;
    setup.config = model::load_config(folder_);
    setup.specs = model::param_specs(setup.config);
    for (const int tp : {1, 2, 3, 4})
      for (const int dp : {1, 3}) {
        plan::Parallelism p;
        p.mesh = setup.layout = {2, 1, 2, 1};
        p.encoder_tp = tp;
        p.encoder_dp = dp;
        setup.encoder = {.tp = tp, .dp = dp};
        for (const bool encodes : {false, true}) {
          setup.encodes = encodes;
          const model::ParamStore<float> store(setup.specs, placement(setup));
          for (const plan::Group group : {plan::Group::data, plan::Group::stage})
            EXPECT_EQ(planned(m, p, encodes ? 1 : 0, group), trained_on(store, encodes ? setup.encoder : setup.layout, group))
                << preset << " tp " << tp << " dp " << dp << " " << plan::name(group) << (encodes ? " encoder" : " decoder");
        }
      }
  }
}

TEST_F(ModelFolder, ParametersOfTwoTowersAreThoseOfTheTrainersRanks) {
  for (const bool sigmoid : {false, true}) {
    std::string config = fixture::config_json("pairs");
    if (sigmoid) config.insert(1, R"("contrastive_loss":"sigmoid",)");
    write_file_durably(folder_ + "/config.json", config);
    const plan::Model m = plan::read_model(folder_);
    loop::Setup setup;
    setup.pairs = model::load_dual_tower_config(folder_);
    setup.specs = model::param_specs(*setup.pairs);
    for (const int tp : {1, 2, 3, 4})
      for (const int dp : {1, 3}) {
        plan::Parallelism p;
        p.mesh = setup.layout = {tp, 1, dp, 1};
        const model::ParamStore<float> store(setup.specs, placement(setup));
        for (const plan::Group group : {plan::Group::data, plan::Group::stage})
          EXPECT_EQ(planned(m, p, 0, group), trained_on(store, p.mesh, group)) << "tp " << tp << " dp " << dp << " " << plan::name(group);
      }
  }
}

// Bubble and activations in flight are those of the schedules that the trainer runs, for stages that are alike.
TEST(Schedules, BubbleAndPassesInFlightAreThoseOfTheSimulator) {
  // All time is in products of layers, all stages have as many.
  plan::Model m;
  m.text = {.count = 840, .hidden = 8, .intermediate = 8, .heads = 1, .kv_heads = 1, .head_size = 8, .gated = true, .causal = true};
  m.vocabulary = 1;
  plan::Machine machine;
  machine.flops = 1;
  machine.half_width = 0;
  machine.memory_bandwidth = machine.inside.bandwidth = machine.across.bandwidth = 1e30;
  machine.inside.latency = machine.across.latency = 0;
  const auto kinds = {parallel::ScheduleKind::gpipe, parallel::ScheduleKind::one_f_one_b, parallel::ScheduleKind::interleaved};
  for (const parallel::ScheduleKind kind : kinds)
    for (int pp = 1; pp <= 8; ++pp)
      for (int chunks = 1; chunks <= 3; ++chunks)
        for (int n = 1; n <= 16; ++n) {
          const bool interleaved = kind == parallel::ScheduleKind::interleaved;
          if (interleaved ? chunks == 1 || pp == 1 : chunks > 1) continue;
          const parallel::Simulation simulation = simulate(generate(kind, pp, chunks, n));
          plan::Parallelism p;
          p.mesh.pp = pp;
          p.chunks = chunks;
          p.schedule = interleaved                            ? plan::Schedule::interleaved
                       : kind == parallel::ScheduleKind::gpipe ? plan::Schedule::gpipe
                                                               : plan::Schedule::one_f_one_b;
          p.micro_batch = 1;
          const plan::Plan plan = make_plan(m, {.samples = n, .images = 0, .length = 64, .labels = 64}, p, {}, machine);
          const std::string where = "pp " + std::to_string(pp) + " chunks " + std::to_string(chunks) + " micro-batches " + std::to_string(n);
          const bool even = n % pp == 0 || n < pp || chunks == 1;
          if (even) {
            EXPECT_NEAR(plan.bubble, simulation.bubble, 1e-3) << where;
          } else {  // a last, smaller group: an upper bound, and near
            EXPECT_GE(plan.bubble, simulation.bubble - 1e-3) << where;
            EXPECT_LE(plan.bubble, simulation.bubble + 0.1) << where;
          }
          int slots = 0;
          for (const parallel::EncoderAction& action : encoder_actions(generate(kind, pp, chunks, n).front()))
            slots = std::max(slots, action.slot + 1);
          EXPECT_LE(slots, plan::passes_in_flight(p, n, pp)) << where;
          if (n % pp == 0 || chunks == 1) {
            EXPECT_EQ(slots, plan::passes_in_flight(p, n, pp)) << where;
          }
          for (int stage = 0; stage < pp; ++stage) {
            const int most = simulation.most_in_flight[static_cast<size_t>(stage)], planned = plan.stages[static_cast<size_t>(stage)].in_flight;
            EXPECT_GE(planned, most) << where << " stage " << stage;
            if (n % pp == 0 || chunks == 1) {
              EXPECT_EQ(planned, most) << where << " stage " << stage;
            }
          }
        }
}

class PlannedJob : public ModelFolder {
 protected:
  TrainOptions options_of(std::vector<std::string> assignments) {
    write_file_durably(folder_ + "/job.toml", "[model]\npath = \"" + folder_ + "\"\n[data]\nshards = \"none/*.tar\"\nglobal_batch = 256\n");
    TrainOptions options;
    options.job_file = folder_ + "/job.toml";
    options.assignments = std::move(assignments);
    return options;
  }
  PlanReport report(int ranks, std::vector<std::string> assignments, double gpu_memory = 0) {
    TrainOptions options = options_of(std::move(assignments));
    options.gpu_memory = gpu_memory;
    return make_report(options, ranks);
  }
  static constexpr const char* large_ = R"({"model_type": "llava", "image_token_index": 3, "vision_feature_select_strategy": "full",
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
                      "num_attention_heads": 16, "image_size": 384, "patch_size": 14, "hidden_act": "gelu_pytorch_tanh"},
    "text_config": {"model_type": "llama", "vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
                    "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 8192}})";
};

TEST_F(PlannedJob, OfThousandsOfRanksIsShort) {
  write_file_durably(folder_ + "/config.json", large_);
  const std::vector<std::string> sets = {"parallel.tp=8",  "parallel.pp=8",          "parallel.virtual=2",     "parallel.zero=2", "parallel.micro_batch=1",
                                         "data.max_length=4096", "parallel.dtype=bfloat16", "data.global_batch=4096"};
  for (const int ranks : {1024, 16384}) {
    const PlanReport r = report(ranks, sets);
    EXPECT_TRUE(r.fits());
    EXPECT_TRUE(r.search.fits);
    EXPECT_LE(r.search.best->plan.step_seconds, r.plan.step_seconds);
    const std::string text = plan_text(r), json = plan_json(r);
    EXPECT_LT(std::ranges::count(text, '\n'), 80);
    EXPECT_EQ(std::ranges::count(json, '\n'), ranks + 1);
    EXPECT_NE(text.find("suggestion    parallel.tp="), std::string::npos) << text;
  }
}

TEST_F(PlannedJob, ThatDoesNotFitIsRefusedWithTheNumbers) {
  write_file_durably(folder_ + "/config.json", large_);
  const PlanReport r = report(64, {"parallel.zero=0", "parallel.dtype=bfloat16"}, 40);
  EXPECT_FALSE(r.fits());
  // 71 B parameters in all of 18 bytes.
  EXPECT_NE(refusal(r).find("gradients 28"), std::string::npos) << refusal(r);
  EXPECT_NE(refusal(r).find("a GPU has 40"), std::string::npos) << refusal(r);
  const auto error = [&](int ranks, const std::vector<std::string>& sets) -> std::string {
    try {
      report(ranks, sets);
    } catch (const Error& e) {
      EXPECT_EQ(e.status, exit_status::usage);
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error(1024, {"parallel.pp=128"}).find("pp 128 is above the model's 80 layers; possible is parallel.tp="), std::string::npos);
  EXPECT_NE(error(64, {"parallel.pp=16", "parallel.virtual=8"}).find("pp 16 x virtual 8 = 128 is above the model's 80 layers"), std::string::npos);
  EXPECT_NE(error(128, {"parallel.tp=128"}).find("tp 128 is above the model's 64 heads"), std::string::npos);
  EXPECT_NE(error(24, {"parallel.tp=5"}).find("not a multiple of tp 5"), std::string::npos);
  EXPECT_NE(error(68, {"parallel.encoder.tp=4", "parallel.tp=3"}).find("parallel.encoder takes 4 ranks of 68; the rest: layout: 64 tasks are not a multiple of tp 3"), std::string::npos);
  EXPECT_NE(error(81, {"parallel.encoder.tp=17"}).find("the encoder's tp 17 is above the model's 16 heads of the tower"), std::string::npos);
  EXPECT_NE(error(8, {"data.global_batch=12"}).find("dp 8 (8 tasks) does not divide"), std::string::npos);
}

// A training is refused with the same words, before anything is opened.
TEST_F(PlannedJob, ThatIsImpossibleIsNotBegun) {
  write_file_durably(folder_ + "/config.json", large_);
  TrainOptions options = options_of({"parallel.pp=128"});
  try {
    prepare(options, 0, 1024);
    ADD_FAILURE() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.status, exit_status::usage);
    EXPECT_NE(std::string(e.what()).find("1024 ranks as tp 1 x cp 1 x dp 8 x pp 128: pp 128 is above the model's 80 layers"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace mm::loop
