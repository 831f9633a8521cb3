// SPDX-License-Identifier: Apache-2.0
// Random bytes for the processes of a job, in memory that is neither swapped nor dumped, and wiped when they go.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace mm::agent {

class Secret {
 public:
  static constexpr size_t bytes = 32;
  // Throws an Error where memory cannot be locked.
  Secret();
  std::string hex() const;

 private:
  struct Wipe {
    void operator()(unsigned char* page) const;
  };
  std::unique_ptr<unsigned char, Wipe> page_;
};

}  // namespace mm::agent
