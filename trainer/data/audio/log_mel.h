// SPDX-License-Identifier: Apache-2.0
// The log-mel spectrogram of Whisper (Radford et al., "Robust speech recognition via large-scale weak supervision", 2022, and its
// published code): 16 kHz; windows of 400 samples every 160, periodic Hann, the ends mirrored, the last frame left out; power
// spectrum; 80 triangular filters of Slaney's mel scale from 0 to 8 kHz, each of area one; log10, not below 1e-10; not more than
// 8 below its largest value; (x + 4) / 4.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/data/audio/sound.h"

namespace mm::data {

inline constexpr int mel_rate = 16000, mel_bands = 80;

struct LogMel {
  int64_t frames = 0;         // one for each 10 ms
  std::vector<float> values;  // mel_bands x frames, row-major
};

// Channels are averaged; another rate is brought to 16 kHz by a windowed sinc. Throws a data Error where the sound is shorter than
// the mirrored half window (12.5 ms), its power overflows, or its rate stands in no small ratio to 16 kHz (as 44,101 does not).
LogMel log_mel(const Sound& sound);

// One channel at 16 kHz.
std::vector<float> mono_16k(const Sound& sound);

}  // namespace mm::data
