// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/vds_index.h"

#include <fmt/format.h>

#include <limits>
#include <map>

#include "checkpoint/hdf5.h"
#include "checkpoint/sparse_image.h"

namespace mm::checkpoint {
namespace {

using namespace hdf5;

// In the names of sources HDF5 replaces %b, and reads %% as %.
std::string doubled_percent(const std::string& name) {
  std::string out;
  for (const char c : name) out.append(c == '%' ? 2 : 1, c);
  return out;
}

Handle selection(const Extents& whole, const Box& box, const std::string& what) {
  Handle space = space_of(whole);
  const std::vector<hsize_t> offset(box.offset.begin(), box.offset.end()), count(box.shape.begin(), box.shape.end());
  check(H5Sselect_hyperslab(space, H5S_SELECT_SET, offset.data(), nullptr, count.data(), nullptr), what);
  return space;
}

class IndexBuilder {
 public:
  explicit IndexBuilder(SparseImage& image)
      : access_(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file properties"),
        driver_(access_, image),
        file_(make_file()),
        links_(H5Pcreate(H5P_LINK_CREATE), H5Pclose, "link properties"),
        bfloat16_(small_float(8, 7, "bfloat16")),
        float16_(small_float(5, 10, "float16")) {
    check(H5Pset_create_intermediate_group(links_, 1), "link properties");
  }

  void add(const StepReader& step, const TensorKey& key, const TensorParts& t) {
    const std::string path = "/" + path_component(key.second) + "/" + path_component(key.first);
    const std::string parent = "/t/" + path_component(key.first) + "/" + path_component(key.second) + "/";
    if (t.global_shape.empty()) {  // a virtual dataset has at least one dimension
      check(H5Lcreate_external(rank_file_name(static_cast<int64_t>(t.parts.at(0).first)).c_str(), (parent + "0").c_str(), file_,
                               path.c_str(), links_, H5P_DEFAULT),
            "link " + path);
      return;
    }
    const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset properties");
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const bool has_nan =
        t.dtype == DType::float64 || t.dtype == DType::float32 || t.dtype == DType::bfloat16 || t.dtype == DType::float16;
    if (has_nan) check(H5Pset_fill_value(properties, H5T_NATIVE_FLOAT, &nan), "fill value of " + path);
    std::map<size_t, int> before;  // datasets of this tensor in a file so far
    for (const auto& [file, entry] : t.parts) {
      const Box& box = step.entry(file, entry).box;
      const std::string source = parent + std::to_string(before[file]++);
      if (elements(box.shape) == 0) continue;
      const Handle from = space_of(box.shape), to = selection(t.global_shape, box, path);
      check(H5Pset_virtual(properties, to, rank_file_name(static_cast<int64_t>(file)).c_str(), doubled_percent(source).c_str(),
                           from),
            "part of " + path);
    }
    const Handle space = space_of(t.global_shape);
    Handle dataset(
        H5Dcreate2(file_, path.c_str(), library_type(t.dtype, bfloat16_, float16_), space, links_, properties, H5P_DEFAULT),
        H5Dclose, "create " + path);
    set_text(dataset, "name", key.first);
    set_text(dataset, "role", key.second);
    set_text(dataset, "dtype", mm::checkpoint::name_of(t.dtype));
    dataset.close("close " + path);
  }

  void close() { file_.close("close the file"); }

 private:
  Handle make_file() {
    if (!driver_.ok()) fail("file driver");
    check(H5Pset_libver_bounds(access_, H5F_LIBVER_V110, H5F_LIBVER_V110), "file properties");
    check(H5Pset_fclose_degree(access_, H5F_CLOSE_SEMI), "file properties");
    return Handle(H5Fcreate("index.h5", H5F_ACC_TRUNC, H5P_DEFAULT, access_), H5Fclose, "create in memory");
  }

  Handle access_;
  SparseImageDriver driver_;
  Handle file_, links_, bfloat16_, float16_;
};

}  // namespace

void write_vds_index(const StepReader& step, const std::string& folder) {
  const QuietErrors quiet;
  SparseImage image;
  IndexBuilder builder(image);
  for (const auto& [key, tensor] : step.tensors()) builder.add(step, key, tensor);
  builder.close();
  std::string content(image.size(), '\0');
  image.read(0, content.data(), content.size());
  const std::string temporary = folder + "/.index.h5.tmp";
  io::remove_tree(temporary);
  io::write_file(temporary, content);
  io::rename(temporary, folder + "/index.h5");
  io::sync_folder(folder);
}

}  // namespace mm::checkpoint
