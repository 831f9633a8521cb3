// SPDX-License-Identifier: Apache-2.0
#include "trainer/interop/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "common/error.h"
#include "trainer/interop/header.h"

namespace mm::interop {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and so is every machine that this is built for");

void read_at(const UniqueFd& fd, uint64_t offset, void* to, size_t bytes, const std::string& path) {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd.get(), at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw system_error("read " + path, errno, exit_status::data);
    if (n == 0) throw data_error(fmt::format("read {}: the file ends at byte {}", path, offset));
    at += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
}

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
void read_tensor(const Safetensors& file, const UniqueFd& fd, const std::string& name, T* to) {
  const auto found = file.tensors().find(name);
  if (found == file.tensors().end()) throw usage_error(fmt::format("{}: there is no tensor {}", file.path(), name));
  const TensorInfo& info = found->second;
  if (info.dtype != "F64" && info.dtype != "F32" && info.dtype != "F16" && info.dtype != "BF16")
    throw usage_error(fmt::format("{}: tensor {}: dtype {} is none that a model is loaded from (F64, F32, F16, BF16)",
                                  file.path(), name, info.dtype));
  const size_t each = element_size(info.dtype);
  const uint64_t n = (info.end - info.begin) / each;
  constexpr uint64_t at_once = 1 << 20;
  std::vector<char> buffer(std::min(n, at_once) * each);
  for (uint64_t at = 0; at < n; at += at_once) {
    const size_t m = std::min(at_once, n - at);
    read_at(fd, info.begin + at * each, buffer.data(), m * each, file.path());
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

bool exists(const std::string& path) {
  struct stat s;
  return ::stat(path.c_str(), &s) == 0;
}

}  // namespace

int64_t TensorInfo::elements() const {
  int64_t n = 1;
  for (int64_t e : shape) n *= e;
  return n;
}

Safetensors::Safetensors(const std::string& path) : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!fd_) throw system_error("open " + path, errno, exit_status::usage);
  struct stat s;
  if (::fstat(fd_.get(), &s) != 0) throw system_error("stat " + path, errno, exit_status::usage);
  if (!S_ISREG(s.st_mode)) throw usage_error(path + ": not a regular file");
  const uint64_t size = static_cast<uint64_t>(s.st_size);
  if (size < 8) throw usage_error(fmt::format("{}: {} bytes are too short for a safetensors file", path, size));
  uint64_t header = 0;
  read_at(fd_, 0, &header, 8, path);
  if (header > largest_header || header > size - 8)
    throw usage_error(fmt::format("{}: a header of {} bytes in a file of {} (at most {})", path, header, size, largest_header));
  std::string text(header, '\0');
  read_at(fd_, 8, text.data(), text.size(), path);
  tensors_ = parse_header(text, 8 + header, size - 8 - header, path);
}

void Safetensors::read(const std::string& name, float* to) const {
  read_tensor(*this, fd_, name, to);
}
void Safetensors::read(const std::string& name, double* to) const {
  read_tensor(*this, fd_, name, to);
}

ModelFolder::ModelFolder(const std::string& folder) : folder_(folder) {
  const std::string single = folder + "/model.safetensors", index = folder + "/model.safetensors.index.json";
  if (!exists(index)) {
    if (!exists(single)) throw usage_error(folder + ": neither model.safetensors nor model.safetensors.index.json is there");
    const auto [file, made] = files_.emplace("model.safetensors", Safetensors(single));
    for (const auto& [name, info] : file->second.tensors()) where_[name] = &file->second;
    return;
  }
  const std::map<std::string, std::string> placed = parse_index(read_file(index), index);
  for (const auto& [name, file] : placed) {
    auto found = files_.find(file);
    if (found == files_.end()) found = files_.emplace(file, Safetensors(folder + "/" + file)).first;
    if (!found->second.tensors().contains(name))
      throw usage_error(fmt::format("{}: tensor {} is not in {}", index, name, found->second.path()));
    where_[name] = &found->second;
  }
  for (const auto& [name, file] : files_)
    for (const auto& [tensor, info] : file.tensors())
      if (where_[tensor] != &file)
        throw usage_error(
            fmt::format("{}: tensor {} of {} is not in the index, or in another shard", index, tensor, file.path()));
}

void write_safetensors(const std::string& path, const std::string& dtype, std::vector<TensorView> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  std::map<std::string, TensorInfo> header;
  uint64_t at = 0;
  for (const TensorView& t : tensors) {
    TensorInfo info{dtype, t.shape, at, at};
    info.end += static_cast<uint64_t>(info.elements()) * element_size(dtype);
    at = info.end;
    if (!header.emplace(t.name, info).second) throw usage_error(fmt::format("{}: tensor {} is given twice", path, t.name));
  }
  std::string content = format_header(header);
  content.reserve(content.size() + at);
  for (const TensorView& t : tensors) {
    const TensorInfo& info = header[t.name];
    content.append(static_cast<const char*>(t.data), info.end - info.begin);
  }
  write_file_durably(path, content);
}

}  // namespace mm::interop
