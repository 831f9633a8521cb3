// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/dtype.h"

#include "common/error.h"

namespace mm::checkpoint {
namespace {

struct Row {
  DType dtype;
  const char* name;
  const char* safetensors;
  size_t bytes;
};

constexpr Row table[] = {
    {DType::float64, "float64", "F64", 8},
    {DType::float32, "float32", "F32", 4},
    {DType::bfloat16, "bfloat16", "BF16", 2},
    {DType::int64, "int64", "I64", 8},
    {DType::uint8, "uint8", "U8", 1},
    {DType::float16, "float16", "F16", 2},
    {DType::int32, "int32", "I32", 4},
    {DType::int16, "int16", "I16", 2},
    {DType::int8, "int8", "I8", 1},
    {DType::uint64, "uint64", "U64", 8},
    {DType::uint32, "uint32", "U32", 4},
    {DType::uint16, "uint16", "U16", 2},
    {DType::boolean, "bool", "BOOL", 1},
    {DType::float8_e4m3, "float8_e4m3", "F8_E4M3", 1},
    {DType::float8_e5m2, "float8_e5m2", "F8_E5M2", 1},
};

const Row& row_of(DType t) {
  for (const Row& r : table) {
    if (r.dtype == t) return r;
  }
  throw Error(exit_status::internal, "checkpoint: no such dtype");
}

}  // namespace

size_t size_of(DType t) {
  return row_of(t).bytes;
}

std::string name_of(DType t) {
  return row_of(t).name;
}

const char* safetensors_name(DType t) {
  return row_of(t).safetensors;
}

std::optional<DType> dtype_of_safetensors(std::string_view name) {
  for (const Row& r : table) {
    if (name == r.safetensors) return r.dtype;
  }
  return std::nullopt;
}

uint8_t number_of(DType t) {
  return static_cast<uint8_t>(&row_of(t) - table);
}

std::optional<DType> dtype_of_number(uint8_t number) {
  if (number >= std::size(table)) return std::nullopt;
  return table[number].dtype;
}

}  // namespace mm::checkpoint
