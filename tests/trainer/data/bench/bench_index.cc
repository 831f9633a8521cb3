// SPDX-License-Identifier: Apache-2.0
// What an index is worth: the time from nothing to the first batch in the middle of 1e8 samples, and the rate at which shards are
// indexed beside `tar t` and beside reading them. Each line: ours, the peer or limit, the ratio. Median of five, peers in turn.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "common/files.h"
#include "common/process.h"
#include "tests/trainer/data/support.h"
#include "trainer/data/image/image.h"
#include "trainer/data/index/make_index.h"
#include "trainer/data/stream.h"

namespace mm::data {
namespace {

namespace fs = std::filesystem;
using namespace test;

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
// Of this process: what the wall clock would say on a machine with nothing else to do.
double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6; };
  return of(usage.ru_utime) + of(usage.ru_stime);
}
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// ---------------------------------------------------------------- the first batch

// PyTorch's loader goes to a place in a stream by taking what comes before it.
double skip_rate() {
  const CommandResult result = run_command(
      {"/usr/bin/python3", "-c",
       "import time, torch.utils.data as d\n"
       "class S(d.IterableDataset):\n"
       "  def __iter__(self): return iter(range(10**9))\n"
       "it = iter(d.DataLoader(S(), batch_size=64)); next(it); t = time.time()\n"
       "for _ in range(2000): next(it)\n"
       "print(2000 * 64 / (time.time() - t))"},
      std::chrono::minutes(2));
  return result.ok() ? std::atof(result.out.c_str()) : 0;
}

void bench_seek(const std::string& folder) {
  constexpr int shards = 10000, samples = 10000, batch = 64;
  fs::create_directories(folder);
  std::vector<std::pair<std::string, std::string>> members;
  const std::string picture = encode_png(plain(8, 8, 1, 2, 3));
  for (int i = 0; i < samples; ++i) {
    members.push_back({fmt::format("{:05}.png", i), picture});
    members.push_back({fmt::format("{:05}.txt", i), "a caption"});
  }
  write(folder + "/00000.tar", make_tar(members));
  const IndexedShard one = make_index({.paths = {folder}}).version.shards[0];
  std::vector<IndexedShard> all(shards, one);
  for (int i = 0; i < shards; ++i) {
    all[static_cast<size_t>(i)].name = fmt::format("{:05}.tar", i);
    if (i == 0) continue;
    const std::string path = folder + "/" + all[static_cast<size_t>(i)].name;
    if (::link((folder + "/00000.tar").c_str(), path.c_str()) != 0 || ::link((folder + "/00000.tar.mmidx").c_str(), (path + ".mmidx").c_str()) != 0)
      throw std::runtime_error("link " + path);
  }
  if (!publish_version(folder, make_version(std::move(all), newest_version(folder)))) throw std::runtime_error("publish");

  StreamOptions o;
  o.shards = {folder + "/*.tar"};
  o.global_batch = batch;
  o.rule = {.image_size = 8, .positions_per_image = 1, .vocabulary = 264};
  std::vector<double> open, first, open_cpu;
  for (int i = 0; i < 5; ++i) {
    std::unique_ptr<Stream> stream;
    const double before = cpu_seconds();
    open.push_back(seconds_of([&] { stream = std::make_unique<Stream>(o); }));
    open_cpu.push_back(cpu_seconds() - before);
    if (stream->samples() != int64_t{shards} * samples) throw std::runtime_error("not 1e8 samples");
    first.push_back(seconds_of([&] { stream->next(50'000'000 / batch + i); }));
  }
  const double rate = skip_rate(), total = median(open) + median(first);
  fmt::print("first batch at 5e7 of 1e8 samples: {:.1f} ms (opening {:.1f}, of them CPU {:.1f}, batch {:.1f}); limit 200 ms: ratio {:.2f}\n", 1e3 * total,
             1e3 * median(open), 1e3 * median(open_cpu), 1e3 * median(first), total / 0.2);
  if (rate > 0)
    fmt::print("  torch DataLoader skips {:.0f} samples/s of an empty data set: {:.0f} s to the same place (extrapolated), {:.0f} x ours\n", rate,
               5e7 / rate, 5e7 / rate / total);
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".mmidx" || entry.path().extension() == ".json") fs::remove(entry.path());
  const double scan = seconds_of([&] { Dataset::open_one(folder + "/00000.tar"); });
  fmt::print("  without an index: {:.1f} ms to scan one shard, {:.0f} s for all (extrapolated)\n", 1e3 * scan, scan * shards);
}

