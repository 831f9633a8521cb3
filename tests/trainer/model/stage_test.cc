// SPDX-License-Identifier: Apache-2.0
// Every layout of a model's ranks, as threads, against one rank: the loss, and every parameter's gradient summed over the ranks
// that hold it, in double to 1e-12. The micro-batches are the awkward ones: none, one and several pictures, nothing trained,
// one token, nothing at all. What the ranks of each group began is compared too.
#include "trainer/model/stage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "common/error.h"
#include "tests/trainer/model/harness.h"
#include "trainer/comm/trace.h"
#include "trainer/model/encoder_stage.h"
#include "trainer/parallel/mesh.h"

namespace mm {
namespace {

using test::sample;

struct Case {
  int tp = 1, cp = 1, dp = 1, pp = 1, chunks = 1;
  bool recompute = false;
  std::vector<std::string> frozen = {};
  model::LossOptions loss = {};
  int encoder_tp = 0, encoder_dp = 0;  // 0: the tower is on the ranks of the first stage
  std::vector<int> stages = {};        // layers of each; none: even
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << "tp " << c.tp << " cp " << c.cp << " dp " << c.dp << " pp " << c.pp << " chunks " << c.chunks
       << (c.recompute ? " recompute" : "") << " encoder " << c.encoder_tp << " x " << c.encoder_dp;
}

std::vector<std::vector<data::Sample>> awkward_batches() {
  data::Sample untrained = sample({1, 3, 5, 2}, 40);
  untrained.labels.assign(untrained.ids.size(), data::no_label);
  data::Sample one_label = sample({1, 7, 3, 8, 6, 9, 2}, 41);
  for (size_t i = 0; i < one_label.labels.size(); ++i)
    if (i != 7) one_label.labels[i] = data::no_label;
  data::Sample turns = sample({1, 3, 5, 6, 11, 3, 13, 14, 15, 16, 17, 2}, 50);  // two runs of labels
  turns.labels[6] = turns.labels[11] = data::no_label;
  return {test::mixed_batch(),           {sample({1, 12, 13, 2}, 20)}, {untrained},
          {one_label, untrained, turns}, {sample({4, 5}, 21)},         {}};
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
    if (unit == "embed")
      return {.held = embeds || (config.text.tied && heads), .cut = true, .tied = config.text.tied && c.pp > 1};
    if (unit == "head") return {.held = heads, .cut = true, .tied = false};
    if (unit.starts_with("text.")) return {.held = layer, .cut = true, .tied = false};
    return {.held = embeds && c.encoder_tp == 0, .cut = false, .tied = false};
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
      if (in && pp == 1)
        std::copy_n(messages[static_cast<size_t>(b + (chunk - 1) * static_cast<int>(batches.size()))]->data(), n, in);
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

// What a rank has beside its groups: the same on ranks of the decoder and of the encoder.
struct Rank {
  std::vector<comm::Traced> trace;
  Recorder recorder;
  std::string error;
  double loss = 0;
};

class Harness {
 public:
  Harness(const model::VlmConfig& config, const Case& c) : config_(config), case_(c), batches_(awkward_batches()) {
    while (batches_.size() % static_cast<size_t>(c.dp) != 0) batches_.emplace_back();
  }

  Result run() {
    const Layout layout = decoder(), tower = encoder();
    std::vector<std::unique_ptr<comm::Comm>> comms =
        comm::thread_comms(layout.world_size() + tower.world_size());
    std::vector<Rank> ranks(comms.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < comms.size(); ++r)
      threads.emplace_back([&, r] {
        try {
          play(*comms[r], ranks[r]);
        } catch (const std::exception& e) {
          ranks[r].error = e.what();
        }
      });
    for (std::thread& t : threads) t.join();
    std::vector<std::vector<comm::Traced>> traces;
    for (size_t r = 0; r < comms.size(); ++r) {
      EXPECT_EQ(ranks[r].error, "") << "rank " << r;
      result_.loss += ranks[r].loss;
      traces.push_back(std::move(ranks[r].trace));
      // Ranks of one stage share units, and must agree on when they are there.
      const int number = static_cast<int>(r), first = number < layout.world_size()
                                                          ? layout.rank({0, 0, 0, layout.coordinates(number).pp})
                                                          : layout.world_size();
      EXPECT_EQ(ranks[r].recorder.calls, ranks[static_cast<size_t>(first)].recorder.calls) << "rank " << r;
    }
    EXPECT_EQ(comm::first_difference(traces), "");
    return std::move(result_);
  }

 private:
  Layout decoder() const { return {case_.tp, case_.cp, case_.dp, case_.pp}; }
  Layout encoder() const { return {case_.encoder_tp, 1, case_.encoder_dp, 1}; }

  std::vector<model::MicroBatch> batches_of(int replica) const {
    std::vector<model::MicroBatch> out;
    for (size_t b = static_cast<size_t>(replica); b < batches_.size(); b += static_cast<size_t>(case_.dp))
      model::pack(config_, batches_[b], out.emplace_back());
    return out;
  }

  void play(comm::Comm& world, Rank& rank) {
    parallel::Mesh mesh = parallel::make_mesh(world, decoder(), encoder());
    std::vector<model::ParamSpec> specs = model::param_specs(config_);
    model::freeze(specs, case_.frozen);
    model::Makers makers;
    if (case_.encoder_tp > 0) {
      makers = {.first = case_.tp * case_.cp, .replicas = case_.encoder_dp, .tp = case_.encoder_tp, .trained = false};
      for (const model::ParamSpec& spec : specs)
        makers.trained |= spec.trained() && (spec.unit == "projector" || spec.unit.starts_with("vision."));
    }
    if (mesh.encodes)
      encode(world, mesh, specs, makers, rank);
    else
      decode(world, mesh, mesh.bridge() ? mesh.bridge() : mesh.encoder_share.get(), specs, makers, rank);
  }

  void decode(comm::Comm& world, parallel::Mesh& mesh, comm::Comm* pictures, const std::vector<model::ParamSpec>& specs,
              const model::Makers& makers, Rank& rank) {
    const std::vector<model::Chunk> chunks = model::chunks_of(config_.text.layers, mesh.at.pp, case_.pp, case_.chunks, case_.stages);
    model::ParamStore<double> params(specs, placement(config_, case_, mesh.at, chunks));
    fixture::fill(params);
    params.set_hooks(&rank.recorder);
    tensor::ThreadPool pool(1);
    model::Stage<double> stage(config_, chunks, params, pool, {mesh.tp.get(), mesh.cp.get(), pictures, makers},
                               {case_.recompute, case_.loss});
    std::vector<model::MicroBatch> batches = batches_of(mesh.at.dp);
    if (makers.replicas > 0)
      for (model::MicroBatch& batch : batches) batch.pixels.clear();
    world.start_trace();
    for (int step = 0; step < 2; ++step) {  // the second finds everything used
      params.zero_gradients();
      rank.loss = run_pieces(stage, mesh, batches, case_.chunks, 0.01);
    }
    rank.trace = world.take_trace();
    collect(params, mesh);
  }

  void encode(comm::Comm& world, parallel::Mesh& mesh, const std::vector<model::ParamSpec>& specs, const model::Makers& makers,
              Rank& rank) {
    model::Placement placement;
    placement.tp = case_.encoder_tp;
    placement.tp_rank = mesh.at.tp;
    placement.of = [](const std::string& unit) -> model::Placement::Unit {
      return {.held = unit == "projector" || unit.starts_with("vision."), .cut = true, .tied = false};
    };
    model::ParamStore<double> params(specs, placement);
    fixture::fill(params);
    params.set_hooks(&rank.recorder);
    tensor::ThreadPool pool(1);
    std::vector<comm::Comm*> groups;
    for (const auto& bridge : mesh.bridges) groups.push_back(bridge.get());
    model::EncoderStage<double> stage(config_, makers, params, pool, mesh.tp.get(), groups, case_.recompute);
    std::vector<std::vector<model::MicroBatch>> batches;
    for (int d = 0; d < case_.dp; ++d) batches.push_back(batches_of(d));
    const int count = static_cast<int>(batches[0].size());
    world.start_trace();
    for (int step = 0; step < 2; ++step) {
      params.zero_gradients();
      for (int b = 0; b < count; ++b)
        for (int d = 0; d < case_.dp; ++d) {
          stage.make(d, b, batches[static_cast<size_t>(d)][static_cast<size_t>(b)]);
          stage.send(d, b, batches[static_cast<size_t>(d)][static_cast<size_t>(b)]);
        }
      for (int b = 0; b < count; ++b)
        for (int d = 0; d < case_.dp; ++d) {
          stage.take(d, b, batches[static_cast<size_t>(d)][static_cast<size_t>(b)]);
          stage.backward(d, b, batches[static_cast<size_t>(d)][static_cast<size_t>(b)]);
        }
    }
    rank.trace = world.take_trace();
    collect(params, mesh);
  }

  void collect(model::ParamStore<double>& params, const parallel::Mesh& mesh) {
    for (const model::Run& held : params.runs())
      if (held.trained) holders(mesh, held.holders).all_reduce(params.gradients() + held.gradient_at, held.size);
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < params.specs().size(); ++i)
      if (params.gradient(i))
        test::put_slice(params.specs()[i], params.local()[i], params.gradient(i), result_.gradients[params.specs()[i].name]);
  }

  const model::VlmConfig& config_;
  const Case& case_;
  std::vector<std::vector<data::Sample>> batches_;
  std::mutex mutex_;
  Result result_;
};

Result run(const model::VlmConfig& config, const Case& c) {
  return Harness(config, c).run();
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
    if (!one || c.frozen != cases.front().frozen) one = run(config, {.frozen = c.frozen, .loss = c.loss});
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
  expect_equal_to_one_rank(test::config_of(test::small_config(GetParam(), 4)),
                           {{.tp = 2}, {.tp = 3}, {.tp = 4}, {.tp = 2, .recompute = true}});
}

TEST_P(Layouts, ContextParallel) {
  expect_equal_to_one_rank(test::config_of(test::small_config(GetParam(), 4)),
                           {{.cp = 2}, {.cp = 3}, {.cp = 4}, {.cp = 8}, {.cp = 2, .recompute = true}});
}

TEST_P(Layouts, Pipeline) {
  expect_equal_to_one_rank(
      test::config_of(test::small_config(GetParam(), 4)),
      {{.pp = 2}, {.pp = 3}, {.pp = 4}, {.pp = 2, .chunks = 2}, {.pp = 2, .chunks = 2, .recompute = true},
       {.pp = 2, .stages = {3, 1}}, {.pp = 3, .stages = {1, 1, 2}}});
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

TEST_P(Layouts, EncoderOnItsOwnRanks) {
  expect_equal_to_one_rank(test::config_of(test::small_config(GetParam(), 4)),
                           {{.encoder_tp = 1, .encoder_dp = 1},
                            {.encoder_tp = 2, .encoder_dp = 1},
                            {.tp = 2, .cp = 2, .encoder_tp = 2, .encoder_dp = 2},
                            {.dp = 2, .pp = 2, .recompute = true, .encoder_tp = 1, .encoder_dp = 3},
                            {.tp = 2, .pp = 2, .frozen = {"vision_tower.*"}, .encoder_tp = 2, .encoder_dp = 1}});
}

TEST_P(Layouts, SomethingFrozen) {
  const model::VlmConfig config = test::config_of(test::small_config(GetParam(), 2));
  for (const std::vector<std::string>& frozen : {std::vector<std::string>{"vision_tower.*"},
                                                 {"vision_tower.*", "multi_modal*"},
                                                 {"language_model.*"},
                                                 {"*embed_tokens*"}})
    expect_equal_to_one_rank(config, {{.tp = 2, .cp = 2, .pp = 2, .frozen = frozen}});
}

TEST_P(Layouts, SmoothedLabelsAndLogZ) {
  const model::VlmConfig config = test::config_of(test::small_config(GetParam(), 2));
  expect_equal_to_one_rank(config, {{.tp = 3, .cp = 2, .loss = {.label_smoothing = 0.1, .z_loss = 1e-2}}});
}

// Whatever stages are given, pieces are consecutive and all layers are somewhere once.
TEST(Stage, PiecesOfUnevenStagesFollowEachOther) {
  const std::vector<int> of_stages = {5, 2, 4};
  std::vector<model::Chunk> pieces;
  for (int chunk = 0; chunk < 2; ++chunk)
    for (int stage = 0; stage < 3; ++stage) {
      const std::vector<model::Chunk> own = model::chunks_of(11, stage, 3, 2, of_stages);
      ASSERT_EQ(own.size(), 2U);
      EXPECT_EQ(own[0].end_layer - own[0].first_layer + own[1].end_layer - own[1].first_layer, of_stages[static_cast<size_t>(stage)]);
      pieces.push_back(own[static_cast<size_t>(chunk)]);
    }
  for (size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].first_layer, i == 0 ? 0 : pieces[i - 1].end_layer);
    EXPECT_LT(pieces[i].first_layer, pieces[i].end_layer);
    EXPECT_EQ(pieces[i].embeds, i == 0);
    EXPECT_EQ(pieces[i].heads, i + 1 == pieces.size());
  }
  EXPECT_EQ(pieces.back().end_layer, 11);
}

TEST(Stage, RefusesALayoutThatLeavesARankWithoutHeads) {
  const model::VlmConfig config = test::config_of(test::small_config(false));
  std::vector<std::unique_ptr<comm::Comm>> comms = comm::thread_comms(5);
  for (const auto& tp : comms) {
    model::Placement placement;
    placement.tp = 5;
    placement.tp_rank = tp->rank();
    placement.of = [](const std::string& unit) -> model::Placement::Unit {
      return {.held = true, .cut = !unit.starts_with("vision."), .tied = false};
    };
    model::ParamStore<double> params(model::param_specs(config), placement);
    tensor::ThreadPool pool(1);
    try {
      model::Stage<double> stage(config, model::chunks_of(2, 0, 1, 1), params, pool, {.tp = tp.get()});
      ADD_FAILURE() << "rank " << tp->rank() << " accepted it";
    } catch (const Error& e) {
      EXPECT_EQ(e.status, exit_status::usage);
      EXPECT_STREQ(e.what(), "model: 4 heads cannot be dealt out to tp 5 ranks");
    }
  }
}

// The loss from the logits, written out; its gradient by differences of the value that a tensor depends on most.
TEST(LossOptions, AreTheirFormulas) {
  const model::VlmConfig config = test::config_of(test::small_config(false));
  const model::LossOptions options{.label_smoothing = 0.1, .z_loss = 0.02};
  test::TestModel<double> m(config);
  model::Stage<double> stage(config, model::chunks_of(2, 0, 1, 1), m.params, m.pool, {}, {.recompute = false, .loss = options});
  model::MicroBatch batch;
  model::pack(config, test::mixed_batch(), batch);
  const double* logits = stage.logits(0, 0, batch, nullptr);
  double expected = 0;
  for (int32_t label : batch.labels) {
    double sum = 0, mean = 0;
    for (int j = 0; j < 20; ++j) sum += std::exp(logits[j]), mean += logits[j] / 20;
    const double log_z = std::log(sum);
    expected += log_z - 0.9 * logits[label] - 0.1 * mean + 0.02 * log_z * log_z;
    logits += 20;
  }
  EXPECT_NEAR(stage.forward(0, 0, batch, nullptr, nullptr), expected, 1e-12 * expected);
  m.params.zero_gradients();
  stage.backward(0, 0, batch, 1, nullptr, nullptr);
  for (size_t i = 0; i < m.params.specs().size(); ++i) {
    const double* gradient = m.params.gradient(i);
    if (!gradient) continue;
    const auto greater = [](double a, double b) { return std::abs(a) < std::abs(b); };
    const int64_t at = std::max_element(gradient, gradient + m.params.specs()[i].size(), greater) - gradient;
    double& value = m.params.value(i)[at];
    const double kept = value, h = 1e-5;
    value = kept + h;
    const double above = stage.forward(0, 0, batch, nullptr, nullptr);
    value = kept - h;
    const double below = stage.forward(0, 0, batch, nullptr, nullptr);
    value = kept;
    EXPECT_NEAR((above - below) / (2 * h), gradient[at], 1e-7 * std::abs(gradient[at]) + 2e-9) << m.params.specs()[i].name;
  }
}

}  // namespace
}  // namespace mm
