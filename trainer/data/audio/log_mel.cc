// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/audio/log_mel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "common/error.h"

namespace mm::data {
namespace {

constexpr int window = 400, hop = 160, bins = window / 2 + 1;
constexpr int64_t most_phases = 640;  // 11,025 Hz
constexpr double pi = std::numbers::pi;

// Linear up to 1 kHz, 15 mels there; then logarithmic, 27 mels for each factor of 6.4.
double mel_of(double hz) {
  return hz < 1000 ? hz * 3 / 200 : 15 + std::log(hz / 1000) * 27 / std::log(6.4);
}
double hz_of(double mel) {
  return mel < 15 ? mel * 200 / 3 : 1000 * std::exp((mel - 15) * std::log(6.4) / 27);
}

struct Tables {
  std::vector<float> cosine, sine;  // bins x window, with the window in them
  std::vector<float> filters;       // mel_bands x bins

  Tables() : cosine(size_t{bins} * window), sine(cosine.size()), filters(size_t{mel_bands} * bins) {
    for (int k = 0; k < bins; ++k)
      for (int n = 0; n < window; ++n) {
        const double hann = 0.5 - 0.5 * std::cos(2 * pi * n / window), angle = 2 * pi * ((k * n) % window) / window;
        const auto at = static_cast<size_t>(k * window + n);
        cosine[at] = static_cast<float>(hann * std::cos(angle));
        sine[at] = static_cast<float>(hann * std::sin(angle));
      }
    const double most = mel_of(mel_rate / 2.0);
    for (int m = 0; m < mel_bands; ++m) {
      const double low = hz_of(most * m / (mel_bands + 1)), middle = hz_of(most * (m + 1) / (mel_bands + 1)),
                   high = hz_of(most * (m + 2) / (mel_bands + 1));
      for (int k = 0; k < bins; ++k) {
        const double hz = static_cast<double>(k) * mel_rate / window;
        const double height = std::min((hz - low) / (middle - low), (high - hz) / (high - middle));
        filters[static_cast<size_t>(m * bins + k)] = static_cast<float>(std::max(0.0, height) * 2 / (high - low));
      }
    }
  }
};
const Tables& tables() {
  static const Tables all;
  return all;
}

void power_spectrum(const float* samples, std::vector<float>& power) {
  const Tables& t = tables();
  for (size_t k = 0; k < bins; ++k) {
    float real = 0, imaginary = 0;
    const float *c = &t.cosine[k * window], *s = &t.sine[k * window];
    for (size_t n = 0; n < window; ++n) real += c[n] * samples[n], imaginary += s[n] * samples[n];
    power[k] = real * real + imaginary * imaginary;
  }
}

// A sinc of 32 zero crossings to each side under a Hann window, cut off at the lower of the two Nyquist frequencies. The filters of
// each phase are made once: the rates' ratio is p / q in lowest terms, and output i lies at phase (i p) mod q.
std::vector<float> resample(const std::vector<float>& in, int rate) {
  constexpr int crossings = 32;
  const int64_t common = std::gcd(rate, mel_rate), p = rate / common, q = mel_rate / common;
  if (q > most_phases) throw data_error(fmt::format("a rate of {} is not supported: it stands in no small ratio to 16000", rate));
  const double cut = std::min(1.0, static_cast<double>(mel_rate) / rate);
  const auto reach = static_cast<int64_t>(std::ceil(crossings / cut));
  const auto taps = static_cast<size_t>(2 * reach + 1), phases = static_cast<size_t>(q);
  std::vector<float> filters(taps * phases);
  for (size_t phase = 0; phase < phases; ++phase)
    for (size_t k = 0; k < taps; ++k) {
      const double x = static_cast<double>(k) - static_cast<double>(reach) - static_cast<double>(phase) / static_cast<double>(q);
      const double scaled = pi * x * cut, edge = x * cut / crossings;
      const double sinc = std::abs(scaled) < 1e-12 ? 1 : std::sin(scaled) / scaled;
      filters[phase * taps + k] = static_cast<float>(std::abs(edge) >= 1 ? 0 : cut * sinc * (0.5 + 0.5 * std::cos(pi * edge)));
    }
  const auto length = static_cast<int64_t>(in.size()), count = (length * q + p - 1) / p;
  std::vector<float> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t centre = i * p / q;
    const float* filter = &filters[static_cast<size_t>(i * p % q) * taps];
    double sum = 0;
    for (int64_t k = std::max<int64_t>(0, centre - reach); k <= std::min(length - 1, centre + reach); ++k)
      sum += static_cast<double>(filter[k - centre + reach]) * in[static_cast<size_t>(k)];
    out[static_cast<size_t>(i)] = static_cast<float>(sum);
  }
  return out;
}

}  // namespace

std::vector<float> mono_16k(const Sound& sound) {
  const auto channels = static_cast<size_t>(sound.channels);
  std::vector<float> mono(static_cast<size_t>(sound.moments()));
  for (size_t i = 0; i < mono.size(); ++i) {
    double sum = 0;
    for (size_t c = 0; c < channels; ++c) sum += sound.samples[i * channels + c];
    mono[i] = static_cast<float>(sum / sound.channels);
  }
  return sound.rate == mel_rate ? mono : resample(mono, sound.rate);
}

LogMel log_mel(const Sound& sound) {
  const std::vector<float> samples = mono_16k(sound);
  const auto length = static_cast<int64_t>(samples.size());
  if (length <= window / 2) throw data_error(fmt::format("{} samples at 16 kHz are too few for a spectrum", length));
  LogMel mel;
  mel.frames = length / hop;
  mel.values.resize(size_t{mel_bands} * static_cast<size_t>(mel.frames));
  std::vector<float> frame(window), power(bins);
  float largest = -10;
  for (int64_t f = 0; f < mel.frames; ++f) {
    for (int64_t n = 0; n < window; ++n) {
      const int64_t at = std::abs(f * hop + n - window / 2);  // mirrored at the first and the last sample
      frame[static_cast<size_t>(n)] = samples[static_cast<size_t>(at < length ? at : 2 * (length - 1) - at)];
    }
    power_spectrum(frame.data(), power);
    for (size_t m = 0; m < mel_bands; ++m) {
      const float* filter = &tables().filters[m * bins];
      const float sum = std::inner_product(power.begin(), power.end(), filter, 0.0f);
      if (!std::isfinite(sum)) throw data_error(fmt::format("the power of frame {} overflows", f));
      float& value = mel.values[m * static_cast<size_t>(mel.frames) + static_cast<size_t>(f)];
      value = std::log10(std::max(sum, 1e-10f));
      largest = std::max(largest, value);
    }
  }
  for (float& value : mel.values) value = (std::max(value, largest - 8) + 4) / 4;
  return mel;
}

}  // namespace mm::data
