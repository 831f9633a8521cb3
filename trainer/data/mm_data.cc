// SPDX-License-Identifier: Apache-2.0
// mm-data: makes and inspects WebDataset shards. See mm-data(1).
#include <CLI/CLI.hpp>

#include "common/error.h"
#include "common/log.h"
#include "common/version.h"
#include "trainer/data/verbs/verbs.h"

int main(int argc, char** argv) {
  using namespace mm;
  log::init("mm-data");
  CLI::App app("Makes and inspects the WebDataset shards that mm-trainer reads.", "mm-data");
  app.set_version_flag("--version", version_line("mm-data"));
  app.require_subcommand(1);
  const data::Verb verbs[] = {data::add_pack(app), data::add_index(app), data::add_check(app), data::add_cat(app), data::add_stats(app), data::add_stage(app), data::add_scrub(app), data::add_recompress(app)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? exit_status::ok : exit_status::usage;
  }
  try {
    for (const data::Verb& verb : verbs)
      if (verb.command->parsed()) return verb.run();
  } catch (const Error& e) {
    log::error("{}", e.what());
    return e.status;
  } catch (const std::exception& e) {
    log::error("internal: {}", e.what());
    return exit_status::internal;
  }
  return exit_status::usage;
}
