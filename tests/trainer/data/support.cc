// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/data/support.h"

#include <png.h>
#include <unistd.h>
#include <webp/encode.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <jpeglib.h>

#include "trainer/data/tar.h"

namespace mm::data::test {

TemporaryFolder::TemporaryFolder() {
  static std::atomic<int> count = 0;
  folder_ = testing::TempDir() + "mm-data-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++);
  std::filesystem::create_directories(folder_);
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void write(const std::string& path, std::string_view content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file.flush()) throw std::runtime_error("write " + path);
}

Image plain(int width, int height, uint8_t red, uint8_t green, uint8_t blue) {
  Image image{width, height, {}};
  for (int i = 0; i < width * height; ++i) image.rgb.insert(image.rgb.end(), {red, green, blue});
  return image;
}

Image gradient(int width, int height) {
  Image image{width, height, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      image.rgb.insert(image.rgb.end(),
                       {static_cast<uint8_t>(x * 255 / std::max(1, width - 1)),
                        static_cast<uint8_t>(y * 255 / std::max(1, height - 1)), static_cast<uint8_t>((x * 7 + y * 13) % 256)});
  return image;
}

std::string make_png(const PngSpec& spec, const std::vector<uint8_t>& rows) {
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &out,
      [](png_structp p, png_bytep data, size_t n) {
        static_cast<std::string*>(png_get_io_ptr(p))->append(reinterpret_cast<char*>(data), n);
      },
      nullptr);
  png_set_IHDR(png, info, static_cast<png_uint_32>(spec.width), static_cast<png_uint_32>(spec.height), spec.depth,
               spec.colour_type, spec.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> colours;
  std::vector<png_byte> alphas;
  for (const auto& c : spec.palette) {
    colours.push_back({c[0], c[1], c[2]});
    alphas.push_back(c[3]);
  }
  if (!colours.empty()) {
    png_set_PLTE(png, info, colours.data(), static_cast<int>(colours.size()));
    png_set_tRNS(png, info, alphas.data(), static_cast<int>(alphas.size()), nullptr);
  }
  png_write_info(png, info);
  std::vector<png_bytep> pointers;
  std::vector<uint8_t> copy = rows;
  const size_t row_bytes = png_get_rowbytes(png, info);
  for (int y = 0; y < spec.height; ++y) pointers.push_back(copy.data() + static_cast<size_t>(y) * row_bytes);
  png_write_image(png, pointers.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

std::string make_jpeg(const Image& image, int quality, int orientation) {
  return make_jpeg_of(image.width, image.height, 3, image.rgb, quality, orientation);
}

std::string make_jpeg_of(int width, int height, int channels, const std::vector<uint8_t>& values, int quality, int orientation) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = channels;
  info.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  jpeg_start_compress(&info, TRUE);
  if (orientation != 1) {
    std::string exif("Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 24);
    exif += static_cast<char>(orientation);
    exif += std::string(7, '\0');
    jpeg_write_marker(&info, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(exif.data()), static_cast<unsigned>(exif.size()));
  }
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(&values[info.next_scanline * static_cast<size_t>(width * channels)]);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string out(reinterpret_cast<char*>(memory), size);
  std::free(memory);
  return out;
}

std::string make_webp(const Image& image, uint8_t alpha) {
  std::vector<uint8_t> rgba;
  for (size_t i = 0; i < image.rgb.size(); i += 3)
    rgba.insert(rgba.end(), {image.rgb[i], image.rgb[i + 1], image.rgb[i + 2], alpha});
  uint8_t* memory = nullptr;
  const size_t size = WebPEncodeLosslessRGBA(rgba.data(), image.width, image.height, image.width * 4, &memory);
  std::string out(reinterpret_cast<char*>(memory), size);
  WebPFree(memory);
  return out;
}

std::string small_gif() {
  // Codes of three bits, first to last: clear, 0, 1, 2, 3, end.
  static const unsigned char bytes[] = {'G', 'I', 'F', '8', '9', 'a', 2, 0, 2,    0,    0x91, 0,    0,    255,  0, 0,   0,
                                        255, 0,   0,   0,   255, 9,   9, 9, 0x21, 0xF9, 4,    1,    0,    0,    3, 0,   0x2C,
                                        0,   0,   0,   0,   2,   0,   2, 0, 0,    2,    3,    0x44, 0x34, 0x05, 0, 0x3B};
  return std::string(reinterpret_cast<const char*>(bytes), sizeof bytes);
}

std::string make_tar(const std::vector<std::pair<std::string, std::string>>& members, bool end) {
  std::string archive;
  for (const auto& [name, content] : members) append_tar_member(archive, name, content);
  if (end) append_tar_end(archive);
  return archive;
}

std::string error_of(int status, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.status, status) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

std::string corpus() {
  const char* folder = "../shared/corpus";
  return std::filesystem::exists(std::string(folder) + "/expected.tsv") ? folder : "";
}

}  // namespace mm::data::test
