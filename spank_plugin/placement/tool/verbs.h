// SPDX-License-Identifier: Apache-2.0
// The verbs of mm-place. Each returns the exit status and throws Errors.
#pragma once

#include <string>
#include <vector>

namespace mm::placement::tool {

struct NodeOptions {
  std::string file, nccl;               // file empty: this machine
  std::vector<std::string> interfaces;  // the site's training interfaces
  bool json = false;
};
int node(const NodeOptions& options);

struct PlanOptions {
  std::string spec = "auto";  // as of --mm-train
  std::string nodes, tasks, topology, nccl, before, config, draw;
  std::vector<std::string> xml, speeds, bytes;
  int ranks = 0;
  double oversubscription = 0;  // 0: the site's
  bool json = false;
};
int plan(const PlanOptions& options);

}  // namespace mm::placement::tool
