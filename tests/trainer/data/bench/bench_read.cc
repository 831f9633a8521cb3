// SPDX-License-Identifier: Apache-2.0
// Reading ahead, the cache and the budget, beside what they are measured against. Each line: ours, the peer or limit, the ratio.
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <list>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "tests/trainer/data/support.h"
#include "trainer/data/cache/block_cache.h"
#include "trainer/data/image/image.h"
#include "trainer/data/read/faults.h"
#include "trainer/data/read/shard_reader.h"
#include "trainer/data/stream.h"

namespace mm::data {
namespace {

using namespace test;

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void make_shards(const std::string& folder, int shards, int samples, const std::function<std::string(int)>& picture) {
  for (int s = 0; s < shards; ++s) {
    std::vector<std::pair<std::string, std::string>> members;
    for (int i = 0; i < samples; ++i) {
      members.push_back({fmt::format("{:04}.png", i), picture(s * samples + i)});
      members.push_back({fmt::format("{:04}.txt", i), fmt::format("caption of {}", s * samples + i)});
    }
    write(fmt::format("{}/{:03}.tar", folder, s), make_tar(members));
  }
}

// ---------------------------------------------------------------- storage that answers after 5 ms
void bench_latency(const std::string& folder) {
  make_shards(folder, 4, 500, [](int i) { return encode_png(gradient(40 + i % 8, 40)); });
  StreamOptions o;
  o.shards = {folder + "/*.tar"};
  o.global_batch = 32;
  o.rule = {.image_size = 16, .positions_per_image = 1, .vocabulary = 300};
  constexpr int64_t batches = 16;
  const Dataset dataset(o.shards);
  const Order order(dataset.sources(), true, o.seed, o.shuffle_window);
  std::atomic<int64_t> requests = 0;
  set_fault_hook([&](const Operation& op) {
    if (op.op == Op::read) ++requests;
    return Fault{.delay = std::chrono::microseconds(op.op == Op::read ? 5000 : 0)};
  });
  const double each = seconds_of([&] {
    for (int64_t p = 0; p < batches * o.global_batch; ++p)
      for (const Part& part : dataset.parts(order(p))) dataset.read(order(p), part);
  });
  const int64_t one_by_one = requests.exchange(0);
  const double ahead = seconds_of([&] {
    Stream stream(o);
    for (int64_t b = 0; b < batches; ++b) stream.next(b);
  });
  set_fault_hook({});
  fmt::print("5 ms a request, {} small samples: {:.3f} s with {} reads at least (with what was read ahead of the last batch), one by one {:.3f} s with {}: {:.1f} x, target 10 x\n",
             batches * o.global_batch, ahead, requests.load(), each, one_by_one, each / ahead);
}

// ---------------------------------------------------------------- hits of the second epoch
int64_t lru_hits(const std::vector<int64_t>& accesses, size_t from, size_t capacity) {
  std::list<int64_t> recent;
  int64_t hits = 0;
  for (size_t i = 0; i < accesses.size(); ++i) {
    const auto at = std::find(recent.begin(), recent.end(), accesses[i]);
    if (at != recent.end()) {
      recent.erase(at);
      hits += i >= from ? 1 : 0;
    }
    recent.push_front(accesses[i]);
    if (recent.size() > capacity) recent.pop_back();
  }
  return hits;
}

// Belady: the most that any cache without foresight beyond its own misses can find; `accesses` goes on past `end`.
int64_t best_hits(const std::vector<int64_t>& accesses, size_t from, size_t end, size_t capacity) {
  std::vector<size_t> next(accesses.size(), accesses.size());
  std::map<int64_t, size_t> seen;
  for (size_t i = accesses.size(); i-- > 0;) {
    if (const auto at = seen.find(accesses[i]); at != seen.end()) next[i] = at->second;
    seen[accesses[i]] = i;
  }
  std::map<int64_t, size_t> there;  // block -> next use
  int64_t hits = 0;
  for (size_t i = 0; i < end; ++i) {
    const bool hit = there.contains(accesses[i]);
    hits += hit && i >= from ? 1 : 0;
    there[accesses[i]] = next[i];
    if (there.size() > capacity)
      there.erase(std::max_element(there.begin(), there.end(), [](const auto& a, const auto& b) { return a.second < b.second; }));
  }
  return hits;
}

void bench_cache(const std::string& folder) {
  constexpr int shards = 50, samples = 40;
  std::mt19937 random(1);
  make_shards(folder + "/data", shards, samples, [&](int) {
    std::string bytes(3000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    return bytes;
  });
  const Dataset dataset(std::vector<std::string>{folder + "/data/*.tar"});
  const Order order(dataset.sources(), true, 1, 0);
  const auto use = std::make_shared<const BlockUse>(dataset, order, NodeShare{});
  const int64_t n = dataset.samples();
  std::vector<int64_t> accesses;
  for (int64_t p = 0; p < 3 * n; ++p) accesses.push_back(dataset.shard_id_of(order(p)));
  constexpr size_t capacity = shards * 3 / 10;
  for (const bool prefetch : {false, true}) {
    CacheOptions options;
    options.folder = folder + (prefetch ? "/ahead" : "/cache");
    options.disk = static_cast<int64_t>(capacity) * (dataset.shards()[0].size + 2048);
    options.prefetch = prefetch;
    BlockCache cache(use, options, std::make_shared<ShardReader>(dataset.shards()));
    int64_t hits = 0;
    for (int64_t p = 0; p < 2 * n; ++p) {
      cache.at(p);
      const int64_t sample = order(p), before = cache.counters().misses;
      std::string bytes(100, '\0');
      cache.read(std::vector<Request>{{dataset.shard_id_of(sample), dataset.parts(sample)[0].offset, bytes}});
      hits += p >= n && cache.counters().misses == before ? 1 : 0;
    }
    const int64_t best = best_hits(accesses, static_cast<size_t>(n), static_cast<size_t>(2 * n), capacity);
    const int64_t lru = lru_hits({accesses.begin(), accesses.begin() + 2 * n}, static_cast<size_t>(n), capacity);
    fmt::print("hits of epoch 2, cache of 30 %{}: {:.1f} %, Belady's bound {:.1f} %: ratio {:.3f} (target 0.95); LRU {:.1f} %\n",
               prefetch ? ", fetching ahead" : "", 100. * static_cast<double>(hits) / static_cast<double>(n), 100. * static_cast<double>(best) / static_cast<double>(n),
               static_cast<double>(hits) / static_cast<double>(best), 100. * static_cast<double>(lru) / static_cast<double>(n));
  }
}

// ---------------------------------------------------------------- a consumer that stalls
int64_t resident() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, pages = 0;
  file >> size >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

void bench_stall(const std::string& folder) {
  make_shards(folder, 4, 300, [](int i) { return encode_png(gradient(300 + i % 50, 300)); });
  StreamOptions o;
  o.shards = {folder + "/*.tar"};
  o.global_batch = 4;
  o.rule = {.image_size = 640, .positions_per_image = 1, .vocabulary = 300};  // more in four batches and 256 samples than the budget
  o.budget = int64_t{256} << 20;
  ::malloc_trim(0);
  const int64_t before = resident();
  Stream stream(o);
  stream.next(0);
  int64_t most = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < end) {
    most = std::max(most, resident() - before);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const StageCounters stages = stream.counters().stages;
  fmt::print("consumer stalled for 20 s: {:.1f} MB resident at most, {:.1f} counted, budget {:.1f}: ratio {:.3f}, target 1.05\n", static_cast<double>(most) / 1e6,
             static_cast<double>(stages.used) / 1e6, static_cast<double>(o.budget) / 1e6, static_cast<double>(most) / static_cast<double>(o.budget));
}

}  // namespace
}  // namespace mm::data

int main() {
  const mm::data::test::TemporaryFolder folder;
  mm::data::bench_latency(folder.path("latency"));
  mm::data::bench_cache(folder.path("cache"));
  mm::data::bench_stall(folder.path("stall"));
}
