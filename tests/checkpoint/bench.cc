// SPDX-License-Identifier: Apache-2.0
// make bench-checkpoint: what checkpoints cost, as ratios against limits measured in the same minute; bench_peers.py measures
// torch and h5py on the same bytes. Nothing here is a test: numbers depend on the machine, so each line prints the limit too.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "checkpoint/commit.h"
#include "checkpoint/folder.h"
#include "checkpoint/hash.h"
#include "checkpoint/step_reader.h"
#include "checkpoint/threads.h"
#include "tests/checkpoint/support.h"

namespace mm::checkpoint::test {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr size_t mib = 1 << 20;
std::string folder;    // for files, on the disk to be measured
size_t megabytes = 0;  // of payload

double seconds_of(const std::function<void()>& f) {
  const auto begin = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

std::string spread(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", v[v.size() / 2], v.front(), v.back());
}

std::vector<char> noise(size_t bytes) {
  std::vector<char> out(bytes);
  Random random(1);
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t w = random();
    std::memcpy(&out[i], &w, 8);
  }
  return out;
}

// A rank's tensors: rows of 4096 floats.
struct Model {
  std::vector<char> bytes;
  int64_t rows;
  int ranks;
  Model(size_t megabytes_in_all, int n)
      : bytes(noise(megabytes_in_all * mib)), rows(static_cast<int64_t>(bytes.size() / 16384)), ranks(n) {}
  std::vector<ConstView> views(int rank, int cut_axis = -1) const {
    const int64_t begin = rows * rank / ranks, end = rows * (rank + 1) / ranks;
    return {{"w", "param", DType::float32, {rows, 4096}, {{begin, 0}, {end - begin, 4096}}, bytes.data() + begin * 16384, cut_axis}};
  }
};

void drop_cache(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY));
  ::fsync(fd.get());
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
}

void drop_caches(const std::string& tree) {
  for (const auto& e : fs::recursive_directory_iterator(tree)) {
    if (e.is_regular_file()) drop_cache(e.path());
  }
}

void raw_write(const Model& m) {
  run_ranks(m.ranks, [&](Group& g) {
    const ConstView v = m.views(g.rank())[0];
    const std::string path = fmt::format("{}/raw-{}", folder, g.rank());
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    const size_t n = static_cast<size_t>(elements(v.box.shape)) * 4;
    for (size_t at = 0; at < n; at += 4 * mib) {
      if (::pwrite(fd.get(), static_cast<const char*>(v.data) + at, std::min(4 * mib, n - at), static_cast<off_t>(at)) < 0)
        throw std::runtime_error("pwrite");
    }
    if (::fsync(fd.get()) != 0) throw std::runtime_error("fsync");
  });
  for (int r = 0; r < m.ranks; ++r) fs::remove(fmt::format("{}/raw-{}", folder, r));
}

void durable_save() {
  const Model m(megabytes, 2);
  std::vector<double> raw, ours, ratio;
  std::atomic<uint64_t> written = 0, syncs = 0, files = 0;
  const auto save_once = [&](int64_t step) {
    run_ranks(2, [&](Group& g) {
      RunFolder run(folder + "/run", false);
      const SaveResult r = run.save(g, step, m.views(g.rank()), {});
      if (!r.committed) throw std::runtime_error(r.error);
    });
  };
  RunFolder(folder + "/run", true);
  for (int i = 0; i < 10; ++i) {
    const bool raw_first = i % 2 == 0;
    double a = 0, b = 0;
    if (raw_first) a = seconds_of([&] { raw_write(m); });
    if (i == 0) {
      io::set_hook([&](const io::Operation& o) {
        if (o.op == io::Op::write) written += o.bytes;
        if (o.op == io::Op::sync && o.path.ends_with(".h5")) ++syncs;
        if (o.op == io::Op::create && o.path.ends_with(".h5")) ++files;
        return io::Fault{};
      });
    }
    b = seconds_of([&] { save_once(i); });
    io::set_hook({});
    if (!raw_first) a = seconds_of([&] { raw_write(m); });
    fs::remove_all(fmt::format("{}/run/checkpoints/{}", folder, step_name(i)));
    if (i == 0) continue;  // warm-up
    raw.push_back(megabytes / 1024.0 / a);
    ours.push_back(megabytes / 1024.0 / b);
    ratio.push_back(a / b);
  }
  fmt::print("durable save, {} MiB, 2 ranks: ours GiB/s {}, raw pwrite+fsync {}, ratio {} (target 0.95)\n", megabytes,
             spread(ours), spread(raw), spread(ratio));
  fmt::print("  bytes written / payload {:.5f} (target 1.01), fsyncs a rank file {:.2f} (target 1)\n",
             static_cast<double>(written) / static_cast<double>(m.bytes.size()),
             static_cast<double>(syncs) / static_cast<double>(files));
}

