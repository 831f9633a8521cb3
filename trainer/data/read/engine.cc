// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/read/engine.h"

#include <liburing.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <thread>
#include <vector>

#include "trainer/data/read/faults.h"

namespace mm::data {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t largest_read = size_t{1} << 30;

Fault fault_of(const FileRead& r) {
  return ask_fault({Op::read, *r.path, r.offset + static_cast<int64_t>(r.done), r.to.size() - r.done});
}

void read_plainly(FileRead& r) {
  while (r.done < r.to.size() && r.error == 0) {
    const Fault fault = fault_of(r);
    std::this_thread::sleep_for(fault.delay);
    if (fault.error == EINTR) continue;
    if (fault.error != 0) {
      r.error = fault.error;
      return;
    }
    const ssize_t n = ::pread(r.fd, r.to.data() + r.done, std::min(r.to.size() - r.done, fault.at_most), r.offset + static_cast<int64_t>(r.done));
    if (n < 0 && errno != EINTR) r.error = errno;
    if (n == 0) return;
    if (n > 0) r.done += static_cast<size_t>(n);
  }
}

}  // namespace

struct ReadEngine::Ring {
  io_uring ring{};
  unsigned depth = 0;
  bool made = false;

  explicit Ring(unsigned wanted) : depth(wanted), made(::io_uring_queue_init(wanted, &ring, 0) == 0) {}
  ~Ring() {
    if (made) ::io_uring_queue_exit(&ring);
  }
};

ReadEngine::ReadEngine(Kind kind, unsigned depth) {
  if (kind == Kind::automatic) ring_ = std::make_unique<Ring>(depth);
  // Denied by a seccomp filter or the sysctl, or not there: then without.
  if (ring_ && !ring_->made) ring_.reset();
}

ReadEngine::~ReadEngine() = default;

void ReadEngine::run(std::span<FileRead> reads) {
  if (!ring_ || reads.size() == 1) {
    for (FileRead& r : reads) read_plainly(r);
    return;
  }
  std::vector<Clock::time_point> ready(reads.size());
  std::deque<size_t> waiting, prepared;  // not yet, and not quite, with the kernel
  for (size_t i = 0; i < reads.size(); ++i) waiting.push_back(i);
  size_t flying = 0;
  bool broken = false;
  io_uring_cqe* landed = nullptr;
  // The kernel writes into the buffers of what flies: nothing leaves this loop before all of it has landed.
  while (flying > 0 || (!broken && !(waiting.empty() && prepared.empty()))) {
    while (!broken && !waiting.empty() && flying + prepared.size() < ring_->depth) {
      io_uring_sqe* entry = ::io_uring_get_sqe(&ring_->ring);
      if (entry == nullptr) break;
      const size_t i = waiting.front();
      waiting.pop_front();
      prepared.push_back(i);
      FileRead& r = reads[i];
      const Fault fault = fault_of(r);
      ready[i] = Clock::now() + fault.delay;
      r.error = fault.error;
      if (r.error != 0)
        ::io_uring_prep_nop(entry);
      else
        ::io_uring_prep_read(entry, r.fd, r.to.data() + r.done, static_cast<unsigned>(std::min({r.to.size() - r.done, fault.at_most, largest_read})),
                             static_cast<uint64_t>(r.offset) + r.done);
      ::io_uring_sqe_set_data64(entry, i);
    }
    const int submitted = broken ? ::io_uring_wait_cqe(&ring_->ring, &landed) : ::io_uring_submit_and_wait(&ring_->ring, 1);
    if (submitted < 0 && !broken && submitted != -EINTR && submitted != -EAGAIN && submitted != -EBUSY) {
      broken = true;
      waiting.insert(waiting.end(), prepared.begin(), prepared.end());
      prepared.clear();
    }
    for (int k = 0; k < submitted && !prepared.empty(); ++k) prepared.pop_front(), ++flying;
    while (flying > 0 && ::io_uring_peek_cqe(&ring_->ring, &landed) == 0) {
      const size_t i = ::io_uring_cqe_get_data64(landed);
      const int result = landed->res;
      ::io_uring_cqe_seen(&ring_->ring, landed);
      --flying;
      FileRead& r = reads[i];
      std::this_thread::sleep_until(ready[i]);
      if (r.error == EINTR) {
        r.error = 0;
        waiting.push_front(i);
      }
      if (r.error != 0 || result == 0) continue;
      if (result > 0) r.done += static_cast<size_t>(result);
      else if (result != -EINTR && result != -EAGAIN) r.error = -result;
      if (r.error == 0 && r.done < r.to.size()) waiting.push_front(i);
    }
  }
  for (const size_t i : waiting) read_plainly(reads[i]);
  if (broken) ring_.reset();
}

}  // namespace mm::data