// ---------------------------------------------------------------- indexing

void drop(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    ::fsync(fd.get());
    ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

void read_all(const std::vector<std::string>& files, size_t begin, size_t step) {
  std::string buffer(static_cast<size_t>(block_bytes), '\0');
  for (size_t i = begin; i < files.size(); i += step) {
    const UniqueFd fd(::open(files[i].c_str(), O_RDONLY | O_CLOEXEC));
    while (::read(fd.get(), buffer.data(), buffer.size()) > 0) {
    }
  }
}

void on_threads(const std::function<void(size_t)>& body) {
  std::thread second([&] { body(1); });
  body(0);
  second.join();
}

void bench_index(const std::string& folder) {
  constexpr int shards = 8, samples = 1200;
  fs::create_directories(folder);
  std::mt19937_64 random(1);
  std::string content(50'000, '\0');
  std::vector<std::string> files;
  double gigabytes = 0;
  for (int s = 0; s < shards; ++s) {
    std::vector<std::pair<std::string, std::string>> members;
    for (int i = 0; i < samples; ++i) {
      for (size_t k = 0; k + 8 <= content.size(); k += 8) {
        const uint64_t value = random();
        std::copy_n(reinterpret_cast<const char*>(&value), 8, content.data() + k);
      }
      members.push_back({fmt::format("{:05}.jpg", i), content});
      members.push_back({fmt::format("{:05}.txt", i), "a caption"});
    }
    files.push_back(fmt::format("{}/{:02}.tar", folder, s));
    write(files.back(), make_tar(members));
    gigabytes += static_cast<double>(fs::file_size(files.back())) / 1e9;
  }
  const auto forget = [&] {
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() != ".tar") fs::remove(entry.path());
  };
  const auto ours = [&] { make_index({.paths = {folder}, .jobs = 2}); };
  const auto tar = [&] {
    on_threads([&](size_t t) {
      for (size_t i = t; i < files.size(); i += 2)
        if (!run_command({"tar", "-tf", files[i]}, std::chrono::minutes(5)).ok()) throw std::runtime_error("tar -t");
    });
  };
  const auto disk = [&] { on_threads([&](size_t t) { read_all(files, t, 2); }); };
  for (const bool cold : {true, false}) {
    std::vector<double> o, t, d;
    for (int i = 0; i < 6; ++i) {
      forget();
      const auto timed = [&](const std::function<void()>& body) {
        if (cold) drop(files);
        return seconds_of(body);
      };
      const double a = timed(ours), b = timed(tar), c = timed(disk);
      if (i > 0) o.push_back(a), t.push_back(b), d.push_back(c);  // the first is a warm-up
    }
    fmt::print("index, {}, 2 jobs: {:.2f} GB/s; reading alone (limit) {:.2f} GB/s: ratio {:.2f}; tar t {:.3f} s, ours {:.3f} s\n",
               cold ? "cold" : "in memory", gigabytes / median(o), gigabytes / median(d), median(d) / median(o), median(t), median(o));
  }
}

}  // namespace
}  // namespace mm::data

int main() {
  const mm::data::test::TemporaryFolder folder;
  mm::data::bench_seek(folder.path("seek"));
  mm::data::bench_index(folder.path("index"));
}
