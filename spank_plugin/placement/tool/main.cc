// SPDX-License-Identifier: Apache-2.0
// mm-place: what the hardware of a node is to a training job, and where the ranks of a job go.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "common/error.h"
#include "common/log.h"
#include "common/version.h"
#include "spank_plugin/placement/tool/verbs.h"

namespace {

using namespace mm;
using namespace mm::placement;

int run(int argc, char** argv) {
  CLI::App app("Maps GPUs, NICs and CPUs of nodes, and the ranks of a job onto them.", "mm-place");
  app.set_version_flag("--version", version_line("mm-place"));
  app.require_subcommand(1);
  std::function<int()> chosen;

  tool::NodeOptions node;
  CLI::App* n = app.add_subcommand("node", "The GPUs of a node with their NUMA node, CPUs and NICs");
  n->add_option("FILE", node.file, "hwloc XML, or NCCL_TOPO_FILE XML; default: this machine");
  n->add_option("--nccl", node.nccl, "NCCL_TOPO_FILE XML that says where devices are whose PCI tree is hidden");
  n->add_option("--interface", node.interfaces, "A training interface; others are then no NICs. May be repeated");
  n->add_flag("--json", node.json, "Print JSON Lines");
  n->callback([&] { chosen = [&] { return tool::node(node); }; });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? exit_status::ok : exit_status::usage;
  }
  log::init("mm-place");
  try {
    return chosen();
  } catch (const Error& e) {
    log::error("{}", e.what());
    return e.status;
  } catch (const std::exception& e) {
    log::error("{}", e.what());
    return exit_status::internal;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv);
}
