// SPDX-License-Identifier: Apache-2.0
// MUNGE credentials: what makes a datagram of another node's agent trustworthy. Both calls talk to munged and may take seconds where it is
// gone: for a worker.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mm::agent {

// Only `reader` can decode it. Throws an Error with munge's reason.
std::string encode_credential(std::string_view payload, const std::string& munge_socket, uid_t reader);

struct Credential {
  std::string payload;
  uid_t uid = 0;
  int64_t encoded_at = 0;  // seconds since 1970, by the sender's clock
};
// Throws an Error with munge's reason: forged, expired, replayed, no munged.
Credential decode_credential(const std::string& credential, const std::string& munge_socket);

}  // namespace mm::agent
