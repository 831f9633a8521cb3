// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/audio/sound.h"

#include <fmt/format.h>

#include <cmath>

#include "common/error.h"

namespace mm::data {

void check_sound(int64_t rate, int64_t channels, int64_t samples, const SoundLimits& limits) {
  if (rate < 1 || rate > 1'000'000) throw data_error(fmt::format("a rate of {} samples a second", rate));
  if (channels < 1 || channels > 64) throw data_error(fmt::format("{} channels", channels));
  if (samples > limits.samples) throw data_error(fmt::format("{} samples are more than the limit of {}", samples, limits.samples));
}

Sound decode_sound(std::string_view bytes, const SoundLimits& limits) {
  if (bytes.empty()) throw data_error("empty file");
  Sound sound;
  if (bytes.size() >= 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WAVE")
    sound = decode_wav(bytes, limits);
  else if (bytes.starts_with("fLaC"))
    sound = decode_flac(bytes, limits);
  else
    throw data_error("neither WAV nor FLAC");
  if (sound.samples.empty()) throw data_error("no samples");
  for (size_t i = 0; i < sound.samples.size(); ++i)
    if (!std::isfinite(sound.samples[i]))
      throw data_error(fmt::format("sample {} is no finite number", i / static_cast<size_t>(sound.channels)));
  return sound;
}

bool is_sound_name(std::string_view name) {
  const size_t dot = name.rfind('.');
  std::string last(dot == std::string_view::npos ? name : name.substr(dot + 1));
  for (char& c : last)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return last == "wav" || last == "flac";
}

}  // namespace mm::data
