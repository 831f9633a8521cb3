// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "common/error.h"
#include "trainer/data/dataset.h"
#include "trainer/data/make_sample.h"
#include "trainer/data/text/utf8.h"
#include "trainer/data/verbs/verbs.h"

namespace mm::data {
namespace {

struct Arguments {
  std::string shard, key, part;
  bool json = false;
};

void print_sample(const Arguments& arguments, const Dataset& dataset, int64_t sample) {
  const std::string key(dataset.key(sample));
  std::string line;
  for (const Part& part : dataset.parts(sample)) {
    const std::string& name = dataset.part_name(part);
    if (arguments.json)
      line += fmt::format("{}{}: {}", line.empty() ? "" : ", ", json_string(name), part.size);
    else
      line += fmt::format("  {} {}", printable(name), part.size);
  }
  std::string text;
  for (const Part& part : dataset.parts(sample))
    if (dataset.part_name(part) == "txt") text = read_part(dataset, sample, part);
  if (arguments.json)
    fmt::print("{{\"key\": {}, \"parts\": {{{}}}, \"text\": {}}}\n", json_string(key), line, json_string(text));
  else
    fmt::print("{}{}  {}\n", printable(key), line, printable(text));
}

int run_cat(const Arguments& arguments) {
  const Dataset dataset = Dataset::open_one(arguments.shard);
  bool found = false;
  for (int64_t i = 0; i < dataset.samples(); ++i) {
    if (!arguments.key.empty() && dataset.key(i) != arguments.key) continue;
    found = true;
    if (arguments.part.empty()) {
      print_sample(arguments, dataset, i);
      continue;
    }
    for (const Part& part : dataset.parts(i))
      if (dataset.part_name(part) == arguments.part) {
        const std::string content = read_part(dataset, i, part);
        if (std::fwrite(content.data(), 1, content.size(), stdout) != content.size()) throw system_error("cat: write", errno);
        return exit_status::ok;
      }
    throw usage_error(
        fmt::format("cat: {}: sample {} has no part {}", arguments.shard, printable(dataset.key(i)), arguments.part));
  }
  if (!found && !arguments.key.empty()) throw usage_error(fmt::format("cat: {}: no sample {}", arguments.shard, arguments.key));
  return exit_status::ok;
}

}  // namespace

Verb add_cat(CLI::App& app) {
  CLI::App* command = app.add_subcommand("cat", "Lists the samples of a shard: key, parts with their sizes, caption");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("SHARD", arguments->shard, "a tar file")->required();
  CLI::Option* key = command->add_option("KEY", arguments->key, "only this sample");
  command->add_option("--part", arguments->part, "write this part of the sample (\"png\", \"txt\") to stdout, as it is")
      ->needs(key);
  command->add_flag("--json", arguments->json, "print a JSON line for each sample");
  return {command, [arguments] { return run_cat(*arguments); }};
}

}  // namespace mm::data
