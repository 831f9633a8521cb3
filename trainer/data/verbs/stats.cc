// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/dataset.h"
#include "trainer/data/index/version.h"
#include "trainer/data/pack/inspect.h"
#include "trainer/data/pack/ordered.h"
#include "trainer/data/text/utf8.h"
#include "trainer/data/verbs/verbs.h"

namespace mm::data {
namespace {

struct Arguments {
  std::vector<std::string> shards;
  std::string run;
  int threads = 0;
  bool json = false;
};

struct Spread {
  int64_t least = 0, median = 0, most = 0;
};

Spread spread_of(std::vector<int64_t> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

// The version of the shards where all of them are of one, as `mm-data index` published it; else empty.
std::string version_of(const Dataset& dataset, int64_t indexed) {
  const std::string folder = std::filesystem::path(dataset.shards()[0].path).parent_path().string();
  if (indexed < static_cast<int64_t>(dataset.shards().size())) return "";
  const std::optional<Version> version = newest_version(folder.empty() ? "." : folder);
  return version ? hex(version->id) : "";
}

int run_stats(const Arguments& arguments) {
  if (!arguments.run.empty()) return print_run_stats(arguments.run, arguments.json);
  if (arguments.shards.empty()) throw usage_error("stats: give shards, or --run and the folder of a run");
  const Dataset dataset(arguments.shards);
  const int threads = arguments.threads > 0 ? arguments.threads : usable_cpus();
  int64_t bytes = 0, pictures = 0, rejected = 0, repaired = 0;
  for (const Shard& shard : dataset.shards()) bytes += shard.size;
  int64_t indexed = 0;
  for (uint32_t i = 0; i < dataset.shards().size(); ++i) indexed += dataset.indexed(i) ? 1 : 0;
  const std::string version = version_of(dataset, indexed);
  std::map<std::string, int64_t> parts;
  for (int64_t i = 0; i < dataset.samples(); ++i)
    for (const Part& part : dataset.parts(i)) ++parts[dataset.part_name(part)];
  std::vector<int64_t> widths, heights, captions;
  in_order(
      static_cast<size_t>(dataset.samples()), threads, static_cast<size_t>(threads) * 8,
      [&](size_t i) { return inspect_sample(dataset, static_cast<int64_t>(i)); },
      [&](size_t, const Inspection& i) {
        pictures += i.pictures;
        if (i.width > 0) widths.push_back(i.width), heights.push_back(i.height);
        if (i.caption_bytes >= 0) captions.push_back(i.caption_bytes);
        if (i.repaired_text) ++repaired;
        if (!i.reason.empty() || i.unrelated) ++rejected;
      });
  const Spread width = spread_of(widths), height = spread_of(heights), caption = spread_of(captions);
  if (arguments.json) {
    std::string names;
    for (const auto& [name, count] : parts)
      names += fmt::format("{}{}: {}", names.empty() ? "" : ", ", json_string(name), count);
    const auto triple = [](const Spread& s) { return fmt::format("[{}, {}, {}]", s.least, s.median, s.most); };
    fmt::print(
        "{{\"shards\": {}, \"samples\": {}, \"bytes\": {}, \"unusable\": {}, \"pictures\": {}, \"parts\": {{{}}}, \"width\": "
        "{}, \"height\": {}, "
        "\"caption_bytes\": {}, \"invalid_utf8\": {}, \"indexed\": {}, \"version\": {}}}\n",
        dataset.shards().size(), dataset.samples(), bytes, rejected, pictures, names, triple(width), triple(height),
        triple(caption), repaired, indexed, version.empty() ? "null" : json_string(version));
    return exit_status::ok;
  }
  fmt::print("shards          {}\nsamples         {} ({} unusable)\nbytes           {}\npictures        {}\n",
             dataset.shards().size(), dataset.samples(), rejected, bytes, pictures);
  fmt::print("indexed         {}{}\n", indexed, version.empty() ? "" : ", version " + version);
  for (const auto& [name, count] : parts) fmt::print("  part {:<9} {}\n", printable(name), count);
  const auto line = [](const char* what, const Spread& s) {
    fmt::print("{:<15} {} to {}, median {}\n", what, s.least, s.most, s.median);
  };
  line("width", width);
  line("height", height);
  line("caption bytes", caption);
  if (repaired > 0) fmt::print("invalid UTF-8   {}\n", repaired);
  return exit_status::ok;
}

}  // namespace

Verb add_stats(CLI::App& app) {
  CLI::App* command = app.add_subcommand("stats", "Counts samples, bytes, picture sizes and caption lengths of shards");
  const auto arguments = std::make_shared<Arguments>();
  CLI::Option* run = command->add_option("--run", arguments->run, "the folder of a run: what its loader does, instead");
  command->add_option("SHARD", arguments->shards, "tar files, or patterns of them")->excludes(run);
  command->add_option("--threads", arguments->threads, "decoding threads (0: one for each CPU)")->check(CLI::Range(0, 1024));
  command->add_flag("--json", arguments->json, "print a JSON line");
  return {command, [arguments] { return run_stats(*arguments); }};
}

}  // namespace mm::data
