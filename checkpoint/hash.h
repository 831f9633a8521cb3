// SPDX-License-Identifier: Apache-2.0
// XXH3: 64 bits for a block of payload, 128 for what holds the tree together. It finds accidents, not an attacker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct XXH3_state_s;

namespace mm::checkpoint {

inline constexpr uint64_t block_bytes = uint64_t{4} << 20;  // of payload that one hash covers

uint64_t hash64(const void* data, size_t bytes);

// The same over parts that come one after the other, so that each is hashed while it is still in the processor's cache.
class Hash64 {
 public:
  Hash64();
  void reset();
  void add(const void* data, size_t bytes);
  uint64_t value() const;

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

class Hash128 {
 public:
  Hash128();
  void add(const void* data, size_t bytes);
  std::string hex() const;  // 32 digits, as `xxhsum -H2` prints them

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};
std::string hash128(const std::string& data);

}  // namespace mm::checkpoint
