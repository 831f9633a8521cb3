// SPDX-License-Identifier: Apache-2.0
#include "agent/local/secret.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"

namespace mm::agent {
namespace {

constexpr size_t page_bytes = 4096;

}  // namespace

void Secret::Wipe::operator()(unsigned char* page) const {
  ::explicit_bzero(page, page_bytes);
  ::munmap(page, page_bytes);
}

Secret::Secret() {
  void* page = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw system_error("agent: a page for a secret", errno);
  page_.reset(static_cast<unsigned char*>(page));
  if (::mlock(page, page_bytes) != 0) throw system_error("agent: lock a page for a secret", errno);
  ::madvise(page, page_bytes, MADV_DONTDUMP);
  if (::getrandom(page, bytes, 0) != static_cast<ssize_t>(bytes)) throw system_error("agent: random bytes", errno);
}

std::string Secret::hex() const {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += fmt::format("{:02x}", page_.get()[i]);
  return text;
}

}  // namespace mm::agent
