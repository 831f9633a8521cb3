// SPDX-License-Identifier: Apache-2.0
// All layouts compute the same: whole trainings with the ranks as threads of this process, in double, against one rank.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/error.h"
#include "tests/trainer/make_fixture.h"
#include "trainer/interop/safetensors.h"
#include "trainer/loop/tensors.h"
#include "trainer/loop/train.h"
#include "trainer/model/dual_tower_config.h"
#include "trainer/model/vlm.h"

namespace mm::loop {
namespace {

namespace fs = std::filesystem;

struct Case {
  int dp = 1, tp = 1, cp = 1, pp = 1, zero = 1, chunks = 1;
  bool recompute = false;
  int ranks() const { return dp * tp * cp * pp; }
  std::string name() const {
    return fmt::format("dp{}-tp{}-cp{}-pp{}-zero{}-chunks{}{}", dp, tp, cp, pp, zero, chunks, recompute ? "-recompute" : "");
  }
  std::vector<std::string> settings() const {
    std::vector<std::string> all = {fmt::format("parallel.tp={}", tp), fmt::format("parallel.cp={}", cp),
                                    fmt::format("parallel.pp={}", pp), fmt::format("parallel.zero={}", zero)};
    if (chunks > 1) all.push_back(fmt::format("parallel.virtual={}", chunks));
    if (recompute) all.push_back("parallel.recompute=full");
    return all;
  }
};

struct Step {
  double loss, grad_norm, tokens;
};
using Tensors = std::map<std::string, std::vector<double>>;

class Layouts : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Hundreds of checkpoints are made durable; in memory that costs nothing.
    const fs::path base = ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
    folder_ = new fs::path(base / fmt::format("mm-layouts-{}", ::getpid()));
    fs::create_directories(*folder_);
    for (const std::string& preset : fixture::presets()) fixture::write_model(at("model-" + preset), preset);
    fixture::write_model(at("model-pairs"), "pairs");
    fixture::write_shards(at("data"), 64, 4, 32);
  }
  static void TearDownTestSuite() {
    fs::remove_all(*folder_);
    delete folder_;
  }
  static std::string at(const std::string& name) { return (*folder_ / name).string(); }

  static std::string job(const std::string& preset) {
    const std::string path = at("job-" + preset + ".toml");
    std::ofstream(path) << fmt::format(
        "[model]\npath = \"{0}/model-{1}\"\n[data]\nshards = \"{0}/data/*.tar\"\nshuffle = false\nglobal_batch = 8\n"
        "[parallel]\ndtype = \"float64\"\nthreads = 1\nmicro_batch = 2\n[optim]\nlr = 1e-3\nwarmup = 4\n"
        "[recovery]\nhang_timeout = 5\n[checkpoint]\nevery = 1000\n[log]\nevery = 1000\n",
        folder_->string(), preset);
    return path;
  }

  // Runs a training with the ranks of `c` as threads; false, with a failure, where a rank ends with an error.
  static bool run(const std::string& preset, const Case& c, const std::string& dir, std::vector<std::string> settings,
                  const std::string& gradients = "") {
    TrainOptions options;
    options.job_file = job(preset);
    options.assignments = c.settings();
    options.assignments.push_back("run.dir=" + at(dir));
    options.assignments.insert(options.assignments.end(), settings.begin(), settings.end());
    options.dump_gradients = gradients;
    std::vector<std::unique_ptr<comm::Comm>> comms = comm::thread_comms(c.ranks());
    std::vector<std::string> errors(comms.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < comms.size(); ++r)
      threads.emplace_back([&, r] {
        comms[r]->start_trace();
        try {
          const int status = train(options, *comms[r]);
          if (status != 0) errors[r] = fmt::format("status {}", status);
        } catch (const std::exception& e) {
          errors[r] = e.what();
          const std::vector<comm::Traced> trace = comms[r]->take_trace();
          for (size_t i = trace.size() - std::min<size_t>(trace.size(), 8); i < trace.size(); ++i)
            errors[r] += "\n  began " + trace[i].group + " " + trace[i].what;
        }
      });
    for (std::thread& t : threads) t.join();
    for (size_t r = 0; r < errors.size(); ++r)
      if (!errors[r].empty()) {
        ADD_FAILURE() << preset << " " << c.name() << " rank " << r << ": " << errors[r];
      }
    return !HasFailure();
  }

  static std::vector<Step> steps(const std::string& dir) {
    std::vector<Step> out;
    std::ifstream in(at(dir + "/metrics.jsonl"));
    for (std::string line; std::getline(in, line);) {
      const nlohmann::json j = nlohmann::json::parse(line);
      out.push_back({j.at("loss"), j.at("grad_norm"), j.at("tokens")});
    }
    return out;
  }
  static Tensors tensors_of(const std::string& file) {
    Tensors out;
    const interop::Safetensors read(file);
    for (const auto& [name, info] : read.tensors())
      read.read(name, (out[name] = std::vector<double>(static_cast<size_t>(info.elements()))).data());
    return out;
  }
  // The parameters of the newest checkpoint.
  static Tensors trained(const std::string& preset, const std::string& dir) {
    const std::string folder = at("model-" + preset);
    model::ParamStore<double> store(model::is_dual_tower(folder) ? model::param_specs(model::load_dual_tower_config(folder))
                                                                 : model::param_specs(model::load_config(folder)));
    checkpoint::SelfGroup self;
    checkpoint::RunFolder(at(dir), false).load_newest(self, [&](int64_t, const checkpoint::Facts&) {
      std::vector<checkpoint::View> views;
      for (const model::Run& run : store.runs()) add_views(store, run, {0, run.size}, "param", store.values() + run.value_at, views);
      return views;
    });
    Tensors out;
    for (size_t i = 0; i < store.specs().size(); ++i)
      out[store.specs()[i].name].assign(store.value(i), store.value(i) + store.local()[i].size);
    return out;
  }

