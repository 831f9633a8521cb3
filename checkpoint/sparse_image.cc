// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/sparse_image.h"

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>
#endif

#include <algorithm>
#include <cstring>
#include <new>

namespace mm::checkpoint {
namespace {

constexpr uint64_t page_bytes = 4096;

struct DriverInfo {
  SparseImage* image;
};

// What the library holds as an open file: its own part must come first.
struct ImageFile {
  H5FD_t library_part;
  SparseImage* image;
  haddr_t end_of_allocation;
};

ImageFile* of(H5FD_t* file) {
  return reinterpret_cast<ImageFile*>(file);
}
const ImageFile* of(const H5FD_t* file) {
  return reinterpret_cast<const ImageFile*>(file);
}

// The library is C: no exception may pass through it.
template <class F>
herr_t guarded(F&& f) {
  try {
    f();
    return 0;
  } catch (const std::bad_alloc&) {
    return -1;
  }
}

H5FD_class_t make_class() {
  H5FD_class_t c{};
#ifdef H5FD_CLASS_VERSION
  c.version = H5FD_CLASS_VERSION;
  c.value = static_cast<H5FD_class_value_t>(600);  // of the range for drivers that are not registered with the library's makers
#endif
  c.name = "mm_sparse_image";
  c.maxaddr = haddr_t{1} << 62;
  c.fc_degree = H5F_CLOSE_SEMI;
  c.fapl_size = sizeof(DriverInfo);
  c.open = [](const char*, unsigned, hid_t access, haddr_t) -> H5FD_t* {
    const auto* info = static_cast<const DriverInfo*>(H5Pget_driver_info(access));
    if (info == nullptr) return nullptr;
    auto* file = new (std::nothrow) ImageFile{};
    if (file == nullptr) return nullptr;
    file->image = info->image;
    return &file->library_part;
  };
  c.close = [](H5FD_t* file) -> herr_t {
    delete of(file);
    return 0;
  };
  c.query = [](const H5FD_t*, unsigned long* flags) -> herr_t {
    *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA;
    return 0;
  };
  c.get_eoa = [](const H5FD_t* file, H5FD_mem_t) { return of(file)->end_of_allocation; };
  c.set_eoa = [](H5FD_t* file, H5FD_mem_t, haddr_t end) -> herr_t {
    of(file)->end_of_allocation = end;
    return 0;
  };
  c.get_eof = [](const H5FD_t* file, H5FD_mem_t) -> haddr_t { return of(file)->image->size(); };
  c.read = [](H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t bytes, void* buffer) {
    return guarded([&] { of(file)->image->read(at, buffer, bytes); });
  };
  c.write = [](H5FD_t* file, H5FD_mem_t, hid_t, haddr_t at, size_t bytes, const void* buffer) {
    return guarded([&] { of(file)->image->write(at, buffer, bytes); });
  };
  c.truncate = [](H5FD_t* file, hid_t, hbool_t) -> herr_t {
    of(file)->image->resize(of(file)->end_of_allocation);
    return 0;
  };
  const H5FD_mem_t free_lists[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(free_lists), std::end(free_lists), std::begin(c.fl_map));
  return c;
}

// The library keeps a pointer to it.
const H5FD_class_t driver_class = make_class();

}  // namespace

void SparseImage::write(uint64_t offset, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  size_ = std::max(size_, offset + bytes);
  while (bytes > 0) {
    std::string& page = pages_[offset / page_bytes];
    page.resize(page_bytes, '\0');
    const uint64_t within = offset % page_bytes;
    const size_t n = std::min<uint64_t>(bytes, page_bytes - within);
    std::memcpy(page.data() + within, from, n);
    from += n;
    offset += n;
    bytes -= n;
  }
}

void SparseImage::read(uint64_t offset, void* data, size_t bytes) const {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const auto page = pages_.find(offset / page_bytes);
    const uint64_t within = offset % page_bytes;
    const size_t n = std::min<uint64_t>(bytes, page_bytes - within);
    if (page == pages_.end())
      std::memset(to, 0, n);
    else
      std::memcpy(to, page->second.data() + within, n);
    to += n;
    offset += n;
    bytes -= n;
  }
}

SparseImageDriver::SparseImageDriver(hid_t access, SparseImage& image) : id_(H5FDregister(&driver_class)) {
  const DriverInfo info{&image};
  ok_ = id_ >= 0 && H5Pset_driver(access, id_, &info) >= 0;
}

SparseImageDriver::~SparseImageDriver() {
  if (id_ >= 0) H5FDunregister(id_);
}

}  // namespace mm::checkpoint
