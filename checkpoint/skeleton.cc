// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/skeleton.h"

#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <map>
#include <utility>

#include "checkpoint/sparse_image.h"
#include "common/error.h"

namespace mm::checkpoint {
namespace {

constexpr hsize_t alignment = 4096;  // of datasets from this size on
constexpr hsize_t alignment_threshold = 64 << 10;
constexpr hsize_t structure_per_entry = 1536;  // bytes, about; so that all structure lies together before the payload

[[noreturn]] void fail(const std::string& what) {
  std::string reason;
  auto innermost = [](unsigned, const H5E_error2_t* e, void* out) -> herr_t {
    auto& text = *static_cast<std::string*>(out);
    if (text.empty()) text = fmt::format("{}: {}", e->func_name, e->desc);
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, innermost, &reason);
  throw Error(exit_status::internal, fmt::format("checkpoint: HDF5: {}: {}", what, reason));
}

void check(herr_t result, const std::string& what) {
  if (result < 0) fail(what);
}

// An HDF5 object; close() reports what the library says then, the destructor only frees.
class Handle {
 public:
  Handle(hid_t id, herr_t (*closer)(hid_t), const std::string& what) : id_(id), close_(closer) {
    if (id_ < 0) fail(what);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  void close(const std::string& what) { check(close_(std::exchange(id_, -1)), what); }
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// The library prints its errors by default; ours carry them.
class QuietErrors {
 public:
  QuietErrors() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;
  ~QuietErrors() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

Handle bfloat16_type() {
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, "bfloat16");
  check(H5Tset_fields(type, 15, 7, 8, 0, 7), "bfloat16");
  check(H5Tset_precision(type, 16), "bfloat16");
  check(H5Tset_size(type, 2), "bfloat16");
  check(H5Tset_ebias(type, 127), "bfloat16");
  return type;
}

hid_t library_type(DType dtype, hid_t bfloat16) {
  switch (dtype) {
    case DType::float64:
      return H5T_IEEE_F64LE;
    case DType::float32:
      return H5T_IEEE_F32LE;
    case DType::bfloat16:
      return bfloat16;
    case DType::int64:
      return H5T_STD_I64LE;
    case DType::uint8:
      return H5T_STD_U8LE;
  }
  return -1;
}

Handle space_of(const Extents& shape) {
  if (shape.empty()) return Handle(H5Screate(H5S_SCALAR), H5Sclose, "scalar");
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  return Handle(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr), H5Sclose, "extents");
}

void set_text(hid_t object, const char* attribute, const std::string& value) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose, attribute);
  check(H5Tset_size(type, std::max<size_t>(value.size(), 1)), attribute);
  check(H5Tset_strpad(type, H5T_STR_NULLPAD), attribute);
  check(H5Tset_cset(type, H5T_CSET_UTF8), attribute);
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose, attribute);
  Handle a(H5Acreate2(object, attribute, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, attribute);
  check(H5Awrite(a, type, value.empty() ? "\0" : value.data()), attribute);
  a.close(attribute);
}

void set_extents(hid_t object, const char* attribute, const Extents& value) {
  const hsize_t n = value.size();
  const Handle space(H5Screate_simple(1, &n, nullptr), H5Sclose, attribute);
  Handle a(H5Acreate2(object, attribute, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose, attribute);
  const int64_t none = 0;
  check(H5Awrite(a, H5T_NATIVE_INT64, value.empty() ? &none : value.data()), attribute);
  a.close(attribute);
}

class Builder {
 public:
  Builder(SparseImage& image, size_t entries)
      : access_(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file properties"),
        driver_(access_, image),
        file_(make_file(entries)),
        links_(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "link properties"),
        datasets_(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset properties"),
        bfloat16_(bfloat16_type()) {
    check(H5Pset_create_intermediate_group(links_, 1), "link properties");
    check(H5Pset_alloc_time(datasets_, H5D_ALLOC_TIME_EARLY), "dataset properties");
    check(H5Pset_fill_time(datasets_, H5D_FILL_TIME_NEVER), "dataset properties");
    check(H5Pset_obj_track_times(datasets_, false), "dataset properties");
  }

  void add(Entry& e) {
    if (e.dtype == DType::bfloat16 && H5Tcommitted(bfloat16_) <= 0) {
      check(H5Tcommit2(file_, "/types/bfloat16", bfloat16_, links_, H5P_DEFAULT, H5P_DEFAULT), "/types/bfloat16");
    }
    const std::string parent = "/t/" + path_component(e.name) + "/" + path_component(e.role);
    const std::string path = fmt::format("{}/{}", parent, boxes_[parent]++);
    Handle dataset = create(path, library_type(e.dtype, bfloat16_), e.box.shape);
    set_text(dataset, "name", e.name);
    set_text(dataset, "role", e.role);
    set_text(dataset, "dtype", name_of(e.dtype));
    set_extents(dataset, "global_shape", e.global_shape);
    set_extents(dataset, "offset", e.box.offset);
    e.offset = e.bytes() > 0 ? place(dataset, path) : 0;
    dataset.close("close " + path);
  }

  uint64_t add_plain(const std::string& path, hid_t type, uint64_t count) {
    Handle dataset = create(path, type, {static_cast<int64_t>(count)});
    const uint64_t offset = count > 0 ? place(dataset, path) : 0;
    dataset.close("close " + path);
    return offset;
  }

  void close() {
    bfloat16_.close("close /types/bfloat16");
    file_.close("close the file");
  }

 private:
  Handle make_file(size_t entries) {
    if (!driver_.ok()) fail("file driver");
    check(H5Pset_libver_bounds(access_, H5F_LIBVER_V18, H5F_LIBVER_V18), "file properties");
    check(H5Pset_alignment(access_, alignment_threshold, alignment), "file properties");
    check(H5Pset_meta_block_size(access_, 4096 + structure_per_entry * entries), "file properties");
    check(H5Pset_fclose_degree(access_, H5F_CLOSE_SEMI), "file properties");
    return Handle(H5Fcreate("rank.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access_), H5Fclose, "create in memory");
  }

  Handle create(const std::string& path, hid_t type, const Extents& shape) {
    const Handle space = space_of(shape);
    return Handle(H5Dcreate2(file_, path.c_str(), type, space, links_, datasets_, H5P_DEFAULT), H5Dclose, "create " + path);
  }

  static uint64_t place(hid_t dataset, const std::string& path) {
    const haddr_t at = H5Dget_offset(dataset);
    if (at == HADDR_UNDEF) fail("place of " + path);
    return at;
  }

  Handle access_;
  SparseImageDriver driver_;
  Handle file_, links_, datasets_, bfloat16_;
  std::map<std::string, int64_t> boxes_;  // datasets so far under a parent
};

}  // namespace

void Skeleton::patch(uint64_t offset, const std::string& bytes) {
  if (bytes.empty()) return;
  for (Piece& p : structure) {
    if (offset >= p.offset && offset - p.offset + bytes.size() <= p.bytes.size()) {
      p.bytes.replace(offset - p.offset, bytes.size(), bytes);
      return;
    }
  }
  throw Error(exit_status::internal,
              fmt::format("checkpoint: HDF5 structure: bytes {}+{} lie in no part of it", offset, bytes.size()));
}

Skeleton make_skeleton(std::vector<Entry>& entries, uint64_t index_bytes, uint64_t hash_count) {
  const QuietErrors quiet;
  SparseImage image;
  Skeleton out;
  Builder builder(image, entries.size());
  for (Entry& e : entries) builder.add(e);
  out.index_offset = builder.add_plain("/mm/index", H5T_STD_U8LE, index_bytes);
  out.hash_offset = builder.add_plain("/mm/hash", H5T_STD_U64LE, hash_count);
  builder.close();

  out.size = image.size();
  for (const Range& r : structure_ranges(entries, out.size)) {
    out.structure.push_back({r.begin, std::string(r.end - r.begin, '\0')});
    image.read(r.begin, out.structure.back().bytes.data(), r.end - r.begin);
  }
  return out;
}

}  // namespace mm::checkpoint
