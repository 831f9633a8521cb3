// SPDX-License-Identifier: Apache-2.0
// Every layout of a model's ranks, as threads, against one rank: the loss, and every parameter's gradient summed over the ranks
// that hold it, in double to 1e-12. The micro-batches are the awkward ones: none, one and several pictures, nothing trained, one
// token, nothing at all. What the ranks of each group began is compared too.
#include "trainer/model/stage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/trainer/model/harness.h"
#include "trainer/comm/trace.h"
#include "trainer/parallel/mesh.h"

namespace mm {
namespace {

using test::sample;

struct Case {
  int tp = 1, cp = 1, dp = 1, pp = 1, chunks = 1;
  bool recompute = false;
  std::vector<std::string> frozen = {};
  model::LossOptions loss = {};
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << "tp " << c.tp << " cp " << c.cp << " dp " << c.dp << " pp " << c.pp << " chunks " << c.chunks
       << (c.recompute ? " recompute" : "");
}

std::vector<std::vector<data::Sample>> awkward_batches() {
  data::Sample untrained = sample({1, 3, 5, 2}, 40);
  untrained.labels.assign(untrained.ids.size(), data::no_label);
  data::Sample one_label = sample({1, 7, 3, 8, 6, 9, 2}, 41);
  for (size_t i = 0; i < one_label.labels.size(); ++i)
    if (i != 7) one_label.labels[i] = data::no_label;
  data::Sample turns = sample({1, 3, 5, 6, 11, 3, 13, 14, 15, 16, 17, 2}, 50);  // two runs of labels
  turns.labels[6] = turns.labels[11] = data::no_label;
  return {test::mixed_batch(), {sample({1, 12, 13, 2}, 20)}, {untrained}, {one_label, untrained, turns}, {sample({4, 5}, 21)}, {}};
}

model::Placement placement(const model::VlmConfig& config, const Case& c, const Coordinates& at,
                           const std::vector<model::Chunk>& chunks) {
  model::Placement out;
  out.tp = c.tp;
  out.tp_rank = at.tp;
  out.of = [&config, &c, chunks](const std::string& unit) -> model::Placement::Unit {
    bool embeds = false, heads = false, layer = false;
    for (const model::Chunk& chunk : chunks) {
      embeds |= chunk.embeds;
      heads |= chunk.heads;
      for (int i = chunk.first_layer; i < chunk.end_layer; ++i) layer |= unit == "text." + std::to_string(i);
    }
    if (unit == "embed") return {.held = embeds || (config.text.tied && heads), .cut = true, .tied = config.text.tied && c.pp > 1};
    if (unit == "head") return {.held = heads, .cut = true, .tied = false};
    if (unit.starts_with("text.")) return {.held = layer, .cut = true, .tied = false};
    return {.held = embeds, .cut = false, .tied = false};
  };
  return out;
}

// What a layer told of its unit, in order.
struct Recorder : model::UnitHooks {
  std::vector<std::string> calls;
  void acquire(std::string_view unit) override { calls.push_back("acquire " + std::string(unit)); }
  void release(std::string_view unit) override { calls.push_back("release " + std::string(unit)); }
  void gradient_ready(std::string_view unit) override { calls.push_back("ready " + std::string(unit)); }
};

using Gradients = std::map<std::string, std::vector<double>>;  // of whole tensors

struct Result {
  double loss = 0;
  Gradients gradients;
};

// All forward passes, piece by piece, then all backward passes.
double run_pieces(model::Stage<double>& stage, parallel::Mesh& mesh, const std::vector<model::MicroBatch>& batches, int chunks,
                  double scale) {
  const int pp = mesh.layout.pp, pieces = pp * chunks, next = (mesh.at.pp + 1) % pp, before = (mesh.at.pp + pp - 1) % pp;
  std::vector<std::unique_ptr<std::vector<double>>> messages;
  std::vector<comm::Pending> sent;
  const auto room = [&](const model::MicroBatch& batch) {
    messages.push_back(std::make_unique<std::vector<double>>(static_cast<size_t>(stage.boundary_elements(batch))));
    return messages.back()->data();
  };
  const auto tag = [&](int piece, int batch) { return piece * 100 + batch; };
  double loss = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int piece = chunk * pp + mesh.at.pp;
    for (int b = 0; b < static_cast<int>(batches.size()); ++b) {
      const model::MicroBatch& batch = batches[static_cast<size_t>(b)];
      const int64_t n = stage.boundary_elements(batch);
      double *in = piece > 0 ? room(batch) : nullptr, *out = piece + 1 < pieces ? room(batch) : nullptr;
      if (in && pp > 1) mesh.pp->begin_receive(before, in, n, tag(piece, b)).wait();
      if (in && pp == 1) std::copy_n(messages[static_cast<size_t>(b + (chunk - 1) * static_cast<int>(batches.size()))]->data(), n, in);
      loss += stage.forward(chunk, b, batch, in, out);
      if (out && pp > 1) sent.push_back(mesh.pp->begin_send(next, out, n, tag(piece + 1, b)));
    }
  }
  for (int chunk = chunks; chunk-- > 0;) {
    const int piece = chunk * pp + mesh.at.pp;
    for (int b = 0; b < static_cast<int>(batches.size()); ++b) {
      const model::MicroBatch& batch = batches[static_cast<size_t>(b)];
      const int64_t n = stage.boundary_elements(batch);
      double *dout = piece + 1 < pieces ? room(batch) : nullptr, *din = piece > 0 ? room(batch) : nullptr;
      if (dout) mesh.pp->begin_receive(next, dout, n, 10'000 + tag(piece, b)).wait();
      stage.backward(chunk, b, batch, scale, dout, din);
      if (din) sent.push_back(mesh.pp->begin_send(before, din, n, 10'000 + tag(piece - 1, b)));
    }
  }
  for (comm::Pending& pending : sent) pending.wait();
  return loss;
}

comm::Comm& holders(const parallel::Mesh& mesh, model::Holders who) {
  return who == model::Holders::data ? *mesh.data : who == model::Holders::stage ? *mesh.stage : *mesh.tied;
}

Result run(const model::VlmConfig& config, const Case& c) {
  const Layout layout{c.tp, c.cp, c.dp, c.pp};
  std::vector<std::unique_ptr<comm::Comm>> comms = comm::thread_comms(layout.world_size());
  std::vector<std::vector<comm::Traced>> traces(comms.size());
  std::vector<Recorder> recorders(comms.size());
  std::vector<std::string> errors(comms.size());
  std::vector<double> losses(comms.size());
  Result result;
  std::mutex mutex;
  std::vector<std::vector<data::Sample>> all = awkward_batches();
  while (all.size() % static_cast<size_t>(c.dp) != 0) all.emplace_back();
  const auto rank = [&](size_t r) {
    parallel::Mesh mesh = parallel::make_mesh(*comms[r], layout);
    const std::vector<model::Chunk> chunks = model::chunks_of(config.text.layers, mesh.at.pp, c.pp, c.chunks);
    std::vector<model::ParamSpec> specs = model::param_specs(config);
    model::freeze(specs, c.frozen);
    model::ParamStore<double> params(specs, placement(config, c, mesh.at, chunks));
    fixture::fill(params);
    params.set_hooks(&recorders[r]);
    tensor::ThreadPool pool(1);
    model::Stage<double> stage(config, chunks, params, pool, {mesh.tp.get(), mesh.cp.get(), mesh.encoder_share.get()},
                               {c.recompute, c.loss});
    std::vector<model::MicroBatch> batches;
    for (size_t b = static_cast<size_t>(mesh.at.dp); b < all.size(); b += static_cast<size_t>(c.dp))
      model::pack(config, all[b], batches.emplace_back());
    comms[r]->start_trace();
    for (int step = 0; step < 2; ++step) {  // the second finds everything used
      params.zero_gradients();
      losses[r] = run_pieces(stage, mesh, batches, c.chunks, 0.01);
    }
    traces[r] = comms[r]->take_trace();
    for (const model::Run& held : params.runs())
      if (held.trained) holders(mesh, held.holders).all_reduce(params.gradients() + held.gradient_at, held.size);
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < params.specs().size(); ++i)
      if (params.gradient(i)) test::put_slice(params.specs()[i], params.local()[i], params.gradient(i), result.gradients[params.specs()[i].name]);
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
    result.loss += losses[r];
    // Ranks of one stage share units, and must agree on when they are there.
    const int stage = layout.coordinates(static_cast<int>(r)).pp;
    EXPECT_EQ(recorders[r].calls, recorders[static_cast<size_t>(layout.rank({0, 0, 0, stage}))].calls) << "rank " << r;
  }
  EXPECT_EQ(comm::first_difference(traces), "");
  return result;
}

void expect_equal(const Result& expected, const Result& got) {
  EXPECT_NEAR(got.loss, expected.loss, 1e-12 * expected.loss);
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (const auto& [name, values] : expected.gradients) {
    const std::vector<double>& others = got.gradients.at(name);
    double norm = 0, apart = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      norm += values[i] * values[i];
      apart += (values[i] - others[i]) * (values[i] - others[i]);
    }
    EXPECT_LE(std::sqrt(apart), 1e-12 * std::sqrt(norm) + 1e-15) << name;  // NaN, too, is not less
  }
}

void expect_equal_to_one_rank(const model::VlmConfig& config, const std::vector<Case>& cases) {
  std::optional<Result> one;
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::PrintToString(c));
    if (!one) one = run(config, {.frozen = c.frozen, .loss = c.loss});
    expect_equal(*one, run(config, c));
    if (testing::Test::HasFailure()) return;
  }
}

