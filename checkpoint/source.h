// SPDX-License-Identifier: Apache-2.0
// Where the bytes of a rank file come from. Of one file there may be several copies: in the memory or on the disk of this node,
// on the shared file system, on another node. They are the same bytes, so that where one cannot be read or does not verify the
// next one is asked.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "checkpoint/io.h"

namespace mm::checkpoint {

class Source {
 public:
  virtual ~Source() = default;
  virtual uint64_t size() const = 0;
  // All of them. From any thread. Throws io::Failure.
  virtual void read(void* data, size_t bytes, uint64_t offset) = 0;
  virtual void will_need(uint64_t, uint64_t) noexcept {}
};

struct Place {
  std::string name;                               // for messages: a path, or what and on which node
  std::function<std::unique_ptr<Source>()> open;  // throws io::Failure
};

Place place_of_file(const std::string& path);

}  // namespace mm::checkpoint
