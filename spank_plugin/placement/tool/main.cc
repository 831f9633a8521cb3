// SPDX-License-Identifier: Apache-2.0
// mm-place: what the hardware of a node is to a training job, and where the ranks of a job go.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "common/error.h"
#include "common/log.h"
#include "common/version.h"
#include "spank_plugin/placement/hwloc_tree.h"
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

  tool::PlanOptions plan;
  CLI::App* p = app.add_subcommand("plan", "Where each rank of a job goes");
  p->add_option("SPEC,--layout", plan.spec, "As of --mm-train: a job file, or tp=8,pp=4 and the like. Default: data parallel");
  p->add_option("--nodes", plan.nodes, "Host list. Default: the allocation's nodes, or this machine");
  p->add_option("--tasks-per-node", plan.tasks, "A number, or one for each node such as 8(x3),4. Default: the nodes' GPUs");
  p->add_option("--ntasks", plan.ranks, "Number of ranks. Default: all that the nodes take")->check(CLI::PositiveNumber);
  p->add_option("--topology", plan.topology, "topology.conf, or what scontrol show topology prints. Default: scontrol's");
  p->add_option("--xml", plan.xml, "FILE, or NODES=FILE: the nodes' trees. May be repeated. Default: this machine's");
  p->add_option("--nccl", plan.nccl, "NCCL_TOPO_FILE XML that says where devices are");
  p->add_option("--speed", plan.speeds, "NODES=FLOPS or NODES=FLOPS:BANDWIDTH, relative to other nodes. May be repeated");
  p->add_option("--bytes", plan.bytes,
                "KIND=BYTES[:CALLS] that a rank sends in a step, instead of the model's. May be repeated");
  p->add_option("--oversubscription", plan.oversubscription, "Of each level of switches")->check(CLI::Range(1.0, 1000.0));
  p->add_option("--before", plan.before, "A plan in JSON Lines: ranks whose node is still there stay");
  p->add_option("--config", plan.config, "The site's mm-train.conf");
  p->add_option("--draw", plan.draw, "Write a picture (SVG)");
  p->add_flag("--json", plan.json, "Print JSON Lines");
  p->callback([&] { chosen = [&] { return tool::plan(plan); }; });

  std::string shared;
  CLI::App* s = app.add_subcommand("share", "Write this machine's tree for the plugin to map; the agent does that when it starts");
  s->add_option("FILE", shared, "RUN_DIR/topology-NODE of mm-train.conf")->required();
  s->callback([&] {
    chosen = [&] {
      share_this_machine(shared);
      return exit_status::ok;
    };
  });

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
