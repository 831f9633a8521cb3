// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/pack/inspect.h"

#include <filesystem>

#include "common/error.h"
#include "common/files.h"
#include "trainer/data/audio/log_mel.h"
#include "trainer/data/image/image.h"
#include "trainer/data/make_sample.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {
namespace {

void add_picture(Inspection& inspection, const std::string& bytes) {
  const Image image = decode_image(bytes);
  if (inspection.pictures++ > 0) return;
  inspection.width = image.width;
  inspection.height = image.height;
  std::array<uint64_t, 3> sums{};
  for (size_t i = 0; i < image.rgb.size(); i += 3)
    for (size_t k = 0; k < 3; ++k) sums[k] += image.rgb[i + k];
  for (size_t k = 0; k < 3; ++k)
    inspection.mean_rgb[k] = static_cast<double>(sums[k]) / static_cast<double>(image.rgb.size() / 3);
}

void add_sound(Inspection& inspection, const std::string& bytes) {
  const Sound sound = decode_sound(bytes);
  const LogMel mel = log_mel(sound);
  if (inspection.sounds++ > 0) return;
  inspection.rate = sound.rate;
  inspection.channels = sound.channels;
  inspection.seconds = static_cast<double>(sound.moments()) / sound.rate;
  inspection.mel_frames = mel.frames;
}

// The transcript of a sound, where there is one.
void inspect_sound_text(const Dataset& dataset, int64_t sample, const SampleParts& parts, Inspection& inspection) {
  if (parts.text == nullptr) return;
  inspection.caption_bytes = parts.text->size;
  repair_utf8(read_part(dataset, sample, *parts.text), inspection.repaired_text);
}

void inspect_parts(const Dataset& dataset, int64_t sample, Inspection& inspection) {
  const SampleParts parts = sample_parts(dataset, sample);
  const auto decode = [&](const Part& part, const auto& add) {
    try {
      add(inspection, read_part(dataset, sample, part));
    } catch (const Error& error) {
      if (error.status != exit_status::data) throw;
      throw Unusable(dataset.part_name(part) + ": " + error.what());
    }
  };
  for (const Part& part : dataset.parts(sample))
    if (is_sound_name(dataset.part_name(part))) decode(part, add_sound);
  if (inspection.sounds > 0 && parts.images.empty()) return inspect_sound_text(dataset, sample, parts, inspection);
  if (parts.images.empty() && parts.text == nullptr && parts.json == nullptr) {
    inspection.unrelated = true;
    return;
  }
  for (const Part& part : parts.images) decode(part, add_picture);
  const int images = static_cast<int>(parts.images.size());
  const SequenceRule any{.image_size = 1, .positions_per_image = 1};
  if (parts.text != nullptr) {
    if (images == 0) throw Unusable("no picture");
    inspection.caption_bytes = parts.text->size;
    inspection.repaired_text = caption_sequence(read_part(dataset, sample, *parts.text), images, any).repaired;
  } else if (parts.json != nullptr) {
    inspection.repaired_text = json_sequence(read_part(dataset, sample, *parts.json), images, any).repaired;
  } else {
    throw Unusable("no caption: neither txt nor json");
  }
}

}  // namespace

Inspection inspect_file(const std::string& path) {
  Inspection inspection;
  inspection.key = std::filesystem::path(path).stem().string();
  try {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) throw data_error("not a regular file");
    if (std::filesystem::file_size(path, ignored) > static_cast<uintmax_t>(largest_image_file))
      throw data_error("larger than 256 MiB");
    const std::string bytes = read_file(path);
    is_sound_name(path) ? add_sound(inspection, bytes) : add_picture(inspection, bytes);
  } catch (const Error& error) {
    inspection.reason = error.what();
  }
  return inspection;
}

Inspection inspect_sample(const Dataset& dataset, int64_t sample) {
  Inspection inspection;
  inspection.key = dataset.key(sample);
  try {
    inspect_parts(dataset, sample, inspection);
  } catch (const Unusable& unusable) {
    inspection.reason = unusable.what();
  }
  return inspection;
}

}  // namespace mm::data
