// SPDX-License-Identifier: Apache-2.0
// mm-trainer: the command line, and how a process leaves. An end that all ranks agree on leaves MPI in order; where a peer is
// gone, or an error is this rank's alone, it leaves at once: MPI_Finalize would wait for the others.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <optional>

#include "common/error.h"
#include "common/log.h"
#include "common/version.h"
#include "trainer/comm/world.h"
#include "trainer/loop/agree.h"
#include "trainer/loop/caption.h"
#include "trainer/loop/evaluate.h"
#include "trainer/loop/train.h"

namespace mm {
namespace {

struct Arguments {
  loop::TrainOptions train;
  loop::SampleOptions sample;
  loop::EvalOptions eval;
  bool samples = false, evaluates = false;
};

void declare_train(CLI::App& app, loop::TrainOptions& o) {
  app.add_option("JOB", o.job_file, "the job file (TOML), see mm-train.toml(5)");
  app.add_option("--set", o.assignments, "a key in place of the file's: section.key=value; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_flag("--plan", o.plan, "print groups, memory, operations, messages and time of a step, and a faster layout, and exit");
  app.add_option("--ranks", o.plan_ranks, "with --plan: for so many ranks")->type_name("N")->check(CLI::Range(1, 1 << 20));
  app.add_option("--gpu-memory", o.gpu_memory, "with --plan: memory of a GPU (what mm-train.conf says)")
      ->type_name("GB")
      ->check(CLI::Range(0.001, 1e6));
  app.add_flag("--dry-run", o.dry_run, "print what the first batch holds, and exit");
  app.add_option("--dump-gradients", o.dump_gradients, "write the gradients of the next step to a safetensors file, and exit")
      ->type_name("FILE");
  app.add_flag("--allow-data-change", o.allow_data_change, "continue a run whose data set or seed has changed");
  app.add_flag("--json", o.json, "print each step's metrics on standard output, too");
}

void declare_sample(CLI::App& verb, loop::SampleOptions& o) {
  verb.add_option("RUN", o.run, "the run's folder")->required();
  verb.add_option("IMAGE", o.images, "pictures to caption")->required();
  verb.add_option("--max-tokens", o.max_tokens, "longest caption (64)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb.add_option("--threads", o.threads, "compute threads")->type_name("N")->check(CLI::Range(1, 1024));
  verb.add_flag("--json", o.json, "JSON Lines: image, caption, step, run");
}

void declare_eval(CLI::App& verb, loop::EvalOptions& o) {
  verb.add_option("RUN", o.run, "the run's folder")->required();
  verb.add_option("--shards", o.shards, "the data to evaluate on (what the run trains on); may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  verb.add_flag("--derange", o.derange, "also with the pictures of other samples, captions kept");
  verb.add_option("--batch", o.batch, "samples computed at a time (16)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  verb.add_option("--threads", o.threads, "compute threads")->type_name("N")->check(CLI::Range(1, 1024));
  verb.add_flag("--json", o.json, "one JSON line: step, loss, loss_deranged, left_out, tokens, samples, rejected");
}

// Fills `out`; returns an exit status where the command line alone decides.
std::optional<int> parse(int argc, char** argv, Arguments& out) {
  CLI::App app(
      "Trains a vision-language model: mm-trainer JOB.toml. It is as many ranks as MPI's launcher starts: mpirun, or srun "
      "with pmix.",
      "mm-trainer");
  app.set_version_flag("--version", version_line("mm-trainer"));
  declare_train(app, out.train);
  CLI::App& sample = *app.add_subcommand("sample", "caption pictures with the newest checkpoint of a run");
  declare_sample(sample, out.sample);
  CLI::App& eval = *app.add_subcommand("eval", "loss of the newest checkpoint of a run over a data set");
  declare_eval(eval, out.eval);
  app.require_subcommand(0, 1);
  try {
    app.parse(argc, argv);
    out.samples = sample.parsed();
    out.evaluates = eval.parsed();
    const bool verb = out.samples || out.evaluates;
    if (out.train.job_file.empty() && !verb) throw CLI::ValidationError("a job file is missing");
    if (!out.train.job_file.empty() && verb) throw CLI::ValidationError(out.train.job_file + ": a verb takes no job file");
    if (out.train.plan_ranks > 0 && !out.train.plan) throw CLI::ValidationError("--ranks is for --plan");
    if (out.train.gpu_memory > 0 && !out.train.plan) throw CLI::ValidationError("--gpu-memory is for --plan");
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    return app.exit(e, std::cout, std::cerr) == 0 ? exit_status::ok : exit_status::usage;
  }
}

[[noreturn]] void leave_at_once(int status) {
  std::fflush(nullptr);
  ::_exit(status);
}

int train(const loop::TrainOptions& options) {
  std::unique_ptr<comm::Comm> world;
  try {
    world = comm::open_world();
    int status = exit_status::internal;
    try {
      status = loop::train(options, *world);
    } catch (const loop::AgreedError& e) {
      if (e.say) log::error("{}", e.what());
      status = e.status;
    }
    comm::close_world(status);
    return status;
  } catch (const Error& e) {
    log::error("{}", e.what());
    leave_at_once(e.status);
  } catch (const std::exception& e) {
    log::error("{}{}", world ? "rank " + std::to_string(world->rank()) + ": " : "", e.what());
    leave_at_once(exit_status::internal);
  }
}

// A verb is one process: several would do, and print, the same.
void check_alone(const char* verb) {
  if (comm::launch_from_environment().ranks > 1)
    throw usage_error(std::string(verb) + " runs in one process: start it without mpirun or srun -n");
}

int run(int argc, char** argv) {
  log::init("mm-trainer");
  ::signal(SIGPIPE, SIG_IGN);
  Arguments arguments;
  if (const std::optional<int> status = parse(argc, argv, arguments)) return *status;
  try {
    if (!arguments.samples && !arguments.evaluates) return train(arguments.train);
    check_alone(arguments.samples ? "sample" : "eval");
    return arguments.samples ? loop::sample(arguments.sample) : loop::evaluate(arguments.eval);
  } catch (const Error& e) {
    log::error("{}", e.what());
    return e.status;
  } catch (const std::exception& e) {
    log::error("{}", e.what());
    return exit_status::internal;
  }
}

}  // namespace
}  // namespace mm

int main(int argc, char** argv) {
  return mm::run(argc, argv);
}
