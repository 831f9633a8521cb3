// SPDX-License-Identifier: Apache-2.0
// One block of payload as a Blosc frame: bytes shuffled by their place in the element, then zstd. It is what HDF5's filter 32001
// makes of a chunk. Lossless. From any thread; the frame of the same bytes is the same everywhere with one version of Blosc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mm::checkpoint {

inline constexpr unsigned frame_filter = 32001;  // as registered with the HDF Group

// The filter's parameters, which its readers want beside the frames: of chunks of so many bytes.
std::vector<unsigned> frame_parameters(size_t element_bytes, uint64_t chunk_bytes);

// Replaces what is in `frame`.
void make_frame(const char* data, size_t bytes, size_t element_bytes, std::vector<char>& frame);

// Fills `bytes` bytes at `target`. What is wrong with the frame, empty where nothing is: it is none, or of another length than
// that, whatever its header asks for.
std::string open_frame(const char* frame, size_t frame_bytes, char* target, size_t bytes);

}  // namespace mm::checkpoint
