// SPDX-License-Identifier: Apache-2.0
#include "trainer/tensor/region.h"

#include <sys/mman.h>

#include <new>

namespace mm::tensor {

Region::Region(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  data_ = p;
}

Region::~Region() {
  if (data_) ::munmap(data_, bytes_);
}

void Region::release(size_t begin, size_t end) const {
  if (begin >= end) return;
  // Pages that were moved into a file for other processes to read are taken out of the file; private ones have none.
  char* const first = static_cast<char*>(data_) + begin;
  if (::madvise(first, end - begin, MADV_REMOVE) != 0) ::madvise(first, end - begin, MADV_DONTNEED);
}

}  // namespace mm::tensor
