// SPDX-License-Identifier: Apache-2.0
// Every parallel layout of up to 8 ranks loads under every other: tensor-parallel slices on either axis, pipeline stages,
// replicas over data and context parallel ranks, and flat ZeRO parts of slices, Adam's moments included.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <tuple>

#include "checkpoint/folder.h"
#include "checkpoint/io.h"
#include "checkpoint/step_reader.h"
#include "tests/checkpoint/support.h"

namespace mm::checkpoint::test {
namespace {

// A parameter of a model of a few stages: which axis tensor parallel ranks share (-1: all hold it whole).
struct Spec {
  const char* name;
  int layer, axis;
  Extents shape;
};
const std::vector<Spec> specs = {
    {"embed", 0, 0, {24, 3}},         {"layers.0.norm", 0, -1, {5}},   {"layers.0.q", 0, 0, {16, 5}},
    {"layers.0.o", 0, 1, {5, 16}},    {"layers.1.scale", 1, -1, {}},   {"layers.1.conv", 1, 1, {2, 8, 3}},
    {"layers.1.empty", 1, 0, {0, 4}}, {"layers.2.down", 2, 1, {3, 8}}, {"head", 3, 0, {8, 7}},
};

struct Parallel {
  int tp, pp, dp, cp, zero;
  int ranks() const { return tp * pp * dp * cp; }
};

std::vector<Parallel> all_layouts() {
  std::vector<Parallel> out;
  for (int tp = 1; tp <= 8; ++tp) {
    for (int pp = 1; tp * pp <= 8; ++pp) {
      for (int dp = 1; tp * pp * dp <= 8; ++dp) {
        for (int cp = 1; tp * pp * dp * cp <= 8; ++cp) {
          if (pp > 4 || tp == 3 || tp >= 5) continue;  // the model has four stages and extents that 2 and 4 divide
          for (int zero = 0; zero <= (dp * cp > 1 ? 1 : 0); ++zero) out.push_back({tp, pp, dp, cp, zero});
        }
      }
    }
  }
  return out;
}

// What a rank shows at a save: parameters whole (its slice), moments by flat parts where zero is on.
std::vector<Placed> shown(const Parallel& p, int rank, const State& state) {
  const int tp = rank % p.tp, replica = rank / p.tp % (p.cp * p.dp), stage = rank / (p.tp * p.cp * p.dp);
  std::vector<Placed> out;
  for (size_t t = 0; t < state.size(); ++t) {
    const Spec& spec = specs[t / 3];
    if (spec.layer * p.pp / 4 != stage) continue;
    Box slice{Extents(spec.shape.size(), 0), spec.shape};
    if (spec.axis >= 0) {
      const auto axis = static_cast<size_t>(spec.axis);
      slice.shape[axis] /= p.tp;
      slice.offset[axis] = tp * slice.shape[axis];
    }
    if (state[t].role == "param" || p.zero == 0) {
      out.push_back({t, slice});
      continue;
    }
    const int64_t n = elements(slice.shape), parts = p.cp * p.dp;
    if (n == 0 && replica > 0) continue;
    for (Box& b : boxes_of_slice_range(slice, n * replica / parts, n * (replica + 1) / parts)) out.push_back({t, std::move(b)});
  }
  return out;
}

State model_state() {
  State state;
  for (const Spec& s : specs) {
    for (const char* role : {"param", "m", "v"}) {
      state.push_back({s.name, role, role[0] == 'p' ? DType::bfloat16 : DType::float32, s.shape, {}});
      state.back().bytes.resize(static_cast<size_t>(elements(s.shape)) * size_of(state.back().dtype));
    }
  }
  return other_values(state, 17);
}

TEST(Reshard, EveryLayoutLoadsUnderEveryOther) {
  const State state = model_state();
  const std::vector<Parallel> layouts = all_layouts();
  std::vector<std::vector<Share>> targets;  // of each layout and rank
  for (const Parallel& p : layouts) {
    targets.emplace_back();
    for (int rank = 0; rank < p.ranks(); ++rank) targets.back().push_back(share_of(state, shown(p, rank, state)));
  }
  uint64_t bytes = 0;
  for (const Tensor& t : state) bytes += t.bytes.size();
  for (size_t from = 0; from < layouts.size(); ++from) {
    const TemporaryFolder folder;
    Layout layout;
    for (const Share& s : targets[from]) layout.push_back(s.placed);
    const SaveResult saved = save(folder / "run", state, layout, 1);
    ASSERT_TRUE(saved.committed) << saved.error;
    ASSERT_EQ(saved.bytes, bytes) << "replicas are written once";
    StepReader reader(folder / ("run/checkpoints/" + step_name(1)), 1);
    for (size_t to = 0; to < layouts.size(); ++to) {
      for (const Share& right : targets[to]) {
        Share share = empty_share(state, right.placed);
        reader.read(views(state, share));
        for (size_t i = 0; i < right.buffers.size(); ++i) {
          ASSERT_TRUE(share.buffers[i] == right.buffers[i]) << "from " << from << " to " << to << ", view " << i;
        }
      }
    }
  }
}

// Tensors that tensor parallelism cuts on an inner axis: a rank of another width reads its part and little else, whatever the
// layout that saved, flat parts included, whether or not the save was told of the axis, and gets its own bytes. So does one that
// wants rows.
TEST(Reshard, PartsOfAnInnerAxisAreReadAlone) {
  State state = {{"down", "param", DType::bfloat16, {770, 4096}, {}}, {"conv", "m", DType::float32, {97, 2048, 9}, {}}};
  for (Tensor& t : state) t.bytes.resize(static_cast<size_t>(elements(t.shape)) * size_of(t.dtype));
  state = other_values(state, 23);
  const auto columns = [&](size_t t, int64_t tp, int64_t rank) {
    Box box{Extents(state[t].shape.size(), 0), state[t].shape};
    box.shape[1] /= tp;
    box.offset[1] = rank * box.shape[1];
    return box;
  };
  std::atomic<uint64_t> read = 0;
  io::set_hook([&](const io::Operation& o) {
    if (o.op == io::Op::read) read += o.bytes;
    return io::Fault{};
  });
  for (const auto& [saved_tp, dp, told] : std::vector<std::tuple<int64_t, int64_t, bool>>{
           {1, 1, true}, {2, 1, true}, {4, 1, true}, {1, 3, true}, {2, 3, true}, {4, 3, true}, {1, 1, false}, {1, 2, false}}) {
    const TemporaryFolder folder;
    RunFolder(folder / "run", true);
    run_ranks(static_cast<int>(saved_tp * dp), [&](Group& group) {
      std::vector<Placed> placed;
      for (size_t t = 0; t < state.size(); ++t) {
        const Box slice = columns(t, saved_tp, group.rank() % saved_tp);
        const int64_t n = elements(slice.shape), d = group.rank() / saved_tp;
        for (Box& b : boxes_of_slice_range(slice, n * d / dp, n * (d + 1) / dp)) placed.push_back({t, std::move(b)});
      }
      const Share share = share_of(state, placed);
      std::vector<ConstView> shown = const_views(state, share);
      for (ConstView& v : shown) v.cut_axis = told ? 1 : -1;
      RunFolder run(folder / "run", false);
      const SaveResult result = run.save(group, 1, shown, {});
      EXPECT_TRUE(result.committed) << result.error;
    });
    StepReader reader(folder / ("run/checkpoints/" + step_name(1)), 1);
    for (size_t file = 0; file < reader.files(); ++file) reader.check_structure(file);
    for (const int64_t tp : {1, 2, 4, 8}) {
      for (int64_t rank = 0; rank < tp; ++rank) {
        std::vector<Placed> wanted;
        for (size_t t = 0; t < state.size(); ++t) wanted.push_back({t, columns(t, tp, rank)});
        Share share = empty_share(state, wanted);
        uint64_t needed = 0;
        for (const auto& buffer : share.buffers) needed += buffer.size();
        read = 0;
        reader.read(views(state, share));
        // Rows that a flat part has cut are too small to be cut again.
        EXPECT_LE(read, needed + needed / 20 + (64 << 10)) << "tp " << saved_tp << " x dp " << dp << " to tp " << tp << ", rank " << rank;
        EXPECT_TRUE(share.buffers == share_of(state, wanted).buffers);
      }
    }
  }
  // A few rows: at most a block of 256 KiB of each of the eight parts is read beside them, at both ends.
  {
    State tall = {{"tall", "param", DType::float32, {3000, 2048}, std::vector<char>(3000 * 2048 * 4)}};
    tall = other_values(tall, 24);
    const TemporaryFolder folder;
    ASSERT_TRUE(save(folder / "run", tall, {{{0, {{0, 0}, {3000, 2048}}}}}, 1).committed);
    StepReader reader(folder / ("run/checkpoints/" + step_name(1)), 1);
    reader.check_structure(0);
    for (const auto& [begin, rows] : std::vector<std::pair<int64_t, int64_t>>{{0, 1500}, {1000, 1000}, {2999, 1}, {0, 3000}}) {
      const std::vector<Placed> wanted = {{0, {{begin, 0}, {rows, 2048}}}};
      Share share = empty_share(tall, wanted);
      read = 0;
      reader.read(views(tall, share));
      EXPECT_LE(read, share.buffers[0].size() + (4 << 20)) << rows << " rows from " << begin;
      EXPECT_TRUE(share.buffers == share_of(tall, wanted).buffers);
    }
  }
  io::set_hook({});
}

TEST(Reshard, ReplicasAreSpreadEvenly) {
  const TemporaryFolder folder;
  const State state = other_values(State(8, {"", "param", DType::uint8, {1000}, std::vector<char>(1000)}), 3);
  State named = state;
  for (size_t i = 0; i < named.size(); ++i) named[i].name = std::string(1, static_cast<char>('a' + i));
  std::vector<Placed> all;
  for (size_t i = 0; i < named.size(); ++i) all.push_back({i, {{0}, {1000}}});
  ASSERT_TRUE(save(folder / "run", named, {all, all, all, all}, 1).committed);
  for (const FileRecord& f : read_manifest(folder / ("run/checkpoints/" + step_name(1)), 1).files) EXPECT_EQ(f.payload, 2000u);
}

}  // namespace
}  // namespace mm::checkpoint::test
