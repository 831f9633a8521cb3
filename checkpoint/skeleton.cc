// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/skeleton.h"

#include <fmt/format.h>
#include <hdf5.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "checkpoint/frame.h"
#include "checkpoint/hash.h"
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
  Builder(SparseImage& image, size_t entries, Placement* placement)
      : access_(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file properties"),
        driver_(access_, image, placement),
        placement_(placement),
        file_(make_file(entries)),
        groups_(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "group properties"),
        types_(H5Pcreate(H5P_DATATYPE_CREATE), H5Pclose, "type properties"),
        datasets_(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset properties"),
        bfloat16_(small_float(8, 7, "bfloat16")),
        float16_(small_float(5, 10, "float16")) {
    // No times, so that the same tensors make the same bytes.
    check(H5Pset_obj_track_times(groups_, false), "group properties");
    check(H5Pset_obj_track_times(types_, false), "type properties");
    check(H5Pset_alloc_time(datasets_, H5D_ALLOC_TIME_EARLY), "dataset properties");
    check(H5Pset_fill_time(datasets_, H5D_FILL_TIME_NEVER), "dataset properties");
    check(H5Pset_obj_track_times(datasets_, false), "dataset properties");
  }

  // Unless it is there; the one above it is.
  void make_group(const std::string& path) {
    if (!made_.insert(path).second) return;
    Handle group(H5Gcreate2(file_, path.c_str(), H5P_DEFAULT, groups_, H5P_DEFAULT), H5Gclose, "create " + path);
    group.close("close " + path);
  }

  void add(Entry& e) {
    if (e.dtype == DType::bfloat16 && H5Tcommitted(bfloat16_) <= 0) {
      make_group("/types");
      check(H5Tcommit2(file_, "/types/bfloat16", bfloat16_, H5P_DEFAULT, types_, H5P_DEFAULT), "/types/bfloat16");
    }
    const std::string parent = "/t/" + path_component(e.name) + "/" + path_component(e.role);
    make_group("/t/" + path_component(e.name));
    make_group(parent);
    const std::string path = fmt::format("{}/{}", parent, boxes_[parent]++);
    const hid_t type = library_type(e.dtype, bfloat16_, float16_);
    if (placement_ != nullptr && !e.compressed && e.bytes() > 0) placement_->data.emplace_back(e.offset, e.bytes());
    Handle dataset = e.compressed ? create_chunked(path, type, e) : create(path, type, e.box.shape);
    set_text(dataset, "name", e.name);
    set_text(dataset, "role", e.role);
    set_text(dataset, "dtype", name_of(e.dtype));
    set_extents(dataset, "global_shape", e.global_shape);
    set_extents(dataset, "offset", e.box.offset);
    e.offset = e.bytes() > 0 && !e.compressed ? place(dataset, path) : 0;
    dataset.close("close " + path);
  }

  uint64_t add_plain(const std::string& path, hid_t type, uint64_t count) {
    make_group("/mm");
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
    if (placement_ == nullptr) check(H5Pset_alignment(access_, alignment_threshold, alignment), "file properties");
    check(H5Pset_meta_block_size(access_, 4096 + structure_per_entry * entries), "file properties");
    check(H5Pset_fclose_degree(access_, H5F_CLOSE_SEMI), "file properties");
    const Handle creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "file properties");
    check(H5Pset_obj_track_times(creation, false), "file properties");
    return Handle(H5Fcreate("rank.h5", H5F_ACC_TRUNC, creation, access_), H5Fclose, "create in memory");
  }


  Handle create(const std::string& path, hid_t type, const Extents& shape) {
    const Handle space = space_of(shape);
    return Handle(H5Dcreate2(file_, path.c_str(), type, space, H5P_DEFAULT, datasets_, H5P_DEFAULT), H5Dclose, "create " + path);
  }

  // Tells the library of each chunk; its bytes are not looked at.
  Handle create_chunked(const std::string& path, hid_t type, const Entry& e) {
    const Extents extents = e.chunk();
    const std::vector<hsize_t> chunk(extents.begin(), extents.end());
    const std::vector<unsigned> parameters = frame_parameters(size_of(e.dtype), e.blocks().piece);
    const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset properties");
    check(H5Pset_obj_track_times(properties, false), "dataset properties");
    check(H5Pset_chunk(properties, static_cast<int>(chunk.size()), chunk.data()), "chunks of " + path);
    // Optional to the library that makes the file, which so needs no plugin; whoever reads a chunk needs it.
    check(H5Pset_filter(properties, frame_filter, H5Z_FLAG_OPTIONAL, parameters.size(), parameters.data()), "filter of " + path);
    const Handle space = space_of(e.box.shape);
    Handle dataset(H5Dcreate2(file_, path.c_str(), type, space, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose, "create " + path);
    std::vector<hsize_t> at(chunk.size(), 0);
    for (const Entry::Frame& f : e.frames) {
      placement_->data.emplace_back(f.offset, f.bytes);
      check(H5Dwrite_chunk(dataset, H5P_DEFAULT, 0, at.data(), f.bytes, unread_.data()), "chunk of " + path);
      for (size_t d = at.size(); d-- > 0;) {  // the next one, the last axis first
        at[d] += chunk[d];
        if (at[d] < static_cast<hsize_t>(e.box.shape[d])) break;
        at[d] = 0;
      }
    }
    return dataset;
  }

  static uint64_t place(hid_t dataset, const std::string& path) {
    const haddr_t at = H5Dget_offset(dataset);
    if (at == HADDR_UNDEF) fail("place of " + path);
    return at;
  }

  Handle access_;
  SparseImageDriver driver_;
  Placement* placement_;
  const std::vector<char> unread_ = std::vector<char>(placement_ != nullptr ? 2 * block_bytes : 0);
  Handle file_, groups_, types_, datasets_, bfloat16_, float16_;
  std::set<std::string> made_;  // groups
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

namespace {

Skeleton build(std::vector<Entry>& entries, uint64_t index_bytes, uint64_t hash_count, Placement* placement) {
  const hdf5::QuietErrors quiet;
  SparseImage image;
  Skeleton out;
  Builder builder(image, entries.size(), placement);
  builder.make_group("/t");
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

}  // namespace

Skeleton make_skeleton(std::vector<Entry>& entries, uint64_t index_bytes, uint64_t hash_count) {
  return build(entries, index_bytes, hash_count, nullptr);
}

Skeleton make_skeleton_behind(std::vector<Entry>& entries, uint64_t index_bytes, uint64_t hash_count, uint64_t payload_end) {
  Placement placement{{}, payload_end};
  return build(entries, index_bytes, hash_count, &placement);
}

}  // namespace mm::checkpoint
