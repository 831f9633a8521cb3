// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/pack/find_pictures.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <unordered_set>

#include "common/error.h"

namespace mm::data {
namespace {

namespace fs = std::filesystem;

std::string key_of(const std::string& relative) {
  const fs::path path(relative);
  std::string base = path.stem().string();
  for (char& c : base)
    if (c == '.' || static_cast<unsigned char>(c) < 0x20) c = '_';
  return (path.parent_path() / base).string();
}

void add_source(const std::string& source, std::vector<PictureFile>& files) {
  std::error_code error;
  const fs::file_status status = fs::status(source, error);
  if (!fs::exists(status)) throw usage_error("pack: " + source + ": " + (error ? error.message() : "no such file or folder"));
  if (!fs::is_directory(status)) {
    files.push_back({source, fs::path(source).filename().string(), {}});
    return;
  }
  fs::recursive_directory_iterator at(source, error), end;
  for (; !error && at != end; at.increment(error)) {
    const fs::path& path = at->path();
    const bool hidden = path.filename().string().starts_with('.');
    std::error_code ignored;
    if (hidden && at->is_directory(ignored)) at.disable_recursion_pending();
    if (hidden || !has_picture_name(path.string()) || at->is_directory(ignored)) continue;
    files.push_back({path.string(), path.lexically_relative(source).string(), {}});
  }
  if (error) throw usage_error("pack: walk " + source + ": " + error.message());
}

}  // namespace

bool has_picture_name(const std::string& path) {
  std::string extension = fs::path(path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg" || extension == ".webp" || extension == ".gif";
}

std::vector<PictureFile> find_pictures(const std::vector<std::string>& sources) {
  std::vector<PictureFile> files;
  for (const std::string& source : sources) add_source(source, files);
  std::stable_sort(files.begin(), files.end(),
                   [](const PictureFile& a, const PictureFile& b) { return a.relative < b.relative; });
  std::unordered_set<std::string> taken;
  for (PictureFile& file : files) {
    const std::string wanted = key_of(file.relative);
    file.key = wanted;
    for (int n = 2; !taken.insert(file.key).second; ++n) file.key = wanted + "-" + std::to_string(n);
  }
  return files;
}

}  // namespace mm::data
