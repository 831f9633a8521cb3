// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/frame.h"

#include <blosc.h>
#include <fmt/format.h>

#include "common/error.h"

namespace mm::checkpoint {
namespace {

constexpr int level = 1;  // higher ones are slower and, on weights, no smaller
constexpr unsigned filter_revision = 2;

}  // namespace

std::vector<unsigned> frame_parameters(size_t element_bytes, uint64_t chunk_bytes) {
  return {filter_revision,
          BLOSC_VERSION_FORMAT,
          static_cast<unsigned>(element_bytes),
          static_cast<unsigned>(chunk_bytes),
          static_cast<unsigned>(level),
          BLOSC_SHUFFLE,
          BLOSC_ZSTD};
}

void make_frame(const char* data, size_t bytes, size_t element_bytes, std::vector<char>& frame) {
  frame.resize(bytes + BLOSC_MAX_OVERHEAD);
  const int made = blosc_compress_ctx(level, BLOSC_SHUFFLE, element_bytes, bytes, data, frame.data(), frame.size(),
                                      BLOSC_ZSTD_COMPNAME, 0, 1);
  if (made <= 0) throw Error(exit_status::internal, fmt::format("checkpoint: Blosc: compress {} bytes: error {}", bytes, made));
  frame.resize(static_cast<size_t>(made));
}

std::string open_frame(const char* frame, size_t frame_bytes, char* target, size_t bytes) {
  size_t holds = 0;
  if (blosc_cbuffer_validate(frame, frame_bytes, &holds) != 0) return "it is no Blosc frame of that length";
  if (holds != bytes) return fmt::format("its frame would become {} bytes, not {}", holds, bytes);
  const int opened = blosc_decompress_ctx(frame, target, bytes, 1);
  if (opened < 0 || static_cast<size_t>(opened) != bytes) return fmt::format("its frame does not open: error {}", opened);
  return "";
}

}  // namespace mm::checkpoint
