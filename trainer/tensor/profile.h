// SPDX-License-Identifier: Apache-2.0
// Where the time goes, operation by operation, for whoever keeps a profile. Operations are timed on the thread that calls them,
// which is the one that waits for the pool; without a profile a timer costs one look at a thread's variable.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

namespace mm::tensor {

struct Profile {
  struct Entry {
    std::string_view name;
    int64_t calls = 0;
    double seconds = 0, flops = 0;
  };
  std::vector<Entry> entries;
  void add(std::string_view name, double seconds, double flops);
};

// Of this thread; null: none is kept.
void set_profile(Profile* profile);

class Timed {
 public:
  // `name` is a literal; `flops` are the floating-point operations that are carried out.
  explicit Timed(std::string_view name, double flops = 0);
  ~Timed();
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  Profile* profile_;
  std::string_view name_;
  double flops_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace mm::tensor
