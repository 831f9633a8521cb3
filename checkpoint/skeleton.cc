// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/skeleton.h"

#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <map>
#include <utility>

#include "checkpoint/hdf5.h"
#include "checkpoint/sparse_image.h"
#include "common/error.h"

namespace mm::checkpoint {
namespace {

using namespace hdf5;

constexpr hsize_t alignment = 4096;  // of datasets from this size on
constexpr hsize_t alignment_threshold = 64 << 10;
constexpr hsize_t structure_per_entry = 1536;  // bytes, about; so that all structure lies together before the payload

class Builder {
 public:
  Builder(SparseImage& image, size_t entries)
      : access_(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file properties"),
        driver_(access_, image),
        file_(make_file(entries)),
        links_(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "link properties"),
        datasets_(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset properties"),
        bfloat16_(small_float(8, 7, "bfloat16")),
        float16_(small_float(5, 10, "float16")) {
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
    Handle dataset = create(path, library_type(e.dtype, bfloat16_, float16_), e.box.shape);
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
  Handle file_, links_, datasets_, bfloat16_, float16_;
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
  const hdf5::QuietErrors quiet;
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
