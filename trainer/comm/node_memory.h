// SPDX-License-Identifier: Apache-2.0
// Memory that ranks of one node read in place of messages.
//
// An owner moves pages of its own into a memory file, at the same addresses, and tells all ranks its process id, the number of
// the open file and the file's random name. A rank on the same node opens it through /proc, which works for processes of one
// user, checks the name, since a process id says nothing on another machine, and maps it for reading. Then every rank tells
// whose memory it has mapped, and only with these ranks does the owner replace messages by a place in the file. Where any of
// this does not work, messages go as ever.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace mm::comm {

struct Place {
  uint64_t region = 0, offset = 0, bytes = 0;
};

class NodeMemory {
 public:
  NodeMemory() = default;
  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  // Moves whole pages of private memory, which keep their address and contents. What to tell; "" where it did not work.
  std::string offer(void* data, size_t bytes);
  // Element r of `offers` is what rank r told. Returns whose memory was mapped, for confirm().
  std::string map(std::span<const std::string> offers, int own_rank);
  void confirm(const void* data, std::span<const std::string> mapped, int own_rank);
  // The owner no longer uses what it offered under this address.
  void forget(const void* data);

  // Where the peer finds these bytes, if it has mapped them.
  std::optional<Place> place(int peer, const void* data, size_t bytes) const;
  // Throws an Error without place for one that the peer has not shared.
  const void* find(int peer, const Place& place) const;

 private:
  struct Own {
    uint64_t region;
    const std::byte* data;
    size_t bytes;
    int fd;
    std::vector<bool> mapped_by;
  };
  struct Mapped {
    const std::byte* data;
    size_t bytes;
  };
  uint64_t regions_ = 0;
  std::vector<Own> own_;
  std::map<std::pair<int, uint64_t>, Mapped> mapped_;  // by rank and region
};

}  // namespace mm::comm
