// SPDX-License-Identifier: Apache-2.0
// Sounds made here, and a log-mel spectrogram of another implementation, frozen by fixtures/log_mel/freeze.py.
#include "trainer/data/audio/sound.h"

#include <FLAC/stream_encoder.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>
#include <random>

#include "common/files.h"
#include "tests/trainer/data/support.h"
#include "trainer/data/audio/log_mel.h"

namespace mm::data {
namespace {

using namespace test;

std::string little(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

std::string wav(int kind, int channels, int bits, const std::string& data, int64_t claimed = -1, bool extensible = false) {
  std::string format = little(static_cast<uint64_t>(extensible ? 0xFFFE : kind), 2) + little(static_cast<uint64_t>(channels), 2) + little(16000, 4) +
                       little(static_cast<uint64_t>(16000 * channels * bits / 8), 4) + little(static_cast<uint64_t>(channels * bits / 8), 2) +
                       little(static_cast<uint64_t>(bits), 2);
  if (extensible) format += little(22, 2) + little(static_cast<uint64_t>(bits), 2) + little(0, 4) + little(static_cast<uint64_t>(kind), 2) + std::string(14, 'g');
  std::string out = "RIFF" + little(0, 4) + "WAVELIST" + little(3, 4) + std::string("abc\0", 4) + "fmt " + little(format.size(), 4) + format;
  return out + "data" + little(claimed < 0 ? data.size() : static_cast<uint64_t>(claimed), 4) + data;
}

std::string floats(const std::vector<float>& values) {
  std::string bytes(values.size() * 4, 0);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// A chirp that any language gives to the same bits: whole numbers, then one division.
std::vector<int32_t> chirp(int64_t count) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<int32_t>((i * i * 7 / 16 + i * 13) % 65536 / 2 - 16384 + (i % 7) * 500));
  return out;
}

std::string flac(const std::vector<int32_t>& samples, int channels) {
  std::string out;
  FLAC__StreamEncoder* encoder = FLAC__stream_encoder_new();
  FLAC__stream_encoder_set_channels(encoder, static_cast<unsigned>(channels));
  FLAC__stream_encoder_set_bits_per_sample(encoder, 16);
  FLAC__stream_encoder_set_sample_rate(encoder, 16000);
  FLAC__stream_encoder_set_total_samples_estimate(encoder, samples.size() / static_cast<size_t>(channels));
  struct Output {
    std::string* bytes;
    size_t at = 0;
  } output{&out};
  FLAC__stream_encoder_init_stream(
      encoder,
      [](const FLAC__StreamEncoder*, const FLAC__byte* bytes, size_t n, uint32_t, uint32_t, void* client) {
        auto& to = *static_cast<Output*>(client);
        if (to.bytes->size() < to.at + n) to.bytes->resize(to.at + n);
        to.bytes->replace(to.at, n, reinterpret_cast<const char*>(bytes), n);
        to.at += n;
        return FLAC__STREAM_ENCODER_WRITE_STATUS_OK;
      },
      [](const FLAC__StreamEncoder*, FLAC__uint64 at, void* client) {
        static_cast<Output*>(client)->at = at;
        return FLAC__STREAM_ENCODER_SEEK_STATUS_OK;
      },
      [](const FLAC__StreamEncoder*, FLAC__uint64* at, void* client) {
        *at = static_cast<Output*>(client)->at;
        return FLAC__STREAM_ENCODER_TELL_STATUS_OK;
      },
      nullptr, &output);
  FLAC__stream_encoder_process_interleaved(encoder, samples.data(), static_cast<unsigned>(samples.size() / static_cast<size_t>(channels)));
  FLAC__stream_encoder_finish(encoder);
  FLAC__stream_encoder_delete(encoder);
  return out;
}

TEST(Sound, EveryKindOfWavGivesItsValues) {
  const std::string cases[] = {
      wav(1, 1, 8, std::string("\x80\xC0\x00", 3)),
      wav(1, 1, 16, little(0, 2) + little(0x4000, 2) + little(0x8000, 2)),
      wav(1, 1, 24, little(0, 3) + little(0x400000, 3) + little(0x800000, 3)),
      wav(1, 1, 32, little(0, 4) + little(0x40000000, 4) + little(0x80000000, 4)),
      wav(1, 1, 16, little(0, 2) + little(0x4000, 2) + little(0x8000, 2), -1, true),
      wav(3, 1, 32, floats({0, 0.5f, -1})),
      wav(3, 1, 64, little(0, 8) + little(0x3FE0000000000000, 8) + little(0xBFF0000000000000, 8)),
  };
  for (const std::string& file : cases) {
    const Sound sound = decode_sound(file);
    EXPECT_EQ(sound.rate, 16000);
    EXPECT_EQ(sound.samples, (std::vector<float>{0, 0.5f, -1}));
  }
  EXPECT_EQ(decode_sound(wav(1, 2, 16, little(1, 2) + little(2, 2))).moments(), 1);
}

TEST(Sound, FlacGivesBackWhatWentIn) {
  for (const int channels : {1, 2}) {
    const std::vector<int32_t> samples = chirp(9000);
    const Sound sound = decode_sound(flac(samples, channels));
    ASSERT_EQ(sound.samples.size(), samples.size());
    EXPECT_EQ(sound.channels, channels);
    for (size_t i = 0; i < samples.size(); ++i) ASSERT_EQ(sound.samples[i], static_cast<float>(samples[i]) / 32768);
  }
}

TEST(Sound, WhatCannotBeUsedIsRefusedWithItsReason) {
  const auto reason = [](const std::string& file) { return error_of(exit_status::data, [&] { decode_sound(file); }); };
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(reason(""), "empty file");
  EXPECT_EQ(reason("MThd"), "neither WAV nor FLAC");
  EXPECT_EQ(reason(wav(1, 1, 16, "")), "no samples");
  EXPECT_EQ(reason(wav(3, 1, 32, floats({0, nan}))), "sample 1 is no finite number");
  EXPECT_EQ(reason(wav(3, 2, 32, floats({0, 0, 0, infinity}))), "sample 1 is no finite number");
  EXPECT_NE(reason(wav(1, 1, 16, "abcd", 400)).find("claims 400 bytes, 4 are there"), std::string::npos);
  EXPECT_NE(reason(wav(1, 1, 16, "abcd", 0xFFFFFFFF)).find("claims 4294967295 bytes"), std::string::npos);
  EXPECT_NE(reason(wav(1, 1, 16, "abc")).find("no whole number of samples"), std::string::npos);
  EXPECT_NE(reason(wav(2, 1, 16, "abcd")).find("kind 2"), std::string::npos);
  EXPECT_NE(reason(wav(1, 0, 16, "abcd")).find("0 channels"), std::string::npos);
  EXPECT_NE(reason(wav(1, 1, 16, "abcd").substr(0, 30)).find("WAV"), std::string::npos);
  const std::string good = flac(chirp(9000), 1);
  EXPECT_NE(reason(good.substr(0, good.size() / 2)).find("FLAC"), std::string::npos);
  EXPECT_NE(error_of(exit_status::data, [&] { decode_sound(good, {.samples = 100}); }).find("more than the limit"), std::string::npos);
  std::string changed = good;
  changed[changed.size() / 2] = static_cast<char>(changed[changed.size() / 2] ^ 1);
  EXPECT_NE(reason(changed).find("FLAC"), std::string::npos);
}

TEST(Sound, DamagedFilesNeverGiveOtherThanSamplesOrAReason) {
  std::mt19937 random(3);
  const std::string files[] = {wav(1, 2, 16, little(0x12345678, 4) + std::string(400, 'x')), wav(3, 1, 32, floats(std::vector<float>(100, 0.25f)), -1, true), flac(chirp(3000), 2)};
  int refused = 0;
  for (const std::string& file : files)
    for (int round = 0; round < 300; ++round) {
      std::string bad = file;
      for (unsigned n = 1 + random() % 4; n > 0; --n) bad[random() % std::min<size_t>(bad.size(), round % 2 == 0 ? 100 : bad.size())] = static_cast<char>(random());
      if (round % 5 == 0) bad.resize(random() % bad.size());
      try {
        const Sound sound = decode_sound(bad);
        EXPECT_EQ(sound.samples.size() % static_cast<size_t>(sound.channels), 0u);
      } catch (const Error& error) {
        EXPECT_EQ(error.status, exit_status::data);
        ++refused;
      }
    }
  EXPECT_GT(refused, 300);
}

Sound sound_of(const std::vector<int32_t>& samples, int rate) {
  Sound sound{rate, 1, {}};
  for (const int32_t s : samples) sound.samples.push_back(static_cast<float>(s) / 32768);
  return sound;
}

TEST(LogMel, EqualsTheFrozenOne) {
  const auto frozen = nlohmann::json::parse(read_file("tests/trainer/data/fixtures/log_mel/expected.json"));
  const auto values = frozen["values"].get<std::vector<double>>();
  const LogMel mel = log_mel(sound_of(chirp(frozen["samples"].get<int64_t>()), 16000));
  EXPECT_EQ(mel.frames, frozen["frames"].get<int64_t>());
  ASSERT_EQ(mel.values.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(mel.values[i], values[i], 2e-4) << i;
}

TEST(LogMel, ATonePeaksInItsBandAtAnyRate) {
  for (const int rate : {8000, 16000, 22050, 44100, 48000}) {
    Sound sound{rate, 2, {}};
    for (int i = 0; i < rate; ++i)
      for (int c = 0; c < 2; ++c) sound.samples.push_back(static_cast<float>(0.5 * std::sin(2 * std::numbers::pi * 1000 * i / rate)));
    const LogMel mel = log_mel(sound);
    EXPECT_NEAR(static_cast<double>(mel.frames), 100, 1);
    size_t best = 0;
    const auto at = [&](size_t band) { return mel.values[band * static_cast<size_t>(mel.frames) + 50]; };
    for (size_t band = 0; band < mel_bands; ++band)
      if (at(band) > at(best)) best = band;
    EXPECT_NEAR(static_cast<double>(best), 26, 1) << rate;  // 15 mels of 45.2 in 81 steps
    EXPECT_LT(at(70), at(best) - 1) << rate;                 // nothing else is there
  }
  EXPECT_NE(error_of(exit_status::data, [] { log_mel(sound_of(chirp(100), 16000)); }).find("too few"), std::string::npos);
  EXPECT_NE(error_of(exit_status::data, [] { log_mel(sound_of(chirp(2000), 44101)); }).find("44101"), std::string::npos);
  EXPECT_NE(error_of(exit_status::data, [] { log_mel({16000, 1, std::vector<float>(400, 1e29f)}); }).find("overflows"), std::string::npos);
}

}  // namespace
}  // namespace mm::data
