// SPDX-License-Identifier: Apache-2.0
// The pictures under some folders, with the names that they get as samples.
#pragma once

#include <string>
#include <vector>

namespace mm::data {

struct PictureFile {
  std::string path;      // to open
  std::string relative;  // to its source folder, for captions
  std::string key;       // unique, without dots in its last part
};

// Walks the sources (folders, or single files); links to files are followed, links to folders are not; hidden files and other
// kinds of files are passed over. Sorted by relative path, so that the result depends on names alone. `key` is the relative
// path without its extension, with "-2", "-3", ... where two pictures would share it. Throws a usage Error that names a source
// that cannot be read.
std::vector<PictureFile> find_pictures(const std::vector<std::string>& sources);
bool has_picture_name(const std::string& path);

}  // namespace mm::data
