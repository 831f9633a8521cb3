// SPDX-License-Identifier: Apache-2.0
// Sound files: WAV (PCM of 8, 16, 24 and 32 bits, float of 32 and 64, also in the extensible form) and FLAC, to samples in [-1, 1].
// What a header claims is believed only as far as the file reaches. Refused with a reason: another kind of file, no samples, a
// length that does not fit the file, samples that are no finite numbers, a bad checksum.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mm::data {

struct Sound {
  int rate = 0;  // samples a second
  int channels = 0;
  std::vector<float> samples;  // of one channel after another at each moment

  int64_t moments() const { return channels > 0 ? static_cast<int64_t>(samples.size()) / channels : 0; }
};

struct SoundLimits {
  int64_t samples = 60'000'000;  // of all channels: an hour of 16 kHz
};

// The format is told from the content. Throws a data Error with the reason (the caller names the file).
Sound decode_sound(std::string_view bytes, const SoundLimits& limits = {});
Sound decode_wav(std::string_view bytes, const SoundLimits& limits);
Sound decode_flac(std::string_view bytes, const SoundLimits& limits);
bool is_sound_name(std::string_view name);  // "wav", "x.FLAC"

// Throws unless rate, channels and the number of samples are within what is taken.
void check_sound(int64_t rate, int64_t channels, int64_t samples, const SoundLimits& limits);

}  // namespace mm::data
