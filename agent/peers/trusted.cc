// SPDX-License-Identifier: Apache-2.0
#include "agent/peers/trusted.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "common/error.h"

namespace mm::agent {
namespace {

uid_t uid_of(const std::string& name) {
  uid_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && end == name.data() + name.size()) return number;
  passwd entry = {}, *found = nullptr;
  std::vector<char> space(16384);
  const int failed = ::getpwnam_r(name.c_str(), &entry, space.data(), space.size(), &found);
  if (found == nullptr)
    throw usage_error(fmt::format("agent.peer_users: user {}: {}", name, failed == 0 ? "is not known" : std::strerror(failed)));
  return entry.pw_uid;
}

}  // namespace

std::set<uid_t> trusted_users(const std::vector<std::string>& names) {
  if (names.empty()) return {0, ::geteuid()};
  std::set<uid_t> out;
  for (const std::string& name : names) out.insert(uid_of(name));
  return out;
}

}  // namespace mm::agent
