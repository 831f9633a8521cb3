// SPDX-License-Identifier: Apache-2.0
// mm-ckpt: looks at, checks, compares, converts and prunes the checkpoints of a run.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "checkpoint/interval.h"
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
  CLI::App app("Looks at, checks, compares, converts and prunes the checkpoints of a run.", "mm-ckpt");
  app.set_version_flag("--version", version_line("mm-ckpt"));
  app.require_subcommand(1);
  std::string first, second, folder, node_folder;
  int64_t step = -1, import_step = 0;
  Packing packing;
  double shard_gb = 5;
  bool json = false, tensors = false;
  tool::VerifyOptions verify_options;
  tool::PruneOptions prune_options;
  tool::IntervalOptions interval_options;
  interval_options.node_mtbf_hours = default_node_mtbf_hours;
  std::function<int()> chosen;

  auto verb = [&](const char* name, const char* text) {
    CLI::App* v = app.add_subcommand(name, text);
    v->add_flag("--json", json, "Print JSON Lines");
    v->add_option(std::string(name) == "diff" ? "FIRST" : "RUN", first, "The run's folder")
        ->required(std::string(name) != "interval");
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
  verify->add_flag("--all", verify_options.all, "Check every committed step")->excludes(one);
  verify->add_flag("--quick", verify_options.quick,
                   "Check structure only: the manifest, sizes, and every byte that is not payload");
  verify->add_flag("--write-index", verify_options.write_index, "Then write index.h5, which shows every tensor whole");
  verify->callback([&] { chosen = [&] { return tool::verify(target(), verify_options, json); }; });

  CLI::App* diff = verb("diff", "Compare two steps, tensor by tensor; each is RUN or RUN@STEP");
  diff->add_option("SECOND", second, "The other run's folder")->required();
  diff->callback([&] { chosen = [&] { return tool::diff(tool::parse_target(first), tool::parse_target(second), json); }; });

  CLI::App* write = verb("export", "Write a Hugging Face folder");
  write->add_option("--safetensors", folder, "The folder to write: model.safetensors or shards, and config.json")
      ->required()
      ->type_name("DIR");
  with_step(write);
  write->add_option("--shard-size", shard_gb, "At most so many GB (10^9 bytes) in a file")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  write->callback(
      [&] { chosen = [&] { return tool::export_to(target(), folder, static_cast<uint64_t>(shard_gb * 1e9), json); }; });

  CLI::App* read = verb("import", "Make a step of a Hugging Face folder");
  read->add_option("--safetensors", folder, "The folder to read")->required()->type_name("DIR");
  read->add_option("--step", import_step, "The number of the step")->capture_default_str()->check(CLI::NonNegativeNumber);
  const auto with_packing = [&](CLI::App* v) {
    v->add_flag("--compress", packing.compress, "Keep large tensors compressed, without loss");
    return v->add_option("--ranks", packing.ranks, "Into so many rank files, each in memory while it is written")
        ->capture_default_str()
        ->check(CLI::Range(1, 100000));
  };
  with_packing(read);
  read->callback([&] { chosen = [&] { return tool::import_from(folder, first, import_step, packing, json); }; });

  CLI::App* again = verb("reshard", "Write a step again, in another number of rank files");
  again->add_option("--to", second, "The run to write it to; may be RUN itself")->required()->type_name("RUN");
  with_packing(again)->required();
  with_step(again);
  again->callback([&] { chosen = [&] { return tool::reshard_to(target(), second, packing, json); }; });

  CLI::App* often = verb("interval", "Say how often to save, and why; what is not given is measured in RUN");
  const auto seconds = [&](const char* name, std::optional<double>& to, const char* text) {
    often->add_option(name, to, text)->type_name("SECONDS")->check(CLI::NonNegativeNumber);
  };
  seconds("--stall", interval_options.stall, "How long a save stops training");
  seconds("--flush", interval_options.flush, "How long until it is committed");
  seconds("--step-time", interval_options.step, "How long a training step takes");
  seconds("--restart", interval_options.restart, "From a failure to the first new step; default: 60");
  often->add_option("--nodes", interval_options.nodes, "Nodes of the job")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  often
      ->add_option("--node-mtbf", interval_options.node_mtbf_hours,
                   "Hours between failures of a node; default: from a published run")
      ->check(CLI::PositiveNumber);
  often->callback([&] {
    chosen = [&] {
      interval_options.run = first;
      return tool::interval(interval_options, json);
    };
  });

  CLI::App* scavenge = verb("scavenge", "Save what only this node of a job has, before it is left");
  scavenge->add_option("--node-folder", node_folder, "The node's folder of copies, as checkpoint.node_folder of the job file")
      ->type_name("DIR");
  scavenge->callback([&] { chosen = [&] { return tool::scavenge_node(first, node_folder, json); }; });

  CLI::App* prune = verb("prune", "Remove what is older than the newest steps that verify");
  prune->add_option("--keep", prune_options.keep, "How many steps that verify to keep")->check(CLI::PositiveNumber);
  prune->add_option("--every", prune_options.every, "Keep also each step that this number divides")->check(CLI::PositiveNumber);
  prune->add_option("--pin", prune_options.pin, "Never remove this step; may be repeated")->type_name("STEP");
  prune->add_option("--unpin", prune_options.unpin, "Treat this step as any other again")->type_name("STEP");
  prune->add_flag("--dry-run", prune_options.dry_run, "Say what would be removed, and remove nothing");
  prune->callback([&] {
    if (!prune_options.keep && prune_options.pin.empty() && prune_options.unpin.empty())
      throw CLI::ValidationError("prune", "give --keep, --pin or --unpin");
    chosen = [&] { return tool::prune(first, prune_options, json); };
  });

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
