// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/context.h"

namespace mm::agent {

void Context::ask_all(const std::vector<std::string>& nodes, const KeyValues& message, milliseconds deadline,
                      std::function<void(const Answers&)> done) {
  struct Gathering {
    Answers answers;
    size_t missing = 0;
    std::function<void(const Answers&)> done;
  };
  auto g = std::make_shared<Gathering>();
  g->done = std::move(done);
  for (const std::string& n : nodes)
    if (n != node) g->answers[n] = std::nullopt;
  g->missing = g->answers.size();
  if (g->missing == 0) return loop.post([g] { g->done(g->answers); });
  const std::vector<std::string> targets = [&] {
    std::vector<std::string> out;
    for (const auto& [n, answer] : g->answers) out.push_back(n);
    return out;
  }();
  for (const std::string& n : targets)
    mesh.ask(n, message, deadline, [g, n](const std::optional<KeyValues>& answer) {
      g->answers[n] = answer;
      if (--g->missing == 0) g->done(g->answers);
    });
}

}  // namespace mm::agent
