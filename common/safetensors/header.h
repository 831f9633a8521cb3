// SPDX-License-Identifier: Apache-2.0
// The safetensors format: u64 little-endian header length, a JSON header of {name: {dtype, shape, data_offsets}}, then
// row-major data. A file is hostile until its header has been checked whole: every offset lies in the file and belongs to one
// tensor, sizes agree with shapes, no key stands twice. Errors name the file, the tensor and the reason.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mm::safetensors {

inline constexpr uint64_t largest_header = 100'000'000;

struct TensorInfo {
  std::string dtype;  // F64, F32, F16, BF16, I64, ...
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes of the file
  int64_t elements() const;
};

// Bytes of an element; 0 for a name that the format does not know.
size_t element_size(std::string_view dtype);
// `data_bytes` follow the header, of which `data_begin` is the place in the file. Throws a usage Error that names `path`.
std::map<std::string, TensorInfo> parse_header(std::string_view json, uint64_t data_begin, uint64_t data_bytes,
                                               const std::string& path);
// "weight_map" of an index file: tensor name -> file name, which never leaves the folder.
std::map<std::string, std::string> parse_index(std::string_view json, const std::string& path);
// The header with its length in front, padded so that the data that follow are aligned to 8 bytes; begin and end count from the
// first byte of data here.
std::string format_header(const std::vector<std::pair<std::string, TensorInfo>>& tensors);

}  // namespace mm::safetensors
