// SPDX-License-Identifier: Apache-2.0
// make fuzz-checkpoint: libFuzzer on every reader of bytes from outside. The first byte chooses the reader. What is accepted
// must keep what its header promises; all else must be an Error or a BadStep.
#include <cstdlib>
#include <string>

#include "checkpoint/box.h"
#include "checkpoint/epochs.h"
#include "checkpoint/hash.h"
#include "checkpoint/index.h"
#include "checkpoint/manifest.h"
#include "common/error.h"
#include "common/key_values.h"
#include "common/safetensors/header.h"

namespace {

using namespace mm;
using namespace mm::checkpoint;

void require(bool holds) {
  if (!holds) std::abort();
}

void read_index(const std::string& text) {
  constexpr uint64_t size = 1 << 20, hashes = 64;
  const RankIndex index = decode_index(text, size, hashes, "fuzz");
  for (const Entry& e : index.entries) {
    const uint64_t blocks = e.blocks().count();
    require(blocks <= hashes && e.first_block <= hashes - blocks);
    require(e.compressed || (e.bytes() <= size && e.offset <= size - e.bytes()));
    require(e.frames.size() == (e.compressed ? blocks : 0));
    uint64_t spanned = 0;
    for (uint64_t k = 0; k < blocks; ++k) {
      const Range stored = e.stored(k), span = e.blocks().span(k);
      require(stored.begin < stored.end && stored.end <= size);
      require(span.begin == spanned && span.end > span.begin && span.end - span.begin <= block_bytes);
      require(e.blocks().at(span.begin) == k && e.blocks().at(span.end - 1) == k);
      spanned = span.end;
    }
    require(spanned == e.bytes());
    require(lies_within(e.box, e.global_shape));
  }
  uint64_t at = 0;
  for (const Range& r : structure_ranges(index.entries, size)) {
    require(r.begin >= at && r.end > r.begin && r.end <= size);
    at = r.end;
  }
  require(encode(index).size() == text.size());
}

void read_safetensors(const std::string& text) {
  constexpr uint64_t data = 1 << 16;
  const auto tensors = safetensors::parse_header(text, 8 + text.size(), data, "fuzz");
  uint64_t sum = 0;
  for (const auto& [name, info] : tensors) {
    require(info.begin >= 8 + text.size() && info.end <= 8 + text.size() + data && info.begin <= info.end);
    sum += info.end - info.begin;
  }
  require(sum == data);
}

void read_manifest_text(const std::string& text) {
  Manifest m;
  m.writer = "0123456789abcdef";
  // With a hash that holds, so that what comes behind it is reached.
  const std::string good = text_of(m);
  const size_t tail = good.rfind("\"xxh3_128\"");
  parse_manifest(text, "fuzz");
  parse_manifest(text + good.substr(tail), "fuzz");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0] % 5) {
      case 0:
        read_index("mmindex2" + text);
        break;
      case 1:
        read_safetensors(text);
        break;
      case 2:
        for (const auto& [name, file] : safetensors::parse_index(text, "fuzz")) require(file.find('/') == std::string::npos);
        break;
      case 3:
        read_manifest_text(text);
        break;
      case 4:
        parse_manifest_body(text, "fuzz");
        break;
    }
  } catch (const Error&) {
  } catch (const BadStep&) {
  }
  return 0;
}
