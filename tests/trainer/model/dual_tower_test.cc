// SPDX-License-Identifier: Apache-2.0
// The contrastive model: against the reference's frozen numbers, both losses against their formulas written out, and layouts
// and micro-batches against one rank with one.
#include "trainer/model/dual_tower.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/error.h"
#include "common/files.h"
#include "tests/trainer/model/frozen.h"
#include "tests/trainer/model/harness.h"
#include "trainer/comm/trace.h"
#include "trainer/model/contrastive_loss.h"
#include "trainer/parallel/mesh.h"

namespace mm {
namespace {

using nlohmann::json;

model::DualTowerConfig config_of(bool sigmoid) {
  json config = json::parse(fixture::config_json("pairs"));
  if (sigmoid) config["contrastive_loss"] = "sigmoid";
  const test::ScratchFolder folder;
  std::ofstream(folder.path() + "/config.json") << config;
  return model::load_dual_tower_config(folder.path());
}

TEST(Pairs, LossAndGradientsEqualTheReference) {
  const json frozen = json::parse(read_file("tests/trainer/fixtures/pairs.json"));
  const model::DualTowerConfig config = config_of(false);
  model::ParamStore<double> params(model::param_specs(config));
  fixture::fill(params);
  tensor::ThreadPool pool(2);
  model::DualTower<double> model(config, params, pool);
  model::MicroBatch batch;
  model::pack_pairs(config, fixture::samples(config.sequence_rule(0), 0, frozen["batch"]), batch);
  model.forward(0, batch);
  const double pairs = static_cast<double>(batch.images), loss = model.loss(1, 1 / pairs) / pairs;
  model.backward(0, batch);
  EXPECT_NEAR(loss, frozen["loss"].get<double>(), 1e-12 * loss);
  test::expect_frozen_gradients(frozen, params);
}

// ---------------------------------------------------------------- the losses written out

struct Vectors {
  static constexpr int pairs = 5, size = 7;
  std::vector<double> pictures, texts;
  Vectors() {
    for (uint64_t i = 0; i < pairs * size; ++i) {
      pictures.push_back(static_cast<double>(fixture::hash("picture", 0, i) >> 40) * 0x1p-24 - 0.5);
      texts.push_back(static_cast<double>(fixture::hash("text", 0, i) >> 40) * 0x1p-24 - 0.5);
    }
  }
  double dot(int text, int picture) const {
    double sum = 0;
    for (int j = 0; j < size; ++j)
      sum += texts[static_cast<size_t>(text * size + j)] * pictures[static_cast<size_t>(picture * size + j)];
    return sum;
  }
};

double written_out(const Vectors& v, bool sigmoid, double scale, double bias) {
  double total = 0;
  for (int i = 0; i < Vectors::pairs; ++i) {
    double by_text = 0, by_picture = 0;
    for (int j = 0; j < Vectors::pairs; ++j) {
      const double of_text = std::exp(scale) * v.dot(i, j), of_picture = std::exp(scale) * v.dot(j, i);
      if (sigmoid) total -= std::log(1 / (1 + std::exp(-(i == j ? 1 : -1) * (of_text + bias))));
      by_text += std::exp(of_text);
      by_picture += std::exp(of_picture);
    }
    const double own = std::exp(scale) * v.dot(i, i);
    if (!sigmoid) total += (std::log(by_text) - own + std::log(by_picture) - own) / 2;
  }
  return total;
}

TEST(ContrastiveLoss, IsTheFormulaAndItsDifferences) {
  for (bool sigmoid : {false, true}) {
    std::vector<model::ParamSpec> specs = {{.name = "logit_scale", .shape = {}}, {.name = "logit_bias", .shape = {1}}};
    model::ParamStore<double> params(specs);
    double &scale = *params.value(params.index("logit_scale")), &bias = *params.value(params.index("logit_bias"));
    scale = 0.7;
    bias = -1.3;
    tensor::ThreadPool pool(1);
    const model::Context<double> context{pool, params, nullptr, nullptr};
    model::ContrastiveLoss<double> loss(context, nullptr, sigmoid, Vectors::size);
    Vectors v;
    std::vector<double> dpictures = v.pictures, dtexts = v.texts;
    EXPECT_NEAR(loss.run(dpictures.data(), dtexts.data(), Vectors::pairs, 0.25), written_out(v, sigmoid, scale, bias), 1e-12);
    const auto difference = [&](double& x) {
      const double kept = x, h = 1e-5;
      x = kept + h;
      const double above = written_out(v, sigmoid, scale, bias);
      x = kept - h;
      const double below = written_out(v, sigmoid, scale, bias);
      x = kept;
      return 0.25 * (above - below) / (2 * h);
    };
    for (size_t i = 0; i < v.pictures.size(); ++i) {
      EXPECT_NEAR(dpictures[i], difference(v.pictures[i]), 1e-9);
      EXPECT_NEAR(dtexts[i], difference(v.texts[i]), 1e-9);
    }
    EXPECT_NEAR(*params.gradient(params.index("logit_scale")), difference(scale), 1e-9);
    EXPECT_NEAR(*params.gradient(params.index("logit_bias")), sigmoid ? difference(bias) : 0, 1e-9);
  }
}

// ---------------------------------------------------------------- layouts

struct Case {
  int tp = 1, dp = 1, micro_batches = 1;
  bool recompute = false;
};

struct Result {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
};

// Twelve pairs; each rank has a run of them, in micro-batches of uneven sizes.
Result run(const model::DualTowerConfig& config, const Case& c) {
  const Layout layout{c.tp, 1, c.dp, 1};
  const std::vector<data::Sample> all = fixture::samples(config.sequence_rule(0), 0, 12);
  std::vector<std::unique_ptr<comm::Comm>> comms = comm::thread_comms(layout.world_size());
  std::vector<std::vector<comm::Traced>> traces(comms.size());
  std::vector<std::string> errors(comms.size());
  std::vector<double> losses(comms.size());
  Result result;
  std::mutex mutex;
  const auto rank = [&](size_t r) {
    parallel::Mesh mesh = parallel::make_mesh(*comms[r], layout);
    model::Placement placement;
    placement.tp = c.tp;
    placement.tp_rank = mesh.at.tp;
    model::ParamStore<double> params(model::param_specs(config), placement);
    fixture::fill(params);
    tensor::ThreadPool pool(1);
    model::DualTower<double> model(config, params, pool, {mesh.tp.get(), mesh.data.get()}, c.recompute);
    const comm::Range mine = comm::part_of(12, mesh.at.dp, c.dp);
    std::vector<model::MicroBatch> batches(static_cast<size_t>(c.micro_batches));
    for (int b = 0; b < c.micro_batches; ++b) {
      const comm::Range part = comm::part_of(mine.size(), b, c.micro_batches);
      model::pack_pairs(config,
                        std::span(all).subspan(static_cast<size_t>(mine.begin + part.begin), static_cast<size_t>(part.size())),
                        batches[static_cast<size_t>(b)]);
    }
    comms[r]->start_trace();
    for (int step = 0; step < 2; ++step) {
      params.zero_gradients();
      for (int b = 0; b < c.micro_batches; ++b) model.forward(b, batches[static_cast<size_t>(b)]);
      losses[r] = model.loss(c.micro_batches, 1.0 / 12);
      for (int b = 0; b < c.micro_batches; ++b) model.backward(b, batches[static_cast<size_t>(b)]);
    }
    traces[r] = comms[r]->take_trace();
    for (const model::Run& held : params.runs())
      (held.holders == model::Holders::data ? *mesh.data : *mesh.stage)
          .all_reduce(params.gradients() + held.gradient_at, held.size);
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < params.specs().size(); ++i)
      test::put_slice(params.specs()[i], params.local()[i], params.gradient(i), result.gradients[params.specs()[i].name]);
  };
  std::vector<std::thread> threads;
  for (size_t r = 0; r < comms.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        rank(r);
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  for (size_t r = 0; r < comms.size(); ++r) {
    EXPECT_EQ(errors[r], "") << "rank " << r;
    result.loss += losses[r] / 12;
  }
  EXPECT_EQ(comm::first_difference(traces), "");
  return result;
}

TEST(Pairs, Case10LossSpansTheGlobalBatchInEveryLayout) {
  for (bool sigmoid : {false, true}) {
    const model::DualTowerConfig config = config_of(sigmoid);
    const Result one = run(config, {});
    for (const Case& c : {Case{.micro_batches = 5}, Case{.dp = 4}, Case{.dp = 5, .micro_batches = 2}, Case{.tp = 2},
                          Case{.tp = 3, .micro_batches = 13}, Case{.tp = 4, .dp = 2, .recompute = true},
                          Case{.tp = 2, .dp = 3, .micro_batches = 3}}) {
      const Result got = run(config, c);
      SCOPED_TRACE(testing::Message() << "sigmoid " << sigmoid << " tp " << c.tp << " dp " << c.dp);
      EXPECT_NEAR(got.loss, one.loss, 1e-12 * one.loss);
      double all = 0;
      for (const auto& [name, values] : one.gradients) all = std::hypot(all, test::norm(values.data(), std::ssize(values)));
      ASSERT_EQ(got.gradients.size(), one.gradients.size());
      for (const auto& [name, values] : one.gradients) {
        std::vector<double> apart = got.gradients.at(name);
        for (size_t i = 0; i < apart.size(); ++i) apart[i] -= values[i];
        EXPECT_LE(test::norm(apart.data(), std::ssize(apart)),
                  1e-12 * test::norm(values.data(), std::ssize(values)) + 1e-15 * all)
            << name;
      }
    }
  }
}

TEST(Pairs, BadSamplesAndConfigurationsAreNamed) {
  const model::DualTowerConfig config = config_of(false);
  model::MicroBatch batch;
  const auto message = [&](const auto& spoil) -> std::string {
    std::vector<data::Sample> samples = fixture::samples(config.sequence_rule(0), 3, 1);
    spoil(samples[0]);
    try {
      model::pack_pairs(config, samples, batch);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(message([](data::Sample& s) { s.images.clear(); }), "model: sample 000003: 0 pictures where a pair has one");
  EXPECT_EQ(message([](data::Sample& s) { s.ids.assign(65, 5); }),
            "model: sample 000003: 65 tokens where the model has 64 positions");
  EXPECT_EQ(message([](data::Sample& s) { s.ids[1] = 264; }), "model: sample 000003: token 264 is outside the vocabulary");
  EXPECT_EQ(message([](data::Sample& s) { s.images[0].height = 31; }),
            "model: sample 000003: a picture of 32 x 31 where the tower takes 32 x 32");
}

}  // namespace
}  // namespace mm
