// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/pack/recompress.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "common/error.h"
#include "trainer/data/text/utf8.h"
#include "trainer/data/verbs/verbs.h"

namespace mm::data {
namespace {

struct Arguments {
  RecompressOptions options;
  bool json = false;
};

int run_recompress(const Arguments& arguments) {
  const RecompressResult r = recompress(arguments.options);
  const double saving = r.bytes_before > 0 ? 1 - static_cast<double>(r.bytes_after) / static_cast<double>(r.bytes_before) : 0;
  if (arguments.json)
    fmt::print(
        "{{\"out\": {}, \"samples\": {}, \"pictures\": {}, \"kept\": {}, \"undecodable\": {}, \"bytes_before\": {}, \"bytes_after\": {}, "
        "\"saving\": {:.4f}, \"psnr_mean\": {:.2f}, \"psnr_least\": {:.2f}, \"max_difference\": {}}}\n",
        json_string(arguments.options.out), r.samples, r.pictures, r.kept, r.undecodable, r.bytes_before, r.bytes_after, saving, r.psnr_mean,
        r.psnr_least, r.max_difference);
  else
    fmt::print(
        "{}: {} samples, {:.1f} MB of {:.1f} ({:.1f} % saved)\n{} of {} pictures are new: PSNR {:.1f} dB in the mean, {:.1f} at least; at most "
        "{} levels off\n{} pictures do not decode, and are as they were\n",
        arguments.options.out, r.samples, static_cast<double>(r.bytes_after) / 1e6, static_cast<double>(r.bytes_before) / 1e6, 100 * saving,
        r.pictures - r.kept, r.pictures, r.psnr_mean, r.psnr_least, r.max_difference, r.undecodable);
  return exit_status::ok;
}

}  // namespace

Verb add_recompress(CLI::App& app) {
  CLI::App* command = app.add_subcommand("recompress", "Writes new shards with pictures as JPEG, and says what was saved and lost");
  const auto arguments = std::make_shared<Arguments>();
  RecompressOptions& o = arguments->options;
  command->add_option("SHARD", o.shards, "tar files, or patterns of them")->required();
  command->add_option("--out", o.out, "folder for the new shards; appears when all is done")->required();
  command->add_option("--quality", o.quality, "of the JPEG files, 1 to 100")->check(CLI::Range(1, 100))->required();
  command->add_option("--max-side", o.max_side, "larger pictures are made smaller, to this longer side in pixels (0: none)")
      ->check(CLI::Range(0, 65535));
  command->add_option("--shard-size", o.limits.samples, "samples of a shard, at most")
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}))
      ->capture_default_str();
  command->add_option("--shard-bytes", o.limits.bytes, "bytes of a shard, at most (a larger sample is alone)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 50))
      ->capture_default_str();
  command->add_option("--threads", o.threads, "threads (0: one for each CPU)")->check(CLI::Range(0, 1024));
  command->add_flag("--replace", o.replace, "replace the shards that the folder holds");
  command->add_flag("--json", arguments->json, "print the summary as a JSON line");
  return {command, [arguments] { return run_recompress(*arguments); }};
}

}  // namespace mm::data
