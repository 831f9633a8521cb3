// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/agree.h"

#include <fmt/format.h>

#include <algorithm>

namespace mm::loop {

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
    return "";
  } catch (const Error& e) {
    return fmt::format("{} {}", e.status, e.what());
  } catch (const std::exception& e) {
    return fmt::format("{} {}", exit_status::internal, e.what());
  }
}

void throw_first(comm::Comm& comm, const std::string& failure) {
  const std::vector<std::string> all = comm.all_gather(failure);
  const auto first = std::find_if(all.begin(), all.end(), [](const std::string& f) { return !f.empty(); });
  if (first == all.end()) return;
  const int rank = static_cast<int>(first - all.begin());
  const size_t space = first->find(' ');
  std::string message = first->substr(space + 1);
  if (std::any_of(all.begin(), all.end(), [&](const std::string& f) { return f != *first; }))
    message = fmt::format("rank {} on {}: {}", rank, comm.node(rank), message);
  throw AgreedError(std::stoi(first->substr(0, space)), message, comm.rank() == rank);
}

void agree(comm::Comm& comm, const std::function<void()>& body) {
  throw_first(comm, failure_of(body));
}

}  // namespace mm::loop