  // |a - b| <= tolerance |a| + floor, in the 2-norm of each tensor. What a softmax does not see (biases of keys) has a gradient
  // of rounding alone.
  static void expect_close(const Tensors& a, const Tensors& b, double tolerance, double floor, const std::string& what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (const auto& [name, values] : a) {
      const std::vector<double>& others = b.at(name);
      ASSERT_EQ(values.size(), others.size()) << what << " " << name;
      double norm = 0, apart = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        norm += values[i] * values[i];
        apart += (values[i] - others[i]) * (values[i] - others[i]);
      }
      EXPECT_LE(std::sqrt(apart), tolerance * std::sqrt(norm) + floor) << what << " " << name;
    }
  }

  // Step-1 gradients, then loss, norm and tensors of `count` steps, against one rank.
  static void expect_equals_one_rank(const std::string& preset, const std::vector<Case>& cases, int count) {
    const std::vector<std::string> set = {fmt::format("run.steps={}", count)};
    const std::string one = fmt::format("one-{}-{}", preset, count);
    if (!fs::exists(at(one))) {
      ASSERT_TRUE(run(preset, {}, one, set));
      ASSERT_TRUE(run(preset, {}, one + "-g", set, at(one + ".safetensors")));
    }
    const std::vector<Step> expected = steps(one);
    const Tensors gradients = tensors_of(at(one + ".safetensors")), values = trained(preset, one);
    double worst = 0;
    for (const Case& c : cases) {
      const std::string file = at("g.safetensors");
      fs::remove_all(at("run"));
      fs::remove_all(at("g"));
      if (!run(preset, c, "g", set, file) || !run(preset, c, "run", set)) return;
      expect_close(gradients, tensors_of(file), 1e-12, 1e-14, preset + " " + c.name() + " gradient");
      const std::vector<Step> got = steps("run");
      ASSERT_EQ(got.size(), expected.size()) << c.name();
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got[i].loss / expected[i].loss, 1, 1e-9) << preset << " " << c.name() << " step " << i;
        EXPECT_NEAR(got[i].grad_norm / expected[i].grad_norm, 1, 1e-9) << preset << " " << c.name() << " step " << i;
        EXPECT_EQ(got[i].tokens, expected[i].tokens);
        worst = std::max({worst, std::abs(got[i].loss / expected[i].loss - 1), std::abs(got[i].grad_norm / expected[i].grad_norm - 1)});
      }
      expect_close(values, trained(preset, "run"), 1e-9, 1e-14, preset + " " + c.name() + " value");
    }
    std::printf("%s: %zu layouts, %d steps: loss and norm at most %.1e apart\n", preset.c_str(), cases.size(), count, worst);
  }

  static fs::path* folder_;
};
fs::path* Layouts::folder_ = nullptr;

// dp, tp, cp and pp in {1, 2, 4} with at most 8 ranks, every zero, with several chunks a stage where there are layers enough.
std::vector<Case> all_cases(int layers) {
  std::vector<Case> cases;
  for (int dp : {1, 2, 4})
    for (int tp : {1, 2, 4})
      for (int cp : {1, 2, 4})
        for (int pp : {1, 2, 4})
          for (int zero = 0; zero <= 3; ++zero)
            for (int chunks : {1, 2}) {
              const Case c{dp, tp, cp, pp, zero, chunks};
              if (c.ranks() > 8 || (chunks > 1 && (pp == 1 || pp * chunks > layers))) continue;
              cases.push_back(c);
            }
  return cases;
}

TEST_F(Layouts, AllEqualOneRank) {
  expect_equals_one_rank("tiny", all_cases(4), 5);
}

// Each pair of values of two dimensions occurs at least once.
const std::vector<Case> pairwise = {{2, 2, 2, 1, 0, 1}, {1, 2, 1, 4, 1, 1}, {2, 1, 1, 2, 2, 2}, {1, 4, 2, 1, 3, 1},
                                    {4, 1, 2, 1, 1, 1}, {1, 1, 4, 2, 2, 1}, {2, 2, 1, 2, 3, 1}, {1, 1, 2, 4, 0, 1},
                                    {4, 2, 1, 1, 2, 1}, {2, 1, 4, 1, 3, 1}, {1, 4, 1, 2, 0, 2}, {2, 1, 2, 2, 1, 2, true}};

TEST_F(Layouts, PairsOfAllDimensionsHoldForTwentySteps) {
  expect_equals_one_rank("tiny", pairwise, 20);
}

TEST_F(Layouts, ContrastiveModelsEqualOneRank) {
  expect_equals_one_rank("pairs", {{4, 1, 1, 1, 0}, {2, 2, 1, 1, 1}, {1, 4, 1, 1, 2}, {2, 2, 1, 1, 3, 1, true}, {8, 1, 1, 1, 1}}, 5);
}

TEST_F(Layouts, OtherModelsEqualOneRank) {
  const std::vector<Case> few = {{1, 4, 1, 1, 1, 1}, {1, 2, 2, 2, 3, 1}, {2, 2, 1, 2, 2, 1}, {1, 1, 1, 4, 1, 1, true}};
  for (const std::string& preset : fixture::presets())
    if (preset != "tiny") expect_equals_one_rank(preset, few, 5);
}

}  // namespace
}  // namespace mm::loop