void stall() {
  const Model m(std::min<size_t>(megabytes, 512), 1);
  std::vector<char> copy(m.bytes.size(), 1);
  RunFolder run(folder + "/stall", true);
  SelfGroup group;
  std::vector<double> ours, memory, ratio;
  {
    Saver saver(run, group, {.keep = Keep{1, 0}});
    saver.reserve(m.bytes.size() + 4096);
    for (int i = 0; i < 6; ++i) {
      const double a = seconds_of([&] { std::memcpy(copy.data(), m.bytes.data(), copy.size()); });
      const double b = seconds_of([&] { saver.begin(group, i, m.views(0), {}); });
      saver.wait();
      if (i == 0) continue;
      memory.push_back(1e3 * a);
      ours.push_back(1e3 * b);
      ratio.push_back(b / a);
    }
  }
  fs::remove_all(folder + "/stall");
  fmt::print("stall of an asynchronous save, {} MiB: ours ms {}, memcpy {}, ratio {} (target 1.2)\n", m.bytes.size() / mib,
             spread(ours), spread(memory), spread(ratio));
}

// Steps as a trainer takes them: a thread for each core, there for the whole run, which meet at the beginning and the end of each.
class Steps {
 public:
  explicit Steps(int cores) : begin_(cores), end_(cores) {
    for (int i = 1; i < cores; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Steps() {
    over_ = true;
    begin_.arrive_and_wait();
  }
  double ms() {
    return 1e3 * seconds_of([&] {
             begin_.arrive_and_wait();
             arithmetic();
             end_.arrive_and_wait();
           });
  }

 private:
  static void arithmetic() {
    alignas(64) float a[4096];
    std::fill(std::begin(a), std::end(a), 1.0f);
    for (int k = 0; k < 6000; ++k) {
      for (float& x : a) x = x * 0.9999f + 0.0001f;
      asm volatile("" ::"r"(a) : "memory");
    }
  }
  void work() {
    for (;;) {
      begin_.arrive_and_wait();
      if (over_) return;
      arithmetic();
      end_.arrive_and_wait();
    }
  }
  std::atomic<bool> over_ = false;
  std::barrier<> begin_, end_;
  std::vector<std::jthread> threads_;
};

void step_time() {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const Model m(std::min<size_t>(megabytes, 512), 1);
  RunFolder run(folder + "/steps", true);
  SelfGroup group;
  std::vector<double> alone, beside;
  Steps steps(cores);
  {
    Saver saver(run, group, {.keep = Keep{1, 0}});
    saver.reserve(m.bytes.size() + 4096);
    int64_t step = 0;
    for (int round = 0; round < 5; ++round) {
      for (int i = 0; i < 40; ++i) alone.push_back(steps.ms());
      saver.begin(group, ++step, m.views(0), {});
      while (saver.ended().empty() && beside.size() < size_t{200} * (round + 1)) beside.push_back(steps.ms());
      saver.wait();
    }
  }
  fs::remove_all(folder + "/steps");
  const double p50 = median(beside) / median(alone);
  std::sort(alone.begin(), alone.end());
  std::sort(beside.begin(), beside.end());
  const auto p99 = [](const std::vector<double>& v) { return v[v.size() * 99 / 100]; };
  fmt::print(
      "step on {} cores while flushing: p50 {:.2f} ms, alone {:.2f}, ratio {:.3f} (target 1.05); p99 {:.2f}, alone {:.2f}\n",
      cores, median(beside), median(alone), p50, p99(beside), p99(alone));
}

void restore() {
  const Model m(megabytes, 2);
  RunFolder run(folder + "/run", true);
  run_ranks(2, [&](Group& g) {
    RunFolder mine(folder + "/run", false);
    mine.save(g, 1, m.views(g.rank()), {});
  });
  std::vector<char> target(m.bytes.size(), 1);
  const std::string step = folder + "/run/checkpoints/" + step_name(1);
  const auto verified = [&] {
    StepReader reader(step, 1);
    reader.read({{"w", "param", DType::float32, {m.rows, 4096}, {{0, 0}, {m.rows, 4096}}, target.data()}});
  };
  const auto limit = [&] {
    std::atomic<size_t> next = 0;
    const size_t blocks = m.bytes.size() / (4 * mib), half = blocks / 2;
    const UniqueFd fds[] = {UniqueFd(::open((step + "/rank-00000.h5").c_str(), O_RDONLY)),
                            UniqueFd(::open((step + "/rank-00001.h5").c_str(), O_RDONLY))};
    on_threads(2, [&] {
      for (size_t i = next++; i < blocks; i = next++) {
        if (::pread(fds[i < half ? 0 : 1].get(), &target[i * 4 * mib], 4 * mib, static_cast<off_t>(i % half * 4 * mib)) < 0)
          throw std::runtime_error("pread");
      }
    });
  };
  for (const bool cold : {false, true}) {
    std::vector<double> ours, raw, ratio;
    for (int i = 0; i < 6; ++i) {
      double t[2];
      for (int k = 0; k < 2; ++k) {
        const bool is_ours = (k + i) % 2 == 0;
        if (cold) drop_caches(step);
        t[is_ours] = seconds_of([&] { is_ours ? verified() : limit(); });
      }
      if (i == 0) continue;
      ours.push_back(megabytes / 1024.0 / t[1]);
      raw.push_back(megabytes / 1024.0 / t[0]);
      ratio.push_back(t[0] / t[1]);
    }
    if (std::memcmp(target.data(), m.bytes.data(), 64) == 0 || cold)
      fmt::print("verified restore, {}: ours GiB/s {}, pread of two threads {}, ratio {} (target 0.90)\n",
                 cold ? "cold" : "cached", spread(ours), spread(raw), spread(ratio));
  }
}

// Bytes read and peak memory of one rank's load, in a process of its own.
void reshard_case(const std::string& what, const std::string& step, int64_t rows, const Box& box) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    uint64_t read = 0;
    std::mutex mutex;
    io::set_hook([&](const io::Operation& o) {
      const std::lock_guard lock(mutex);
      if (o.op == io::Op::read) read += o.bytes;
      return io::Fault{};
    });
    rusage before{}, after{};
    ::getrusage(RUSAGE_SELF, &before);
    const size_t needed = static_cast<size_t>(elements(box.shape)) * 4;
    std::vector<char> target(needed);
    StepReader reader(step, 1);
    reader.read({{"w", "param", DType::float32, {rows, 4096}, box, target.data()}});
    ::getrusage(RUSAGE_SELF, &after);
    fmt::print("reshard {}: bytes read / needed {:.4f} (target 1.05), peak memory - shard {:.1f} MiB (target 64)\n", what,
               static_cast<double>(read) / static_cast<double>(needed),
               static_cast<double>(after.ru_maxrss - before.ru_maxrss) / 1024 - static_cast<double>(needed) / mib);
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
}

void reshard_costs() {
  int64_t rows = 0;
  {
    const Model m(megabytes, 2);
    rows = m.rows;
    for (const std::string name : {"/run", "/cut"}) {
      RunFolder run(folder + name, true);
      run_ranks(2, [&](Group& g) { RunFolder(folder + name, false).save(g, 1, m.views(g.rank(), name == "/cut" ? 1 : -1), {}); });
    }
  }
  const std::string step = folder + "/run/checkpoints/" + step_name(1), cut = folder + "/cut/checkpoints/" + step_name(1);
  reshard_case("2 -> 1", step, rows, {{0, 0}, {rows, 4096}});
  for (int64_t r = 0; r < 4; r += 3)
    reshard_case(fmt::format("2 -> 4, rank {}", r), step, rows, {{rows * r / 4, 0}, {rows / 4, 4096}});
  reshard_case("tp 2 -> tp 1 x dp 4, flat", step, rows, {{rows / 4 + 7, 0}, {rows / 4, 4096}});
  for (const int tp : {2, 8})
    reshard_case(fmt::format("tp 1 x dp 2 -> tp {}, columns", tp), cut, rows, {{0, 4096 - 4096 / tp}, {rows, 4096 / tp}});
  reshard_case("tp 1 x dp 2 -> whole, saved for columns", cut, rows, {{0, 0}, {rows, 4096}});
  for (const int tp : {2, 8}) {
    reshard_case(fmt::format("rows -> tp {}, columns, not told", tp), step, rows, {{0, 4096 - 4096 / tp}, {rows, 4096 / tp}});
  }
}

// Links of several speeds, played by a pace: what compressing gains, and what would be chosen.
void compression() {
  const int64_t rows = static_cast<int64_t>(std::min<size_t>(megabytes, 128)) * 128;
  std::vector<uint16_t> values(static_cast<size_t>(rows) * 4096);
  Random random(2);
  std::normal_distribution<float> normal(0, 0.02f);
  for (uint16_t& v : values) {
    const float f = normal(random);
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    v = static_cast<uint16_t>(bits >> 16);
  }
  const std::vector<ConstView> views = {{"w", "param", DType::bfloat16, {rows, 4096}, {{0, 0}, {rows, 4096}}, values.data()}};
  const int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const CompressionRate rate = sample_compression(views, threads);
  fmt::print("compression of bfloat16 weights, {} threads: {:.0f} MB/s, to {:.1f} %\n", threads, rate.bytes_per_second / 1e6, 100 * rate.ratio);
  for (const double link : {50e6, 100e6, 200e6, 400e6}) {
    double seconds[2];
    for (const bool compress : {false, true}) {
      Pace pace(link);
      WriteOptions options;
      options.threads = threads;
      options.pace = &pace;
      options.compress = compress;
      const std::string path = folder + "/compressed.h5";
      seconds[compress] = seconds_of([&] { write_rank_file(path, {"0123456789abcdef", 1, 0, 1}, views, options); });
      fs::remove(path);
    }
    fmt::print("  link of {:.0f} MB/s: as it is {:.2f} s, compressed {:.2f} s, ratio {:.2f}; chosen: {}\n", link / 1e6, seconds[0], seconds[1],
               seconds[0] / seconds[1], is_worth_compressing(link, rate) ? "compressed" : "as it is");
  }
}

// 70 billion parameters as Llama 3 has them, tp 8, pp 8, dp 16, ZeRO 1, without payload.
std::vector<std::vector<ConstView>> large_layout(int tp, int pp, int dp) {
  struct Spec {
    const char* name;
    int axis;
    Extents shape;
  };
  const std::vector<Spec> layer = {{"q", 0, {8192, 8192}},     {"k", 0, {1024, 8192}},     {"v", 0, {1024, 8192}},
                                   {"o", 1, {8192, 8192}},     {"gate", 0, {28672, 8192}}, {"up", 0, {28672, 8192}},
                                   {"down", 1, {8192, 28672}}, {"norm1", -1, {8192}},      {"norm2", -1, {8192}}};
  std::vector<std::vector<ConstView>> ranks(static_cast<size_t>(tp * pp * dp));
  const auto add = [&](const std::string& name, const Spec& s, int stage) {
    for (int t = 0; t < tp; ++t) {
      if (s.axis < 0 && t > 0) break;
      Box slice{Extents(s.shape.size(), 0), s.shape};
      if (s.axis >= 0) {
        slice.shape[static_cast<size_t>(s.axis)] /= tp;
        slice.offset[static_cast<size_t>(s.axis)] = t * slice.shape[static_cast<size_t>(s.axis)];
      }
      const int64_t n = elements(slice.shape);
      for (int d = 0; d < dp; ++d) {
        for (const char* role : {"param", "master", "m", "v"}) {
          for (Box& b : boxes_of_slice_range(slice, n * d / dp, n * (d + 1) / dp)) {
            const DType type = role[0] == 'p' ? DType::bfloat16 : DType::float32;
            ranks[static_cast<size_t>(t + tp * (d + dp * stage))].push_back({name, role, type, s.shape, std::move(b), nullptr});
          }
        }
      }
    }
  };
  for (int l = 0; l < 80; ++l) {
    for (const Spec& s : layer) add(fmt::format("model.layers.{}.{}.weight", l, s.name), s, l * pp / 80);
  }
  add("model.embed_tokens.weight", {"", 0, {128256, 8192}}, 0);
  add("lm_head.weight", {"", 0, {128256, 8192}}, pp - 1);
  add("model.norm.weight", {"", -1, {8192}}, pp - 1);
  return ranks;
}

FileRecord write_without_payload(const std::string& path, const Identity& identity, const std::vector<ConstView>& views) {
  RankIndex index{identity, {}};
  FileRecord r;
  for (const ConstView& v : views) {
    Entry e{v.name, v.role, v.dtype, v.global_shape, v.box};
    e.first_block = r.hash_count;
    r.hash_count += e.blocks().count();
    r.stored = r.payload += e.bytes();
    index.entries.push_back(std::move(e));
  }
  r.index_bytes = encode(index).size();
  Skeleton s = make_skeleton(index.entries, r.index_bytes, r.hash_count);
  r.size = s.size;
  r.index_offset = s.index_offset;
  r.hash_offset = s.hash_offset;
  const std::string blob = encode(index);
  r.index_hash = hash128(blob);
  s.patch(r.index_offset, blob);
  Hash128 structure;
  io::File file = io::File::create(path);
  for (const Skeleton::Piece& p : s.structure) {
    structure.add(p.bytes.data(), p.bytes.size());
    if (p.bytes.find_first_not_of('\0') != std::string::npos) file.write(p.bytes.data(), p.bytes.size(), p.offset);
  }
  r.structure_hash = structure.hex();
  file.close();
  fs::resize_file(path, r.size);
  return r;
}

void metadata() {
  const std::vector<std::vector<ConstView>> ranks = large_layout(8, 8, 16);
  RunFolder run(folder + "/large", true);
  Writer writer;
  Manifest m{1, "", "bench", 0, 0, 0, {}, {}};
  const std::string private_folder = start_save(run.path(), writer, 1, m.writer);
  m.epoch = writer.epoch;
  const double written = seconds_of([&] {
    for (size_t r = 0; r < ranks.size(); ++r) {
      const Identity identity{m.writer, 1, static_cast<int>(r), static_cast<int>(ranks.size())};
      m.files.push_back(
          write_without_payload(private_folder + "/" + rank_file_name(static_cast<int64_t>(r)), identity, ranks[r]));
    }
  });
  const double commit = seconds_of([&] { commit_files(run.path(), private_folder, m); });
  std::vector<double> verify;
  for (int i = 0; i < 6; ++i) {
    verify.push_back(seconds_of([&] {
      const StepInfo s = run.list().at(0);
      const auto problems = verify_step(s.path, s.step, true, [](uint64_t) {});
      if (!problems.empty()) throw std::runtime_error(problems[0]);
    }));
  }
  fmt::print(
      "metadata, {} files, {:.0f} GB: commit {:.2f} s (target 1), list + verify structure {} s (target 2); structures made in "
      "{:.2f} s\n",
      ranks.size(), static_cast<double>(m.payload()) / 1e9, commit, spread(verify), written);
  fs::remove_all(folder + "/large");
}

}  // namespace
}  // namespace mm::checkpoint::test

// checkpoint-bench FOLDER MIB [PART...]
int main(int argc, char** argv) {
  using namespace mm::checkpoint::test;
  if (argc < 3) return 2;
  folder = argv[1];
  megabytes = std::stoul(argv[2]);
  std::filesystem::create_directories(folder);
  const std::pair<std::string, void (*)()> parts[] = {{"save", durable_save},     {"stall", stall},
                                                      {"step", step_time},        {"restore", restore},
                                                      {"reshard", reshard_costs}, {"compression", compression},
                                                      {"metadata", metadata}};
  for (const auto& [name, part] : parts) {
    if (argc > 3 && std::find(argv + 3, argv + argc, name) == argv + argc) continue;
    part();
    std::fflush(stdout);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}
