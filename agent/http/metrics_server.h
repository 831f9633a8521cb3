// SPDX-License-Identifier: Apache-2.0
// GET /metrics for Prometheus, read-only; every other request is refused. Small by intent: a request has a size limit and a deadline, there is a
// limited number of connections, and each answers one request.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/loop.h"

namespace mm::agent {

class MetricsServer {
 public:
  // `address`: "127.0.0.1:9440" or "[::1]:9440". Throws an Error that names it where it cannot be had. `text` is called in the loop.
  MetricsServer(Loop& loop, const std::string& address, std::function<std::string()> text);
  ~MetricsServer();

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace mm::agent
