// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/node_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstring>
#include <sstream>

#include "common/error.h"

namespace mm::comm {
namespace {

std::string random_name() {
  uint64_t bits[2] = {};
  if (::getrandom(bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) return "";
  return fmt::format("mm-train-{:016x}{:016x}", bits[0], bits[1]);
}

bool write_all(int fd, const std::byte* data, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    const ssize_t n = ::pwrite(fd, data + at, bytes - at, static_cast<off_t>(at));
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

std::string link_of(const std::string& path) {
  char text[256];
  const ssize_t n = ::readlink(path.c_str(), text, sizeof text);
  return n < 0 ? "" : std::string(text, static_cast<size_t>(n));
}

}  // namespace

NodeMemory::~NodeMemory() {
  for (const Own& own : own_) ::close(own.fd);
  for (const auto& [key, m] : mapped_) ::munmap(const_cast<std::byte*>(m.data), m.bytes);
}

std::string NodeMemory::offer(void* data, size_t bytes) {
  const uint64_t region = regions_++;
  const std::string name = random_name();
  const int fd = name.empty() || bytes == 0 ? -1 : ::memfd_create(name.c_str(), MFD_CLOEXEC);
  if (fd < 0) return "";
  // The file holds all before it takes the place of the pages.
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0 || !write_all(fd, static_cast<const std::byte*>(data), bytes) ||
      ::mmap(data, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    ::close(fd);
    return "";
  }
  own_.push_back({region, static_cast<const std::byte*>(data), bytes, fd, {}});
  return fmt::format("{} {} {} {} {}", region, ::getpid(), fd, name, bytes);
}

std::string NodeMemory::map(std::span<const std::string> offers, int own_rank) {
  std::string mapped;
  for (int r = 0; r < static_cast<int>(offers.size()); ++r) {
    std::istringstream offer(offers[static_cast<size_t>(r)]);
    uint64_t region = 0;
    int pid = 0, number = 0;
    std::string name;
    size_t bytes = 0;
    if (r == own_rank || !(offer >> region >> pid >> number >> name >> bytes)) continue;
    const std::string path = fmt::format("/proc/{}/fd/{}", pid, number);
    if (link_of(path) != fmt::format("/memfd:{} (deleted)", name)) continue;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    void* const data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    if (data == MAP_FAILED) continue;
    mapped_[{r, region}] = {static_cast<const std::byte*>(data), bytes};
    mapped += fmt::format("{} ", r);
  }
  return mapped;
}

void NodeMemory::confirm(const void* data, std::span<const std::string> mapped, int own_rank) {
  for (Own& own : own_) {
    if (own.data != data) continue;
    own.mapped_by.assign(mapped.size(), false);
    for (size_t r = 0; r < mapped.size(); ++r) {
      std::istringstream ranks(mapped[r]);
      for (int of = 0; ranks >> of;)
        if (of == own_rank) own.mapped_by[r] = true;
    }
  }
}

void NodeMemory::forget(const void* data) {
  for (const Own& own : own_)
    if (own.data == data) ::close(own.fd);
  std::erase_if(own_, [&](const Own& own) { return own.data == data; });
}

std::optional<Place> NodeMemory::place(int peer, const void* data, size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(data);
  for (const Own& own : own_)
    if (at >= own.data && at + bytes <= own.data + own.bytes) {
      const size_t r = static_cast<size_t>(peer);
      if (r >= own.mapped_by.size() || !own.mapped_by[r]) return {};
      return Place{own.region, static_cast<uint64_t>(at - own.data), bytes};
    }
  return {};
}

const void* NodeMemory::find(int peer, const Place& place) const {
  const auto at = mapped_.find({peer, place.region});
  if (at == mapped_.end() || place.offset > at->second.bytes || place.bytes > at->second.bytes - place.offset)
    throw Error(exit_status::peer_lost, fmt::format("rank {} sent a place in memory that it has not shared", peer));
  return at->second.data + place.offset;
}

}  // namespace mm::comm
