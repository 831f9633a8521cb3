// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace mm::checkpoint {

uint64_t hash64(const void* data, size_t bytes) {
  return XXH3_64bits(data, bytes);
}

Hash128::Hash128() : state_(XXH3_createState(), [](XXH3_state_s* s) { XXH3_freeState(s); }) {
  if (!state_ || XXH3_128bits_reset(state_.get()) != XXH_OK) throw std::bad_alloc();
}

void Hash128::add(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_128bits_update(state_.get(), data, bytes);
}

std::string Hash128::hex() const {
  const XXH128_hash_t h = XXH3_128bits_digest(state_.get());
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

std::string hash128(const std::string& data) {
  Hash128 h;
  h.add(data.data(), data.size());
  return h.hex();
}

}  // namespace mm::checkpoint
