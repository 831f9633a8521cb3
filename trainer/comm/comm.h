// SPDX-License-Identifier: Apache-2.0
// Collectives between the ranks of a group. Sums are taken in rank order, so that results do not depend on where ranks run.
// Every wait is passive (an idle rank sleeps) and has a deadline; a peer that is late or gone is an Error with exit status 76
// that names the collective, the rank, its node and the phase. After such an Error the group is of no more use.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace mm::comm {

// Elements [begin, end) of n that rank r of `ranks` owns: equal parts, the first n % ranks one longer.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};
Range part_of(int64_t n, int rank, int ranks);

inline constexpr std::chrono::milliseconds default_deadline{60'000};

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The name of the node that a rank runs on.
  virtual const std::string& node(int of_rank) const = 0;
  // data[part_of(n, rank, size)] becomes the sum over ranks; the rest is left undefined.
  virtual void reduce_scatter(double* data, int64_t n) = 0;
  virtual void reduce_scatter(float* data, int64_t n) = 0;
  // Every rank's part is copied to all.
  virtual void all_gather_parts(double* data, int64_t n) = 0;
  virtual void all_gather_parts(float* data, int64_t n) = 0;
  // Small vectors: sums in rank order, the same bits on all ranks.
  virtual std::vector<double> all_reduce(const std::vector<double>& mine) = 0;
  virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
  virtual void barrier() = 0;
  // What the rank is doing, for messages, and how late a peer may be while it lasts.
  void set_phase(std::string phase, std::chrono::milliseconds deadline = default_deadline) {
    phase_ = std::move(phase);
    deadline_ = deadline;
  }
  uint64_t bytes_sent() const { return bytes_sent_; }
  double wait_seconds() const { return wait_seconds_; }

 protected:
  std::string phase_ = "start";
  std::chrono::milliseconds deadline_ = default_deadline;
  uint64_t bytes_sent_ = 0;
  double wait_seconds_ = 0;
};

std::unique_ptr<Comm> self_comm();
// A group of threads of this process: element r is for the thread that plays rank r.
std::vector<std::unique_ptr<Comm>> thread_comms(int ranks);

}  // namespace mm::comm
