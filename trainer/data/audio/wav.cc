// SPDX-License-Identifier: Apache-2.0
// WAV: chunks of a name, a size and content, padded to even sizes; "fmt " says what "data" holds.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <optional>

#include "common/error.h"
#include "trainer/data/audio/sound.h"

namespace mm::data {
namespace {

constexpr uint64_t pcm = 1, ieee_float = 3, extensible = 0xFFFE;

uint64_t number(std::string_view bytes, size_t at, size_t length) {
  uint64_t value = 0;
  for (size_t i = 0; i < length; ++i) value |= uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

struct Layout {
  uint64_t kind = 0, channels = 0, rate = 0, bits = 0;
  size_t sample_bytes() const { return static_cast<size_t>(bits / 8); }
};

Layout read_format(std::string_view chunk) {
  if (chunk.size() < 16) throw data_error("WAV: a fmt chunk that is too short");
  Layout layout{number(chunk, 0, 2), number(chunk, 2, 2), number(chunk, 4, 4), number(chunk, 14, 2)};
  if (layout.kind == extensible) {
    if (chunk.size() < 40) throw data_error("WAV: a fmt chunk that is too short");
    layout.kind = number(chunk, 24, 2);  // the first two bytes of the kind's GUID
  }
  const bool known = (layout.kind == pcm && (layout.bits == 8 || layout.bits == 16 || layout.bits == 24 || layout.bits == 32)) ||
                     (layout.kind == ieee_float && (layout.bits == 32 || layout.bits == 64));
  if (!known) throw data_error(fmt::format("WAV: kind {} with {} bits; PCM of 8 to 32 and float are supported", layout.kind, layout.bits));
  if (number(chunk, 12, 2) != layout.channels * layout.sample_bytes()) throw data_error("WAV: a block size that does not fit its channels");
  return layout;
}

float sample_at(std::string_view data, size_t at, const Layout& layout) {
  const size_t length = layout.sample_bytes();
  const uint64_t raw = number(data, at, length);
  if (layout.kind == ieee_float)
    return length == 4 ? std::bit_cast<float>(static_cast<uint32_t>(raw)) : static_cast<float>(std::bit_cast<double>(raw));
  if (length == 1) return static_cast<float>((static_cast<double>(raw) - 128) / 128);
  const auto value = static_cast<int32_t>(static_cast<uint32_t>(raw << (32 - 8 * length)));
  return static_cast<float>(value * 0x1p-31);
}

}  // namespace

Sound decode_wav(std::string_view bytes, const SoundLimits& limits) {
  std::optional<Layout> layout;
  for (size_t at = 12; bytes.size() - at >= 8;) {
    const std::string_view name = bytes.substr(at, 4);
    const uint64_t size = number(bytes, at + 4, 4);
    at += 8;
    if (size > bytes.size() - at)
      throw data_error(fmt::format("WAV: the chunk at {} claims {} bytes, {} are there", at - 8, size, bytes.size() - at));
    const std::string_view chunk = bytes.substr(at, static_cast<size_t>(size));
    at += std::min(bytes.size() - at, static_cast<size_t>(size + size % 2));
    if (name == "fmt ") layout = read_format(chunk);
    if (name != "data") continue;
    if (!layout) throw data_error("WAV: data before its fmt chunk");
    const size_t length = layout->sample_bytes();
    check_sound(static_cast<int64_t>(layout->rate), static_cast<int64_t>(layout->channels), static_cast<int64_t>(chunk.size() / length), limits);
    if (chunk.size() % (length * layout->channels) != 0)
      throw data_error(fmt::format("WAV: {} bytes of data are no whole number of samples", chunk.size()));
    Sound sound{static_cast<int>(layout->rate), static_cast<int>(layout->channels), {}};
    sound.samples.resize(chunk.size() / length);
    for (size_t i = 0; i < sound.samples.size(); ++i) sound.samples[i] = sample_at(chunk, i * length, *layout);
    return sound;
  }
  throw data_error(layout ? "WAV: no data chunk" : "WAV: no fmt chunk");
}

}  // namespace mm::data