class Layouts : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Towers, Layouts, testing::Bool(), [](const auto& test) { return test.param ? "clip" : "siglip"; });

TEST_P(Layouts, OneRankAgreesWithTheFacade) {
  test::TestModel<double> m(test::config_of(test::small_config(GetParam(), 4)));
  double loss = 0;
  for (const std::vector<data::Sample>& batch : awkward_batches()) {
    loss += m.vlm.forward(batch);
    m.vlm.backward(0.01);
  }
  const Result one = run(m.config, {});
  EXPECT_NEAR(one.loss, loss, 1e-13 * loss);
  for (const auto& [name, values] : one.gradients)
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], m.params.gradient(m.params.index(name))[i]) << name;
}

TEST_P(Layouts, TensorParallel) {  // 3 ranks: heads 2, 1, 1; key heads whole on each
  expect_equal_to_one_rank(test::config_of(test::small_config(GetParam(), 4)), {{.tp = 2}, {.tp = 3}, {.tp = 4}, {.tp = 2, .recompute = true}});
}

TEST_P(Layouts, ContextParallel) {
  expect_equal_to_one_rank(test::config_of(test::small_config(GetParam(), 4)), {{.cp = 2}, {.cp = 3}, {.cp = 4}, {.cp = 8}, {.cp = 2, .recompute = true}});
}

