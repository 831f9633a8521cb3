// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/micro_batch.h"

#include "common/error.h"

namespace mm::model {
namespace {

void refuse(const data::Sample& sample, const std::string& why) {
  throw data_error("model: sample " + sample.key + ": " + why);
}

void check(const VlmConfig& config, const data::Sample& sample) {
  if (sample.labels.size() != sample.ids.size())
    refuse(sample, std::to_string(sample.ids.size()) + " tokens but " + std::to_string(sample.labels.size()) + " labels");
  int64_t positions = 0;
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    const int32_t id = sample.ids[i], label = sample.labels[i];
    if (id < 0 || id >= config.text.vocabulary) refuse(sample, "token " + std::to_string(id) + " is outside the vocabulary");
    if (label != data::no_label && (label < 0 || label >= config.text.vocabulary))
      refuse(sample, "label " + std::to_string(label) + " is outside the vocabulary");
    positions += id == config.image_token;
  }
  if (positions != static_cast<int64_t>(sample.images.size()) * config.positions_per_image())
    refuse(sample, std::to_string(positions) + " image positions but " + std::to_string(sample.images.size()) + " images of " +
                       std::to_string(config.positions_per_image()));
  const int edge = config.vision.image_size;
  for (const data::Image& image : sample.images)
    if (image.width != edge || image.height != edge ||
        image.rgb.size() != static_cast<size_t>(3 * edge) * static_cast<size_t>(edge))
      refuse(sample, "a picture of " + std::to_string(image.width) + " x " + std::to_string(image.height) +
                         " where the tower takes " + std::to_string(edge) + " x " + std::to_string(edge));
}

// How many of the sample's tokens some label sees.
size_t seen(const VlmConfig& config, const data::Sample& sample) {
  size_t end = sample.ids.size();
  while (end > 0 && sample.labels[end - 1] == data::no_label) --end;
  int64_t positions = 0;
  for (size_t i = 0; i < end; ++i) positions += sample.ids[i] == config.image_token;
  for (; positions % config.positions_per_image() != 0; ++end) positions += sample.ids[end] == config.image_token;
  return end;
}

}  // namespace

void MicroBatch::clear() {
  starts.assign(1, 0);
  ids.clear();
  image_rows.clear();
  label_rows.clear();
  labels.clear();
  pixels.clear();
  images = first_picture = picture_bytes = 0;
}

void pack(const VlmConfig& config, std::span<const data::Sample> samples, MicroBatch& out) {
  out.clear();
  out.picture_bytes = int64_t{3} * config.vision.image_size * config.vision.image_size;
  for (const data::Sample& sample : samples) {
    check(config, sample);
    const size_t end = seen(config, sample);
    if (end == 0) continue;
    int64_t positions = 0;
    for (size_t i = 0; i < end; ++i) {
      const bool image = sample.ids[i] == config.image_token;
      if (sample.labels[i] != data::no_label) {
        out.label_rows.push_back(out.rows());
        out.labels.push_back(sample.labels[i]);
      }
      if (image) out.image_rows.push_back(out.rows());
      out.ids.push_back(image ? -1 : sample.ids[i]);
      positions += image;
    }
    const int64_t images = positions / config.positions_per_image();
    for (int64_t i = 0; i < images; ++i) {
      const std::vector<uint8_t>& rgb = sample.images[static_cast<size_t>(i)].rgb;
      out.pixels.insert(out.pixels.end(), rgb.begin(), rgb.end());
    }
    out.images += images;
    out.starts.push_back(out.rows());
  }
}

}  // namespace mm::model
