// SPDX-License-Identifier: Apache-2.0
// The JSON header of a safetensors file, as values, checked.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "trainer/interop/safetensors.h"

namespace mm::interop {

inline constexpr uint64_t largest_header = 100'000'000;

// Bytes of an element; 0 for a name that the format does not know.
size_t element_size(std::string_view dtype);
// `data_bytes` follow the header, of which `data_begin` is the place in the file. Throws a usage Error that names `path`.
std::map<std::string, TensorInfo> parse_header(std::string_view json, uint64_t data_begin, uint64_t data_bytes,
                                               const std::string& path);
// "weight_map" of an index file: tensor name -> file name, which never leaves the folder.
std::map<std::string, std::string> parse_index(std::string_view json, const std::string& path);
// The header with its length in front, padded so that the data that follow are aligned to 8 bytes.
std::string format_header(const std::map<std::string, TensorInfo>& tensors);

}  // namespace mm::interop
