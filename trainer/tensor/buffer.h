// SPDX-License-Identifier: Apache-2.0
// Owned working memory that is kept from step to step: it only grows, so that steps of one size allocate nothing after the
// first. The content is undefined after `need`. Aligned for vector loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace mm::tensor {

template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // Room for at least n elements.
  T* need(int64_t n) {
    if (n > capacity_) {
      memory_.reset();
      capacity_ = 0;
      const size_t bytes = (static_cast<size_t>(n) * sizeof(T) + 63) / 64 * 64;
      memory_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
      if (!memory_) throw std::bad_alloc();
      capacity_ = n;
    }
    return memory_.get();
  }
  T* get() { return memory_.get(); }
  const T* get() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> memory_;
  int64_t capacity_ = 0;
};

}  // namespace mm::tensor
