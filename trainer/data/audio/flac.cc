// SPDX-License-Identifier: Apache-2.0
#include <FLAC/stream_decoder.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "common/error.h"
#include "trainer/data/audio/sound.h"

namespace mm::data {
namespace {

struct Reading {
  std::string_view bytes;
  size_t at = 0;
  const SoundLimits& limits;
  Sound sound = {};
  int64_t promised = 0;  // moments, of the header; 0: not said
  std::string error = {};
};

Reading& reading_of(void* client) {
  return *static_cast<Reading*>(client);
}

FLAC__StreamDecoderReadStatus read_more(const FLAC__StreamDecoder*, FLAC__byte* to, size_t* length, void* client) {
  Reading& reading = reading_of(client);
  *length = std::min(*length, reading.bytes.size() - reading.at);
  if (*length == 0) return FLAC__STREAM_DECODER_READ_STATUS_END_OF_STREAM;
  std::memcpy(to, reading.bytes.data() + reading.at, *length);
  reading.at += *length;
  return FLAC__STREAM_DECODER_READ_STATUS_CONTINUE;
}

void on_header(const FLAC__StreamDecoder*, const FLAC__StreamMetadata* block, void* client) {
  Reading& reading = reading_of(client);
  if (block->type != FLAC__METADATA_TYPE_STREAMINFO) return;
  reading.sound.rate = static_cast<int>(block->data.stream_info.sample_rate);
  reading.sound.channels = static_cast<int>(block->data.stream_info.channels);
  reading.promised = static_cast<int64_t>(block->data.stream_info.total_samples);
}

FLAC__StreamDecoderWriteStatus on_samples(const FLAC__StreamDecoder*, const FLAC__Frame* frame, const FLAC__int32* const channels[],
                                          void* client) {
  Reading& reading = reading_of(client);
  const auto abort_with = [&](const std::string& reason) {
    reading.error = reason;
    return FLAC__STREAM_DECODER_WRITE_STATUS_ABORT;
  };
  try {
    Sound& sound = reading.sound;
    const size_t count = frame->header.blocksize;
    if (static_cast<int>(frame->header.channels) != sound.channels) return abort_with("a frame with another number of channels");
    check_sound(sound.rate, sound.channels, static_cast<int64_t>(sound.samples.size() + count * frame->header.channels), reading.limits);
    const double scale = std::ldexp(1.0, 1 - static_cast<int>(frame->header.bits_per_sample));
    for (size_t i = 0; i < count; ++i)
      for (uint32_t c = 0; c < frame->header.channels; ++c) sound.samples.push_back(static_cast<float>(channels[c][i] * scale));
    return FLAC__STREAM_DECODER_WRITE_STATUS_CONTINUE;
  } catch (const std::exception& error) {
    return abort_with(error.what());
  }
}

void on_error(const FLAC__StreamDecoder*, FLAC__StreamDecoderErrorStatus status, void* client) {
  Reading& reading = reading_of(client);
  if (reading.error.empty()) reading.error = FLAC__StreamDecoderErrorStatusString[status];
}

}  // namespace

Sound decode_flac(std::string_view bytes, const SoundLimits& limits) {
  const std::unique_ptr<FLAC__StreamDecoder, void (*)(FLAC__StreamDecoder*)> decoder(FLAC__stream_decoder_new(), FLAC__stream_decoder_delete);
  if (!decoder) throw std::bad_alloc();
  FLAC__stream_decoder_set_md5_checking(decoder.get(), 1);
  Reading reading{bytes, 0, limits};
  if (FLAC__stream_decoder_init_stream(decoder.get(), read_more, nullptr, nullptr, nullptr, nullptr, on_samples, on_header, on_error,
                                       &reading) != FLAC__STREAM_DECODER_INIT_STATUS_OK)
    throw data_error("FLAC: the decoder does not start");
  const bool ran = FLAC__stream_decoder_process_until_end_of_stream(decoder.get()) != 0;
  const bool sums_fit = FLAC__stream_decoder_finish(decoder.get()) != 0;
  if (!reading.error.empty()) throw data_error("FLAC: " + reading.error);
  if (!ran) throw data_error("FLAC: damaged or cut short");
  if (reading.promised != 0 && reading.sound.moments() != reading.promised)
    throw data_error(fmt::format("FLAC: {} samples were promised, {} are there", reading.promised, reading.sound.moments()));
  if (!sums_fit) throw data_error("FLAC: the checksum of the samples does not fit");
  return std::move(reading.sound);
}

}  // namespace mm::data
