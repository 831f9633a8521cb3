// SPDX-License-Identifier: Apache-2.0
// mm-ckpt: looks at, checks, compares, exports and prunes the checkpoints of a run.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "checkpoint/tool/verbs.h"
#include "common/version.h"

namespace {

using namespace mm;
using namespace mm::checkpoint;

// The status that an exception stands for, after its message.
int status_of(const std::exception& e) {
  std::fprintf(stderr, "mm-ckpt: %s\n", e.what());
  if (dynamic_cast<const BadStep*>(&e) != nullptr || dynamic_cast<const io::Failure*>(&e) != nullptr) return exit_status::found;
  if (const auto* error = dynamic_cast<const Error*>(&e)) return error->status;
  return exit_status::internal;
}

int run(int argc, char** argv) {
  CLI::App app("Looks at, checks, compares, exports and prunes the checkpoints of a run.", "mm-ckpt");
  app.set_version_flag("--version", version_line("mm-ckpt"));
  app.require_subcommand(1);
  std::string first, second, folder;
  int64_t step = -1;
  int keep = 0;
  bool json = false, all = false, quick = false, tensors = false, dry_run = false;
  std::function<int()> chosen;

  auto verb = [&](const char* name, const char* text) {
    CLI::App* v = app.add_subcommand(name, text);
    v->add_flag("--json", json, "Print JSON Lines");
    v->add_option(std::string(name) == "diff" ? "FIRST" : "RUN", first, "The run's folder")->required();
    return v;
  };
  auto with_step = [&](CLI::App* v) {
    return v->add_option("--step", step, "This step; default: the newest that is not marked bad")
        ->check(CLI::NonNegativeNumber);
  };
  auto target = [&] { return tool::Target{first, step >= 0 ? std::optional(step) : std::nullopt}; };

  verb("ls", "List the committed steps")->callback([&] { chosen = [&] { return tool::ls(first, json); }; });

  CLI::App* info = verb("info", "Say what a step holds");
  with_step(info);
  info->add_flag("--tensors", tensors, "List every tensor");
  info->callback([&] { chosen = [&] { return tool::info(target(), tensors, json); }; });

  CLI::App* verify = verb("verify", "Check every hash of the step that would be loaded");
  CLI::Option* one = with_step(verify);
  verify->add_flag("--all", all, "Check every committed step")->excludes(one);
  verify->add_flag("--quick", quick, "Check structure only: the manifest, sizes, and every byte that is not payload");
  verify->callback([&] { chosen = [&] { return tool::verify(target(), all, quick, json); }; });

  CLI::App* diff = verb("diff", "Compare two steps, tensor by tensor; each is RUN or RUN@STEP");
  diff->add_option("SECOND", second, "The other run's folder")->required();
  diff->callback([&] { chosen = [&] { return tool::diff(tool::parse_target(first), tool::parse_target(second), json); }; });

  CLI::App* write = verb("export", "Write a Hugging Face folder");
  write->add_option("--safetensors", folder, "The folder to write: model.safetensors and config.json")
      ->required()
      ->type_name("DIR");
  with_step(write);
  write->callback([&] { chosen = [&] { return tool::export_to(target(), folder, json); }; });

  CLI::App* prune = verb("prune", "Remove what is older than the newest steps that verify");
  prune->add_option("--keep", keep, "How many steps that verify to keep")->required()->check(CLI::PositiveNumber);
  prune->add_flag("--dry-run", dry_run, "Say what would be removed, and remove nothing");
  prune->callback([&] { chosen = [&] { return tool::prune(first, keep, dry_run, json); }; });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? exit_status::ok : exit_status::usage;
  }
  const int status = chosen();
  // A full disk behind stdout must not pass for success.
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    std::fprintf(stderr, "mm-ckpt: write to stdout failed\n");
    return exit_status::internal;
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    return status_of(e);
  }
}
