// SPDX-License-Identifier: Apache-2.0
// A lock on a folder of a shared file system, for writers of many nodes: with a lease, so that a dead holder does not block for
// ever, and a number, so that a holder that only seemed dead finds out before it publishes.
//
// Terms have numbers. The file .NAME.lock.K belongs to term K; the lock is held by the owner of the highest number. A term
// begins with link(2) of a private file to the next number's name, which succeeds for one writer only. A file is written by its
// owner alone, through the descriptor that it opened: a beat count that goes up several times in a lease, and at last "released".
// So nobody ever overwrites what another one wrote. A writer that waits watches the highest file: released, or owned by a process
// of this machine that is gone, or without a new beat for a whole lease by the waiter's own clock (no two clocks are compared):
// then the next term may begin. A holder that was stopped for long sees the higher number as soon as it looks, and stops being a
// holder: check() before each thing that others will see. The last step of a publication is a link(2) as well (version.h), which
// settles what happens between a check and that step. Files of earlier terms are removed by the next owner; the highest stays.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/files.h"

namespace mm::data {

class FolderLock {
 public:
  struct Options {
    std::string purpose = {};  // for the messages of those who wait: "mm-data index"
    std::chrono::milliseconds lease = std::chrono::seconds(30);
    std::chrono::milliseconds deadline = std::chrono::hours(24);  // of the wait
    std::function<void(const std::string& holder)> waiting = {};  // told who holds it, once for each holder
  };
  // Waits until the lock is held. Throws an Error where the folder cannot be written, or at the deadline.
  FolderLock(const std::string& folder, const std::string& name, Options options);
  ~FolderLock();  // releases it
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  int64_t term() const { return term_; }
  bool held() const;
  // Throws an Error (70) that names the new holder where the lock was lost.
  void check() const;

 private:
  bool try_begin(int64_t term);
  void beat();
  void write_state(const std::string& state);

  const std::string folder_, name_;
  const Options options_;
  int64_t term_ = 0;
  UniqueFd file_;
  int64_t beats_ = 0;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopping_ = false;
  std::thread beating_;
};

}  // namespace mm::data
