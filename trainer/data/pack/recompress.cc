// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/pack/recompress.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "common/error.h"
#include "trainer/data/dataset.h"
#include "trainer/data/image/decode.h"
#include "trainer/data/make_sample.h"
#include "trainer/data/pack/ordered.h"
#include "trainer/data/pack/publish.h"

namespace mm::data {
namespace {

struct Loss {
  double psnr = 0;
  int most = 0;
};

constexpr int longest_jpeg_side = 65500;
constexpr double no_loss_psnr = 100;  // of equal pictures, in dB

Loss loss_of(const Image& from, const Image& made) {
  Loss loss;
  double squares = 0;
  for (size_t i = 0; i < from.rgb.size(); ++i) {
    const int off = std::abs(from.rgb[i] - made.rgb[i]);
    squares += off * off;
    loss.most = std::max(loss.most, off);
  }
  const double mean = squares / static_cast<double>(from.rgb.size());
  loss.psnr = mean == 0 ? no_loss_psnr : std::min(no_loss_psnr, 10 * std::log10(255.0 * 255.0 / mean));
  return loss;
}

struct Recompressed {
  std::vector<std::pair<std::string, std::string>> parts;
  std::vector<Loss> losses;  // of the pictures that are new
  int64_t pictures = 0, undecodable = 0;
};

std::string jpeg_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  return (dot == std::string::npos ? "" : name.substr(0, dot + 1)) + "jpg";
}

Recompressed recompress_sample(const Dataset& dataset, int64_t sample, const RecompressOptions& options) {
  Recompressed out;
  for (const Part& part : dataset.parts(sample)) {
    std::string name = dataset.part_name(part), bytes = dataset.read(sample, part);
    if (is_image_part(name)) {
      ++out.pictures;
      try {
        const Image image = decode_within(bytes, options.max_side);
        const bool fits = std::max(image.width, image.height) <= longest_jpeg_side;
        std::string jpeg = fits ? encode_jpeg(image, options.quality) : bytes;
        if (jpeg.size() < bytes.size()) {
          out.losses.push_back(loss_of(image, decode_image(jpeg)));
          name = jpeg_name(name);
          bytes = std::move(jpeg);
        }
      } catch (const Error& error) {
        if (error.status != exit_status::data) throw;
        ++out.undecodable;
      }
    }
    for (const auto& [other, content] : out.parts)
      if (other == name) throw usage_error("recompress: " + dataset.shard_of(sample).path + ": sample " + std::string(dataset.key(sample)) + " would have two parts " + name);
    out.parts.emplace_back(std::move(name), std::move(bytes));
  }
  return out;
}

// "data/train-00012.tar" -> "train"
std::string series_of(const std::string& path) {
  std::string name = std::filesystem::path(path).stem().string();
  const size_t dash = name.rfind('-');
  if (dash != std::string::npos && dash > 0 && dash + 1 < name.size() &&
      std::all_of(name.begin() + static_cast<std::ptrdiff_t>(dash) + 1, name.end(), [](char c) { return c >= '0' && c <= '9'; }))
    name.resize(dash);
  return name;
}

}  // namespace

RecompressResult recompress(const RecompressOptions& options) {
  const Dataset dataset(options.shards);
  FolderInProgress folder(options.out, options.replace);
  std::map<std::string, ShardWriter> writers;
  RecompressResult result;
  for (const Shard& shard : dataset.shards()) result.bytes_before += shard.size;
  int64_t made = 0;
  const int threads = options.threads > 0 ? options.threads : usable_cpus();
  in_order(
      static_cast<size_t>(dataset.samples()), threads, static_cast<size_t>(threads) * 8,
      [&](size_t i) { return recompress_sample(dataset, static_cast<int64_t>(i), options); },
      [&](size_t i, const Recompressed& sample) {
        const auto id = static_cast<int64_t>(i);
        const std::string series = series_of(dataset.shard_of(id).path);
        writers.try_emplace(series, folder.path(), series, options.limits).first->second.add(std::string(dataset.key(id)), sample.parts);
        ++result.samples;
        result.pictures += sample.pictures;
        result.undecodable += sample.undecodable;
        for (const Loss& loss : sample.losses) {
          result.psnr_mean += loss.psnr;
          result.psnr_least = made++ == 0 ? loss.psnr : std::min(result.psnr_least, loss.psnr);
          result.max_difference = std::max(result.max_difference, loss.most);
        }
      });
  for (auto& [series, writer] : writers) {
    writer.finish();
    result.bytes_after += writer.bytes();
  }
  result.kept = result.pictures - made;
  if (made > 0) result.psnr_mean /= static_cast<double>(made);
  folder.publish();
  return result;
}

}  // namespace mm::data
