// SPDX-License-Identifier: Apache-2.0
// The element types: their names here and in safetensors files, their sizes, and the numbers that stand for them in a rank
// file's index (the places in this table, which is only ever added to).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint.h"

namespace mm::checkpoint {

const char* safetensors_name(DType);
std::optional<DType> dtype_of_safetensors(std::string_view name);
uint8_t number_of(DType);
std::optional<DType> dtype_of_number(uint8_t number);

}  // namespace mm::checkpoint
