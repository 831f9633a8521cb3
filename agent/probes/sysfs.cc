// SPDX-License-Identifier: Apache-2.0
#include "agent/probes/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "common/files.h"

namespace mm::agent {

std::optional<std::string> read_small(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return std::nullopt;
  std::string out(64 * 1024, '\0');
  size_t size = 0;
  while (size < out.size()) {
    const ssize_t n = ::read(fd.get(), out.data() + size, out.size() - size);
    if (n < 0) return std::nullopt;  // such as "Invalid argument" of one counter
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  out.resize(size);
  return out;
}

std::optional<std::string> read_line(const std::string& path) {
  auto text = read_small(path);
  if (text) text->resize(std::min(text->find('\n'), text->size()));
  return text;
}

std::optional<double> read_number(const std::string& path) {
  const auto line = read_line(path);
  double value = 0;
  if (!line) return std::nullopt;
  const auto [end, error] = std::from_chars(line->data(), line->data() + line->size(), value);
  if (error != std::errc() || (end != line->data() + line->size() && *end != ' ')) return std::nullopt;
  return value;
}

std::vector<std::string> list_folder(const std::string& path) {
  std::vector<std::string> out;
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return out;
  while (const dirent* entry = ::readdir(folder))
    if (entry->d_name[0] != '.') out.emplace_back(entry->d_name);
  ::closedir(folder);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace mm::agent
