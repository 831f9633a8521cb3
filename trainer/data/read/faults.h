// SPDX-License-Identifier: Apache-2.0
// A hook that sees each operation on shards and caches before it happens, and can make it fail, fall short or take longer, as
// storage does: for tests, and for benchmarks of storage that this machine does not have.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace mm::data {

enum class Op { open, read, cache_read, cache_write };

struct Operation {
  Op op = Op::read;
  const std::string& path;
  int64_t offset = 0;
  size_t bytes = 0;
};

struct Fault {
  int error = 0;                      // an errno: the operation does not happen and fails with it
  size_t at_most = SIZE_MAX;          // bytes that this one call moves
  std::chrono::microseconds delay{};  // until its result is there; operations that run at once wait at once
};

using FaultHook = std::function<Fault(const Operation&)>;
// Before threads that read start. An empty hook is none.
void set_fault_hook(FaultHook hook);
Fault ask_fault(const Operation& operation);

}  // namespace mm::data
