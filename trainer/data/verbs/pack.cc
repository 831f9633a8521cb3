// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/pack/pack.h"
#include "trainer/data/text/utf8.h"
#include "trainer/data/verbs/verbs.h"

namespace mm::data {
namespace {

using Clock = std::chrono::steady_clock;

// One line on a terminal that is rewritten a few times a second; nothing elsewhere.
class ProgressBar {
 public:
  void show(int64_t done, int64_t of) {
    const Clock::time_point now = Clock::now();
    if (!terminal_ || (done < of && now - shown_ < std::chrono::milliseconds(100))) return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    constexpr int64_t width = 30;
    std::string bar(static_cast<size_t>(width * done / of), '#');
    bar.resize(width, ' ');
    fmt::print(stderr, "\r[{}] {}/{} pictures, {:.0f}/s\x1b[K{}", bar, done, of,
               static_cast<double>(done) / std::max(seconds, 1e-9), done == of ? "\n" : "");
    open_ = done < of;
  }
  // Makes room for a message.
  void interrupt() {
    if (open_) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool open_ = false;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_;
};

struct Arguments {
  PackOptions options;
  bool json = false;
};

int run_pack(const Arguments& arguments) {
  const Clock::time_point begin = Clock::now();
  ProgressBar bar;
  PackProgress progress;
  progress.step = [&](int64_t done, int64_t of) { bar.show(done, of); };
  progress.rejected = [&](const std::string& path, const std::string& reason) {
    bar.interrupt();
    log::warn("skipped {}: {}", printable(path), printable(reason));
  };
  const PackResult r = pack(arguments.options, progress);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (arguments.json)
    fmt::print(
        "{{\"out\": {}, \"samples\": {}, \"train\": {}, \"heldout\": {}, \"shards\": {}, \"bytes\": {}, \"rejected\": {}, "
        "\"seconds\": {:.3f}}}\n",
        json_string(arguments.options.out), r.train + r.heldout, r.train, r.heldout, r.shards, r.bytes, r.rejected, seconds);
  else
    fmt::print("{}: {} samples ({} held out) in {} shards, {:.1f} MB, {} pictures skipped, {:.1f} s\n", arguments.options.out,
               r.train + r.heldout, r.heldout, r.shards, static_cast<double>(r.bytes) / 1e6, r.rejected, seconds);
  return exit_status::ok;
}

}  // namespace

Verb add_pack(CLI::App& app) {
  CLI::App* command = app.add_subcommand("pack", "Packs folders of pictures, with captions, into shards");
  const auto arguments = std::make_shared<Arguments>();
  PackOptions& o = arguments->options;
  command->add_option("SRC", o.sources, "folders, or single pictures")->required();
  command->add_option("--out", o.out, "folder for train-*.tar and heldout-*.tar; appears when all is done")->required();
  command->add_option("--max-side", o.max_side, "larger pictures are made smaller, to this longer side in pixels (0: none)")
      ->check(CLI::Range(0, 65535));
  command->add_option("--shard-size", o.limits.samples, "samples of a shard, at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
      ->capture_default_str();
  command->add_option("--shard-bytes", o.limits.bytes, "bytes of a shard, at most (a larger sample is alone)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 50))
      ->capture_default_str();
  command->add_option("--holdout", o.holdout_percent, "percent of the pictures that go to heldout-*.tar")
      ->check(CLI::Range(0.0, 100.0));
  command->add_option("--caption", o.caption, "\"path\": the words of path and name; or a file of PATH<tab>CAPTION lines")
      ->capture_default_str();
  command->add_option("--threads", o.threads, "decoding threads (0: one for each CPU)")->check(CLI::Range(0, 1024));
  command->add_flag("--replace", o.replace, "replace the shards that the folder holds");
  command->add_flag("--json", arguments->json, "print the summary as a JSON line");
  return {command, [arguments] { return run_pack(*arguments); }};
}

}  // namespace mm::data
