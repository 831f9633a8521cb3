// SPDX-License-Identifier: Apache-2.0
// Every file operation of a checkpoint goes through here: each result is checked, interrupted and short ones are continued, and
// a failure names operation, path and reason. A hook sees each operation before it happens: it can record it, with the bytes,
// and can make it fail or fall short. What a hook has recorded is enough to build the folder again as a crash may leave it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/files.h"

namespace mm::checkpoint::io {

enum class Op {
  open,
  create,
  allocate,
  write,
  read,
  sync,
  close,
  make_folder,
  sync_folder,
  list,
  rename,
  exchange,
  link,
  remove
};

struct Operation {
  Op op = Op::open;
  const std::string& path;
  const std::string& to;       // of rename, exchange and link
  uint64_t offset = 0;         // of write and read
  const char* data = nullptr;  // of write
  uint64_t bytes = 0;          // of write, read and allocate
};
struct Fault {
  int error = 0;              // an errno: the operation does not happen and fails with it
  size_t at_most = SIZE_MAX;  // of a write or read: bytes that this one call moves
};
using Hook = std::function<Fault(const Operation&)>;
// Before threads that do file operations start. An empty hook is none.
void set_hook(Hook hook);

// An operation that failed: `number` is the errno.
struct Failure : Error {
  Failure(const std::string& what, int errno_value);
  // Of a read: the file is missing, too short or no file, which will be so the next time too; not a disk or network that failed
  // just now.
  bool is_of_content() const;
  int number;
};

class File {
 public:
  static File create(const std::string& path);  // must not exist
  static File open(const std::string& path);    // for reading; a regular file, else a Failure with EINVAL
  // A file that has no path, such as a memfd; `name` is for messages.
  static File adopt(UniqueFd fd, std::string name) { return File(std::move(fd), std::move(name)); }
  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  uint64_t size() const;
  // Reserves the space and makes the file that long, so that a full disk shows before anything is written. Where the file
  // system cannot reserve, only the length is set.
  void allocate(uint64_t bytes);
  void write(const void* data, size_t bytes, uint64_t offset);
  // Has the kernel start to write what has been written there, so that fsync finds less to do. A hint.
  void start_writeback(uint64_t offset, uint64_t bytes) const noexcept;
  // All of them; a file that ends before is a Failure with ENODATA.
  void read(void* data, size_t bytes, uint64_t offset) const;
  // Has the kernel fetch what will be read soon. A hint.
  void will_need(uint64_t offset, uint64_t bytes) const noexcept;
  void sync();
  void close();

 private:
  File(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  UniqueFd fd_;
  std::string path_;
};

// Writes a whole new file and fsyncs it.
void write_file(const std::string& path, const std::string& content);
// A whole regular file of at most `limit` bytes; a larger one is a Failure with EFBIG.
std::string read_file(const std::string& path, uint64_t limit);
// One folder, whose parent is there; false where it existed.
bool make_folder(const std::string& path);
void sync_folder(const std::string& path);
std::vector<std::string> list_folder(const std::string& path);  // names without . and .., sorted
bool exists(const std::string& path);
bool is_folder(const std::string& path);
void rename(const std::string& from, const std::string& to);
// Gives a file another name; false where that name is taken. In one step, on network file systems too.
bool link(const std::string& from, const std::string& to);
// Swaps two folders in one step; false where the file system cannot.
bool exchange(const std::string& a, const std::string& b);
// A folder and what is in it; nothing there is no error. Links are removed, not followed.
void remove_tree(const std::string& path);

}  // namespace mm::checkpoint::io
