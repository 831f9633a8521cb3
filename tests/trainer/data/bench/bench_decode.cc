// SPDX-License-Identifier: Apache-2.0
// Pictures a second of CPU time, from JPEG files of 500 x 375 in memory to normalised 3 x 224 x 224 floats: ours, exact and fast,
// beside libjpeg's decoding alone (the limit) and beside Pillow and PyTorch's loader. Median of five, in turn.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <random>

#include <jpeglib.h>

#include "common/process.h"
#include "tests/trainer/data/support.h"
#include "trainer/data/image/image.h"
#include "trainer/data/image/resized.h"

namespace mm::data {
namespace {

using namespace test;

constexpr int files = 96, width = 500, height = 375, side = 224, rounds = 5;

// Soft shapes of several scales, and the grain of a sensor; about the bytes of a photograph.
Image photograph(unsigned seed) {
  std::mt19937 random(seed);
  std::array<std::array<double, 4>, 12> waves;
  for (auto& w : waves)
    for (double& v : w) v = random() % 1000 / 1000.0;
  Image image{width, height, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (size_t c = 0; c < 3; ++c) {
        double v = 128;
        for (size_t i = 0; i < waves.size(); ++i)
          v += 60.0 / static_cast<double>(i + 1) *
               std::sin((waves[i][0] - 0.5) * 0.02 * static_cast<double>(i * i + 1) * x +
                        (waves[i][1] - 0.5) * 0.02 * static_cast<double>(i * i + 1) * y + waves[i][2] * 6 + static_cast<double>(c) * waves[i][3]);
        image.rgb.push_back(static_cast<uint8_t>(std::clamp(v + static_cast<double>(random() % 17) - 8, 0.0, 255.0)));
      }
  return image;
}

// By the CPU's time, as other programs may run beside.
double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
double rate_of(const std::function<void()>& body) {
  const double begin = cpu_seconds();
  body();
  return files / (cpu_seconds() - begin);
}

void decode_alone(const std::string& file) {
  static std::vector<uint8_t> pixels(size_t{width} * height * 3);
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), static_cast<unsigned long>(file.size()));
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels.data() + size_t{info.output_scanline} * width * 3;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
}

void normalise(const Image& image, std::vector<float>& out) {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> t{};
    for (size_t v = 0; v < 256; ++v) t[v] = static_cast<float>((static_cast<double>(v) / 255 - 0.5) / 0.5);
    return t;
  }();
  const size_t pixels = image.rgb.size() / 3;
  out.resize(image.rgb.size());
  const uint8_t* from = image.rgb.data();
  float *r = out.data(), *g = r + pixels, *b = g + pixels;
  for (size_t i = 0; i < pixels; ++i, from += 3) r[i] = table[from[0]], g[i] = table[from[1]], b[i] = table[from[2]];
}

constexpr const char* pillow = R"(
import sys, io, glob, time
import numpy as np
from PIL import Image
data = [open(f, 'rb').read() for f in sorted(glob.glob(sys.argv[1] + '/*.jpg'))]
def one(b):
  x = np.asarray(Image.open(io.BytesIO(b)).convert('RGB').resize((224, 224), Image.BICUBIC), dtype=np.float32)
  return np.ascontiguousarray(((x / 255 - 0.5) / 0.5).transpose(2, 0, 1))
if sys.argv[2] == 'pillow':
  for b in data[:8]: one(b)
  t = time.process_time()
  for b in data: one(b)
else:
  import torch
  torch.set_num_threads(1)
  class S(torch.utils.data.Dataset):
    def __len__(self): return len(data) * 2
    def __getitem__(self, i): return torch.from_numpy(one(data[i % len(data)]))
  it = iter(torch.utils.data.DataLoader(S(), batch_size=len(data) // 2, num_workers=0))
  next(it); next(it); t = time.process_time(); next(it); next(it)
print(len(data) / (time.process_time() - t))
)";

int run() {
  const TemporaryFolder folder;
  std::vector<std::string> pictures;
  size_t bytes = 0;
  for (unsigned i = 0; i < files; ++i) {
    pictures.push_back(encode_jpeg(photograph(i), 90));
    bytes += pictures.back().size();
    write(folder.path(fmt::format("{:03}.jpg", i)), pictures.back());
  }
  SequenceRule exact, fast;
  fast.fast_jpeg = true;
  std::vector<float> out;
  const auto ours = [&](const SequenceRule& rule) {
    for (const std::string& file : pictures) normalise(decode_resized(file, side, side, rule, nullptr), out);
  };
  const auto peer = [&](const char* which) {
    const CommandResult result = run_command({"/usr/bin/python3", "-c", pillow, folder.path(), which}, std::chrono::minutes(5));
    return result.ok() ? std::atof(result.out.c_str()) : 0;
  };
  const std::pair<const char*, std::function<double()>> measures[] = {
      {"decode alone (limit)", [&] { return rate_of([&] { for (const std::string& file : pictures) decode_alone(file); }); }},
      {"ours, exact", [&] { return rate_of([&] { ours(exact); }); }},
      {"ours, fast", [&] { return rate_of([&] { ours(fast); }); }},
      {"Pillow", [&] { return peer("pillow"); }},
      {"PyTorch's DataLoader", [&] { return peer("torch"); }},
  };
  std::vector<std::vector<double>> rates(std::size(measures));
  ours(exact), ours(fast);
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < std::size(measures); ++i) rates[i].push_back(measures[i].second());
  fmt::print("{} x {} JPEG of {} kB in the mean to 3 x {} x {} floats, pictures a CPU second (median of {}, least, most):\n", width, height,
             bytes / files / 1000, side, side, rounds);
  std::vector<double> medians;
  for (size_t i = 0; i < std::size(measures); ++i) {
    std::sort(rates[i].begin(), rates[i].end());
    medians.push_back(rates[i][rounds / 2]);
    fmt::print("  {:<22} {:7.1f}  ({:.1f} to {:.1f})\n", measures[i].first, medians[i], rates[i].front(), rates[i].back());
  }
  for (const size_t i : {1u, 2u})
    fmt::print("{}: {:.2f} of the limit (wanted 0.65), {:.2f} times Pillow (wanted 3), {:.2f} times PyTorch's loader\n", measures[i].first,
               medians[i] / medians[0], medians[3] > 0 ? medians[i] / medians[3] : 0, medians[4] > 0 ? medians[i] / medians[4] : 0);
  return 0;
}

}  // namespace
}  // namespace mm::data

int main() {
  return mm::data::run();
}
