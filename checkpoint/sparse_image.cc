// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/sparse_image.h"

#if __has_include(<H5FDdevelop.h>)
#include <H5FDdevelop.h>
#endif

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

namespace mm::checkpoint {
namespace {

constexpr uint64_t page_bytes = 4096;

struct DriverInfo {
  SparseImage* image;
  Placement* placement;
};

// What the library holds as an open file: its own part must come first.
struct ImageFile {
  H5FD_t library_part;
  SparseImage* image;
  Placement* placement;
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
    file->placement = info->placement;
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

// A node of the tree of a dataset's chunks (version 1), as the library writes it: behind the entries that are in use lies what its
// memory held before. That is made zero, so that a file tells nothing else and the same data make the same file.
std::string without_rest(const void* node, size_t bytes) {
  constexpr size_t head = 24, in_use_at = 6, child = 8, most = 64;  // "TREE", type, level, u16 entries in use, two siblings; entries of a node
  std::string out(static_cast<const char*>(node), bytes);
  if (bytes < head + most * child || !out.starts_with("TREE") || out[4] != 1) return out;
  uint16_t in_use = 0;
  std::memcpy(&in_use, out.data() + in_use_at, sizeof in_use);
  const size_t key = (bytes - head - most * child) / (most + 1), end = head + in_use * (key + child) + key;
  if (in_use <= most) std::fill(out.begin() + static_cast<std::ptrdiff_t>(end), out.end(), '\0');
  return out;
}

// Each request for room and each write comes here alone, unaligned: nothing is put together before.
H5FD_class_t make_placing_class() {
  H5FD_class_t c = make_class();
  c.name = "mm_placed_image";
  c.query = [](const H5FD_t*, unsigned long* flags) -> herr_t {
    *flags = 0;
    return 0;
  };
  c.alloc = [](H5FD_t* file, H5FD_mem_t type, hid_t, hsize_t bytes) -> haddr_t {
    ImageFile& f = *of(file);
    Placement& p = *f.placement;
    if (type == H5FD_MEM_DRAW && !p.data.empty()) {
      const auto [offset, length] = p.data.front();
      p.data.pop_front();
      return length == bytes ? offset : HADDR_UNDEF;
    }
    // The superblock is the first of all, and must be at 0.
    const haddr_t at = f.end_of_allocation == 0 ? 0 : std::max<haddr_t>(f.end_of_allocation, p.end);
    f.end_of_allocation = at + bytes;
    return at;
  };
  c.write = [](H5FD_t* file, H5FD_mem_t type, hid_t, haddr_t at, size_t bytes, const void* buffer) -> herr_t {
    if (type == H5FD_MEM_DRAW) return 0;
    return guarded([&] {
      if (type != H5FD_MEM_BTREE) return of(file)->image->write(at, buffer, bytes);
      const std::string node = without_rest(buffer, bytes);
      of(file)->image->write(at, node.data(), node.size());
    });
  };
  return c;
}

// The library keeps a pointer to them.
const H5FD_class_t driver_class = make_class(), placing_class = make_placing_class();

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

SparseImageDriver::SparseImageDriver(hid_t access, SparseImage& image, Placement* placement)
    : id_(H5FDregister(placement != nullptr ? &placing_class : &driver_class)) {
  const DriverInfo info{&image, placement};
  ok_ = id_ >= 0 && H5Pset_driver(access, id_, &info) >= 0;
}

SparseImageDriver::~SparseImageDriver() {
  if (id_ >= 0) H5FDunregister(id_);
}

}  // namespace mm::checkpoint