TEST_P(Layouts, Pipeline) {
  expect_equal_to_one_rank(test::config_of(test::small_config(GetParam(), 4)),
                           {{.pp = 2}, {.pp = 3}, {.pp = 4}, {.pp = 2, .chunks = 2}, {.pp = 2, .chunks = 2, .recompute = true}});
}

TEST_P(Layouts, AllTogether) {
  expect_equal_to_one_rank(test::config_of(test::small_config(GetParam(), 4)),
                           {{.dp = 2},
                            {.dp = 4},
                            {.tp = 2, .cp = 2},
                            {.tp = 2, .cp = 2, .pp = 2},
                            {.tp = 4, .cp = 2},
                            {.tp = 2, .cp = 3},
                            {.tp = 2, .dp = 2, .pp = 2},
                            {.cp = 2, .dp = 2, .pp = 2, .chunks = 2},
                            {.tp = 3, .cp = 2, .dp = 1, .pp = 1, .recompute = true}});
}

TEST_P(Layouts, SomethingFrozen) {
  const model::VlmConfig config = test::config_of(test::small_config(GetParam(), 2));
  for (const std::vector<std::string>& frozen :
       {std::vector<std::string>{"vision_tower.*"}, {"vision_tower.*", "multi_modal*"}, {"language_model.*"}, {"*embed_tokens*"}})
    expect_equal_to_one_rank(config, {{.tp = 2, .cp = 2, .pp = 2, .frozen = frozen}});
}

TEST_P(Layouts, SmoothedLabelsAndLogZ) {
  const model::VlmConfig config = test::config_of(test::small_config(GetParam(), 2));
  expect_equal_to_one_rank(config, {{.tp = 3, .cp = 2, .loss = {.label_smoothing = 0.1, .z_loss = 1e-2}}});
}

}  // namespace
}  // namespace mm
