// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "common/error.h"
#include "trainer/data/cache/scrub.h"
#include "trainer/data/verbs/verbs.h"

namespace mm::data {
namespace {

struct Arguments {
  std::string folder;
  bool all = false, json = false;
};

int run_scrub(const Arguments& arguments) {
  const ScrubResult result = scrub_cache(arguments.folder, arguments.all, [&](const std::string& file) {
    if (!arguments.json) fmt::print("{}/{}: damaged; removed\n", arguments.folder, file);
  });
  if (arguments.json)
    fmt::print("{{\"blocks\": {}, \"bytes\": {}, \"encrypted\": {}, \"removed\": {}}}\n", result.blocks, result.bytes, result.encrypted, result.removed);
  else
    fmt::print("{} blocks of {} bytes stay ({} encrypted: their key is not asked for), {} removed\n", result.blocks, result.bytes, result.encrypted,
               result.removed);
  return result.removed > 0 && !arguments.all ? exit_status::found : exit_status::ok;
}

}  // namespace

Verb add_scrub(CLI::App& app) {
  CLI::App* command = app.add_subcommand("scrub", "Reads every block of a cache folder and removes what is damaged");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("FOLDER", arguments->folder, "the folder of a cache")->required();
  command->add_flag("--all", arguments->all, "remove all blocks, and the folder");
  command->add_flag("--json", arguments->json, "print one JSON line");
  return {command, [arguments] { return run_scrub(*arguments); }};
}

}  // namespace mm::data
