// SPDX-License-Identifier: Apache-2.0
// mm-run: srun that restarts. See mm-run(1).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "agent/run/agent_link.h"
#include "agent/run/options.h"
#include "agent/run/supervisor.h"
#include "agent/simulate/verb.h"
#include "common/error.h"
#include "common/log.h"
#include "common/version.h"

namespace {

int run(int argc, char** argv) {
  // What follows the first "--" is the command, untouched.
  char** const end = argv + argc;
  char** const dashes = std::find_if(argv + 1, end, [](const char* a) { return std::strcmp(a, "--") == 0; });

  mm::run::Options options;
  CLI::App app{"Runs a command as a Slurm step inside a job, and restarts it after faults, without the nodes that are bad.",
               "mm-run"};
  app.footer("The command follows after --, as in: mm-run --spares 1 -- mm-trainer job.toml");
  app.set_version_flag("--version", mm::version_line("mm-run"));
  app.add_option("--spares", options.spares, "Nodes to keep in reserve (default: [recovery] spares of the job file, else 0)")
      ->check(CLI::Range(0, 65536));
  app.add_option("--nodes", options.nodes, "Nodes to run on (default: all of the job but the spares)")
      ->check(CLI::Range(1, 65536));
  app.add_option("--ntasks-per-node", options.ntasks_per_node, "Tasks on each node (default: as the job was submitted)")
      ->check(CLI::Range(1, 65536));
  app.add_option("--max-restarts", options.max_restarts, "Restarts without a training step in between, at most (default: 10)")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--job", options.job_file, "Job file (default: the one that the job was submitted with)");
  app.add_option("--config", options.config, "Site file (default: /etc/mm-train/mm-train.conf)");
  app.add_option("--srun-arg", options.srun_arguments, "Argument for srun; may be repeated")->allow_extra_args(false);
  app.add_flag("--json", options.json, "Write events as JSON lines to standard output, between the lines of the command");
  const auto simulate = mm::simulate::add_verb(app);
  try {
    app.parse(static_cast<int>(dashes - argv), argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? mm::exit_status::ok : mm::exit_status::usage;
  }
  if (const int status = simulate(); status >= 0) return status;
  if (dashes < end) options.command.assign(dashes + 1, end);
  if (options.command.empty()) throw mm::usage_error("no command: say it after --, as in: mm-run -- mm-trainer job.toml");
  const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
  const auto spares_left = [](const mm::run::Plan& plan) {
    return mm::run::AgentLink(plan.agent_socket, plan.job_id).spares_of_run(plan.requeues);
  };
  mm::run::Plan plan = mm::run::make_plan(options, environment, spares_left);
  return mm::run::Supervisor(std::move(plan)).run();
}

}  // namespace

int main(int argc, char** argv) {
  mm::log::init("mm-run");
  try {
    return run(argc, argv);
  } catch (const mm::Error& e) {
    mm::log::error("{}", e.what());
    return e.status;
  } catch (const std::exception& e) {
    mm::log::error("{}", e.what());
    return mm::exit_status::internal;
  }
}
