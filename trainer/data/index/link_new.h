// SPDX-License-Identifier: Apache-2.0
// Gives a file a second name, which must be new: of several writers exactly one succeeds, on network file systems as well.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace mm::data {

// As link(2), for a file that has one name. A server that was asked twice, as its first answer was lost, says that the name exists;
// the number of the file's names tells whether it is ours.
inline int link_new(const std::string& file, const std::string& name) {
  if (::link(file.c_str(), name.c_str()) == 0) return 0;
  const int reason = errno;
  struct stat status {};
  if (reason == EEXIST && ::stat(file.c_str(), &status) == 0 && status.st_nlink == 2) return 0;
  errno = reason;
  return -1;
}

}  // namespace mm::data
