// SPDX-License-Identifier: Apache-2.0
// See hash_avx2.cc. The two others may be called only where compiled_for_avx2() and the processor has AVX2.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mm::checkpoint {

bool compiled_for_avx2();
uint64_t hash64_avx2(const void* data, size_t bytes);
// `state` is the library's XXH3_state_t.
void update_avx2(void* state, const void* data, size_t bytes);

}  // namespace mm::checkpoint
