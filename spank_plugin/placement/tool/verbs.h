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

}  // namespace mm::placement::tool
