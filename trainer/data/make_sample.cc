// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/make_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "common/error.h"
#include "trainer/data/audio/sound.h"
#include "trainer/data/image/augment.h"
#include "trainer/data/image/resized.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {
namespace {

// "png" gives -1, "12.png" gives 12, anything else -2.
int64_t image_number(std::string_view name) {
  int64_t number = -1;
  if (const size_t dot = name.find('.'); dot != std::string_view::npos) {
    const std::string_view digits = name.substr(0, dot);
    if (digits.empty() || digits.size() > 9 ||
        !std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
      return -2;
    number = std::atoll(std::string(digits).c_str());
    name.remove_prefix(dot + 1);
  }
  return name == "png" || name == "jpg" || name == "jpeg" || name == "webp" || name == "gif" ? number : -2;
}

}  // namespace

std::string read_part(const Dataset& dataset, int64_t sample, const Part& part) {
  const std::string& name = dataset.part_name(part);
  const int64_t most = is_image_part(name) || is_sound_name(name) ? largest_image_file : largest_text;
  if (part.size > most)
    throw Unusable(
        fmt::format("{}: {} bytes are more than the limit of {}", printable(name), part.size, most));
  return dataset.read(sample, part);
}

bool is_image_part(std::string_view name) {
  return image_number(name) > -2;
}

SampleParts sample_parts(const Dataset& dataset, int64_t sample) {
  SampleParts parts;
  const std::span<const Part> all = dataset.parts(sample);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string& name = dataset.part_name(all[i]);
    for (size_t k = 0; k < i; ++k)
      if (all[k].name == all[i].name) throw Unusable("part " + printable(name) + " occurs twice");
    if (name == "txt")
      parts.text = &all[i];
    else if (name == "json")
      parts.json = &all[i];
    else if (is_image_part(name))
      parts.images.push_back(all[i]);
  }
  std::stable_sort(parts.images.begin(), parts.images.end(), [&](const Part& a, const Part& b) {
    return image_number(dataset.part_name(a)) < image_number(dataset.part_name(b));
  });
  return parts;
}

MadeSample make_sample(const Dataset& dataset, int64_t id, const SequenceRule& rule, const std::optional<SampleTurn>& turn) {
  const SampleParts parts = sample_parts(dataset, id);
  const int images = static_cast<int>(parts.images.size());
  if (parts.text == nullptr && parts.json == nullptr) throw Unusable("no caption: neither txt nor json");
  if (parts.text != nullptr && images == 0) throw Unusable("no picture");
  if (rule.positions_per_image == 0 && images != 1) throw Unusable(std::to_string(images) + " pictures where a pair has one");

  MadeSample made;
  made.sample.key = dataset.key(id);
  // Text first: a sample that does not fit costs no decoding.
  Sequence sequence = parts.text != nullptr ? caption_sequence(read_part(dataset, id, *parts.text), images, rule)
                                            : json_sequence(read_part(dataset, id, *parts.json), images, rule);
  made.sample.ids = std::move(sequence.ids);
  made.sample.labels = std::move(sequence.labels);
  made.repaired_text = sequence.repaired;
  for (const Part& part : parts.images) {
    const std::string bytes = read_part(dataset, id, part);
    try {
      const int picture = static_cast<int>(made.sample.images.size());
      const AugmentKey key = turn ? AugmentKey{turn->seed, turn->position, picture} : AugmentKey{};
      made.sample.images.push_back(decode_resized(bytes, rule.image_size, rule.image_size, rule, turn ? &key : nullptr));
    } catch (const Error& error) {
      throw Unusable(dataset.part_name(part) + ": " + printable(error.what()));
    }
  }
  return made;
}

int64_t estimated_bytes(const Dataset& dataset, int64_t id, const SequenceRule& rule) {
  int64_t bytes = 1024;
  for (const Part& part : dataset.parts(id)) {
    const std::string& name = dataset.part_name(part);
    if (is_image_part(name))
      bytes += int64_t{3} * rule.image_size * rule.image_size + 8 * rule.positions_per_image;
    else if (name == "txt" || name == "json")
      bytes += 8 * std::min(part.size, largest_text);
  }
  return bytes;
}

}  // namespace mm::data
