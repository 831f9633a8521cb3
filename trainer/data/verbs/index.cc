// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/index/make_index.h"
#include "trainer/data/pack/ordered.h"
#include "trainer/data/text/utf8.h"
#include "trainer/data/verbs/verbs.h"

namespace mm::data {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  std::vector<std::string> paths;
  std::string out;
  int jobs = 0;
  double lease = 30;
  bool json = false;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A line that is drawn over and over, at most five times a second.
class Bar {
 public:
  void draw(int64_t shards, int64_t of_shards, int64_t bytes, int64_t of_bytes) {
    const Clock::time_point now = Clock::now();
    if (bytes < of_bytes && now - drawn_ < std::chrono::milliseconds(200)) return;
    drawn_ = now;
    constexpr int width = 30;
    const double part = of_bytes > 0 ? static_cast<double>(bytes) / static_cast<double>(of_bytes) : 1, spent = seconds_since(begin_);
    const int full = static_cast<int>(part * width);
    fmt::print(stderr, "\r[{:#<{}}{: <{}}] {} of {} shards, {:.1f} of {:.1f} GB, {:.2f} GB/s, {:.0f} s left \x1b[K", "", full, "", width - full,
               shards, of_shards, static_cast<double>(bytes) / 1e9, static_cast<double>(of_bytes) / 1e9,
               static_cast<double>(bytes) / 1e9 / std::max(spent, 1e-3), part > 0 ? spent / part - spent : 0.0);
  }
  ~Bar() {
    if (drawn_ != Clock::time_point{}) std::fputs("\r\x1b[K", stderr);
  }

 private:
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point drawn_{};
};

IndexResult index_with_bar(const Arguments& arguments) {
  IndexOptions options;
  options.paths = arguments.paths;
  options.out = arguments.out;
  options.jobs = arguments.jobs > 0 ? arguments.jobs : usable_cpus();
  options.lease = std::chrono::milliseconds(static_cast<int64_t>(arguments.lease * 1000));
  options.waiting = [](const std::string& holder) { log::info("index: waiting for {}", holder); };
  Bar bar;
  if (::isatty(STDERR_FILENO) == 1)
    options.progress = [&](int64_t shards, int64_t of_shards, int64_t bytes, int64_t of_bytes) { bar.draw(shards, of_shards, bytes, of_bytes); };
  return make_index(options);
}

int run_index(const Arguments& arguments) {
  const Clock::time_point begin = Clock::now();
  const IndexResult result = index_with_bar(arguments);
  const double seconds = seconds_since(begin);
  const Version& version = result.version;
  int64_t samples = 0, bytes = 0;
  for (const IndexedShard& shard : version.shards) samples += shard.samples, bytes += shard.size;
  if (arguments.json) {
    fmt::print("{{\"folder\": {}, \"version\": \"{}\", \"parent\": {}, \"number\": {}, \"published\": {}, \"shards\": {}, \"samples\": {}, "
               "\"bytes\": {}, \"hashed\": {}, \"reused\": {}, \"kept\": {}, \"hashed_bytes\": {}, \"seconds\": {:.3f}}}\n",
               json_string(result.folder), hex(version.id), version.parent ? "\"" + hex(*version.parent) + "\"" : "null", version.number,
               result.published, version.shards.size(), samples, bytes, result.hashed, result.reused, result.kept, result.hashed_bytes, seconds);
    return exit_status::ok;
  }
  fmt::print("version         {} (number {}{})\nshards          {}: {} read, {} indexed before{}\nsamples         {}\nbytes           {}\n",
             hex(version.id), version.number, result.published ? "" : ", as before", version.shards.size(), result.hashed, result.reused,
             result.kept > 0 ? fmt::format(", {} not named", result.kept) : "", samples, bytes);
  if (version.parent) fmt::print("parent          {}\n", hex(*version.parent));
  return exit_status::ok;
}

}  // namespace

Verb add_index(CLI::App& app) {
  CLI::App* command = app.add_subcommand("index", "Indexes and hashes shards, and publishes a version of the data set");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("SHARD", arguments->paths, "a folder of tar files, or tar files of one folder, or patterns of them")->required();
  command->add_option("--out", arguments->out, "the folder for the index, where that of the shards cannot be written");
  command->add_option("--jobs", arguments->jobs, "shards that are read at once (0: one for each CPU)")->check(CLI::Range(0, 1024));
  command->add_option("--lease", arguments->lease, "seconds without a sign of life after which others take the lock over")
      ->check(CLI::Range(0.5, 86400.0))
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "print the summary as a JSON line");
  return {command, [arguments] { return run_index(*arguments); }};
}

}  // namespace mm::data
