// SPDX-License-Identifier: Apache-2.0
// A power loss, played: from the operations of a save as the I/O layer reports them, the states that a file system may be in
// afterwards. What a completed fsync covers holds. Of the rest any subset may be there: of the 4 KiB pages of a file's data,
// each whole or torn at a sector, of its changes of length, and of a folder's changes of names. A file system may do less harm
// than this; none that honours fsync does more.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/io.h"

namespace mm::checkpoint::test {

class CrashModel {
 public:
  // Paths below `root` are recorded, from the time that it is made until stop().
  explicit CrashModel(std::string root);
  ~CrashModel();
  void stop();
  // Drops the fsyncs of files with this name from operation `begin` on, as a mistake would; before stop().
  void forget_syncs_of(const std::string& name, size_t begin);
  // Operations so far.
  size_t size();
  // Whether operation `k` fsyncs this folder (path below root).
  bool syncs_folder(size_t k, const std::string& folder) const;

  // What is neither durable nor certain to be lost after the first `prefix` operations: an index for each change.
  struct Pending {
    size_t change;
    bool of_folder;
  };
  std::vector<Pending> pending(size_t prefix) const;
  // Writes the state after the first `prefix` operations to `target`, a new folder: all that is durable, and the pending
  // changes that `keep` wants. `torn` gives the bytes of a page that are kept, counted from its begin, for one that is.
  void build(size_t prefix, const std::function<bool(size_t change)>& keep, const std::function<size_t(size_t change)>& torn,
             const std::string& target) const;

 private:
  struct Operation {
    io::Op op;
    std::string path, to, data;
    uint64_t offset, bytes;
  };
  // One change that reaches the disk as a whole: a page's part, a length, or names of one folder.
  struct Change {
    enum class Kind { data, length, names } kind = Kind::data;
    size_t operation = 0;
    int inode = 0;  // the file or folder
    uint64_t offset = 0;
    std::string data;
    uint64_t length = 0;
    std::vector<std::pair<std::string, int>> names;  // -1: the name is gone
    size_t durable_from = SIZE_MAX;                  // prefixes from here on have it for certain
  };
  void analyse();
  int find(const std::string& path) const;
  void change_names(size_t operation, const std::vector<std::pair<std::string, int>>& paths);
  void write_folder(int inode, const std::map<int, std::map<std::string, int>>& names,
                    const std::map<int, std::string>& contents, const std::string& target, int depth) const;

  std::string root_;
  std::mutex mutex_;
  std::vector<Operation> operations_;
  std::vector<Change> changes_;
  std::vector<bool> is_folder_;      // of each inode; 0 is root
  std::map<std::string, int> live_;  // path -> inode, while analysing
};

}  // namespace mm::checkpoint::test
