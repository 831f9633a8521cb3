// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hdf5.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/error.h"

namespace mm::checkpoint::hdf5 {

void fail(const std::string& what) {
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

Handle small_float(size_t exponent_bits, size_t fraction_bits, const char* what) {
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose, what);
  check(H5Tset_fields(type, 15, fraction_bits, exponent_bits, 0, fraction_bits), what);
  check(H5Tset_precision(type, 16), what);
  check(H5Tset_size(type, 2), what);
  check(H5Tset_ebias(type, (size_t{1} << (exponent_bits - 1)) - 1), what);
  return type;
}

hid_t library_type(DType dtype, hid_t bfloat16, hid_t float16) {
  switch (dtype) {
    case DType::float64:
      return H5T_IEEE_F64LE;
    case DType::float32:
      return H5T_IEEE_F32LE;
    case DType::bfloat16:
      return bfloat16;
    case DType::float16:
      return float16;
    case DType::int64:
      return H5T_STD_I64LE;
    case DType::int32:
      return H5T_STD_I32LE;
    case DType::int16:
      return H5T_STD_I16LE;
    case DType::int8:
      return H5T_STD_I8LE;
    case DType::uint64:
      return H5T_STD_U64LE;
    case DType::uint32:
      return H5T_STD_U32LE;
    case DType::uint16:
      return H5T_STD_U16LE;
    case DType::uint8:
    case DType::boolean:
    case DType::float8_e4m3:
    case DType::float8_e5m2:
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

}  // namespace mm::checkpoint::hdf5
