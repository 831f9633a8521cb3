// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

#include "checkpoint/hash_avx2.h"

namespace mm::checkpoint {
namespace {

bool with_avx2() {
#if defined(__x86_64__)
  static const bool has = compiled_for_avx2() && __builtin_cpu_supports("avx2");
  return has;
#else
  return false;
#endif
}

XXH3_state_s* new_state() {
  XXH3_state_s* state = XXH3_createState();
  if (state == nullptr) throw std::bad_alloc();
  return state;
}

void free_state(XXH3_state_s* state) {
  XXH3_freeState(state);
}

}  // namespace

uint64_t hash64(const void* data, size_t bytes) {
  return with_avx2() ? hash64_avx2(data, bytes) : XXH3_64bits(data, bytes);
}

Hash64::Hash64() : state_(new_state(), free_state) {
  reset();
}

void Hash64::reset() {
  XXH3_64bits_reset(state_.get());
}

void Hash64::add(const void* data, size_t bytes) {
  if (bytes == 0) return;
  if (with_avx2())
    update_avx2(state_.get(), data, bytes);
  else
    XXH3_64bits_update(state_.get(), data, bytes);
}

uint64_t Hash64::value() const {
  return XXH3_64bits_digest(state_.get());
}

Hash128::Hash128() : state_(new_state(), free_state) {
  XXH3_128bits_reset(state_.get());
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
