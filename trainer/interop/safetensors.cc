// SPDX-License-Identifier: Apache-2.0
#include "trainer/interop/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "common/error.h"
#include "common/safetensors/writer.h"

namespace mm::interop {
namespace {

template <class From>
From element(const std::vector<char>& buffer, size_t i) {
  From value;
  std::memcpy(&value, buffer.data() + i * sizeof(From), sizeof value);
  return value;
}

float from_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

float from_float16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float magnitude = 0;
  if (exponent == 31)
    magnitude = fraction == 0 ? INFINITY : NAN;
  else if (exponent == 0)
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  else
    magnitude = std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
void read_tensor(const safetensors::File& file, const std::string& name, T* to) {
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end()) throw usage_error(fmt::format("{}: there is no tensor {}", file.path(), name));
  const TensorInfo& info = found->second;
  if (info.dtype != "F64" && info.dtype != "F32" && info.dtype != "F16" && info.dtype != "BF16")
    throw usage_error(fmt::format("{}: tensor {}: dtype {} is none that a model is loaded from (F64, F32, F16, BF16)",
                                  file.path(), name, info.dtype));
  const size_t each = safetensors::element_size(info.dtype);
  const uint64_t n = (info.end - info.begin) / each;
  constexpr uint64_t at_once = 1 << 20;
  std::vector<char> buffer(std::min(n, at_once) * each);
  for (uint64_t at = 0; at < n; at += at_once) {
    const size_t m = std::min(at_once, n - at);
    file.read(info, at * each, m * each, buffer.data());
    T* out = to + at;
    if (info.dtype == "F64")
      for (size_t i = 0; i < m; ++i) out[i] = static_cast<T>(element<double>(buffer, i));
    else if (info.dtype == "F32")
      for (size_t i = 0; i < m; ++i) out[i] = static_cast<T>(element<float>(buffer, i));
    else if (info.dtype == "F16")
      for (size_t i = 0; i < m; ++i) out[i] = static_cast<T>(from_float16(element<uint16_t>(buffer, i)));
    else
      for (size_t i = 0; i < m; ++i) out[i] = static_cast<T>(from_bfloat16(element<uint16_t>(buffer, i)));
  }
}

}  // namespace

void Safetensors::read(const std::string& name, float* to) const {
  read_tensor(*this, name, to);
}
void Safetensors::read(const std::string& name, double* to) const {
  read_tensor(*this, name, to);
}

void write_safetensors(const std::string& path, const std::string& dtype, const std::vector<TensorView>& tensors) {
  std::vector<std::pair<std::string, TensorInfo>> infos;
  std::map<std::string, const void*> data;
  for (const TensorView& t : tensors) {
    infos.emplace_back(t.name, TensorInfo{dtype, t.shape});
    data[t.name] = t.data;
  }
  safetensors::Writer file(path, std::move(infos));
  for (const auto& [name, info] : file.tensors()) file.append(data[name], info.end - info.begin);
  file.finish();
}

}  // namespace mm::interop
