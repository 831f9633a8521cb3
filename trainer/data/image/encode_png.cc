// SPDX-License-Identifier: Apache-2.0
// Writing of PNG, fast rather than small: deflate level 3 and one filter.
#include <csetjmp>
#include <cstdio>
#include <new>
#include <stdexcept>

#include <png.h>

#include "trainer/data/image/image.h"

namespace mm::data {
namespace {

struct Output {
  std::jmp_buf jump;
  char text[160];
  std::string bytes;
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto& output = *static_cast<Output*>(png_get_error_ptr(png));
  std::snprintf(output.text, sizeof output.text, "PNG: %s", message);
  std::longjmp(output.jump, 1);
}

void on_warning(png_structp, png_const_charp) {}

void append(png_structp png, png_bytep data, size_t length) {
  static_cast<Output*>(png_get_io_ptr(png))->bytes.append(reinterpret_cast<const char*>(data), length);
}

struct Writer {
  explicit Writer(Output& output) {
    png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &output, on_error, on_warning);
    if (png != nullptr) info = png_create_info_struct(png);
    if (info == nullptr) {
      png_destroy_write_struct(&png, &info);
      throw std::bad_alloc();
    }
  }
  ~Writer() { png_destroy_write_struct(&png, &info); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  png_structp png = nullptr;
  png_infop info = nullptr;
};

}  // namespace

std::string encode_png(const Image& image) {
  Output output{};
  output.bytes.reserve(image.rgb.size() / 4 + 1024);
  Writer writer(output);
  if (setjmp(output.jump) != 0) throw std::runtime_error(output.text);
  png_set_write_fn(writer.png, &output, append, nullptr);
  png_set_IHDR(writer.png, writer.info, static_cast<png_uint_32>(image.width), static_cast<png_uint_32>(image.height), 8,
               PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_compression_level(writer.png, 3);
  png_set_filter(writer.png, PNG_FILTER_TYPE_BASE, PNG_FILTER_SUB);
  png_write_info(writer.png, writer.info);
  const size_t stride = static_cast<size_t>(image.width) * 3;
  for (size_t y = 0; y < static_cast<size_t>(image.height); ++y) png_write_row(writer.png, image.rgb.data() + y * stride);
  png_write_end(writer.png, writer.info);
  return std::move(output.bytes);
}

}  // namespace mm::data
