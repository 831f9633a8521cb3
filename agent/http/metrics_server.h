// SPDX-License-Identifier: Apache-2.0
// GET /metrics for Prometheus, read-only, over HTTP or HTTPS; every other request is refused. Small by intent: a request has a size limit and a
// deadline, there is a limited number of connections, and each answers one request.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/loop.h"

namespace mm::agent {

// PEM files; where both are empty it is plain HTTP.
struct TlsFiles {
  std::string certificate, key;
};

class MetricsServer {
 public:
  // `address`: "127.0.0.1:9440" or "[::1]:9440". Throws an Error that names it where it cannot be had, a usage Error where it or the certificate is
  // none. `text` is called in the loop.
  MetricsServer(Loop& loop, const std::string& address, const TlsFiles& tls, std::function<std::string()> text);
  ~MetricsServer();
  // Reads certificate and key again, for connections to come; whether it is HTTPS stays. Throws as the constructor, and then nothing has changed.
  void renew(const TlsFiles& tls);

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace mm::agent
