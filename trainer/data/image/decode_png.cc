// SPDX-License-Identifier: Apache-2.0
// PNG through libpng's row interface: 16 bits are scaled, palettes and colour keys become alpha, gAMA is left alone. Text and
// profile chunks are skipped without being inflated.
#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include <png.h>

#include "common/error.h"
#include "trainer/data/image/decode.h"

namespace mm::data {
namespace {

struct Failure {
  std::jmp_buf jump;
  char text[160];
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto& failure = *static_cast<Failure*>(png_get_error_ptr(png));
  std::snprintf(failure.text, sizeof failure.text, "PNG: %s", message);
  std::longjmp(failure.jump, 1);
}

// A wrong Adler-32 of the pixel stream shows when all rows are out, and libpng then only warns.
void on_warning(png_structp png, png_const_charp message) {
  if (std::strstr(message, "incorrect data check") != nullptr) on_error(png, message);
}

void read_input(png_structp png, png_bytep to, size_t length) {
  auto& rest = *static_cast<std::string_view*>(png_get_io_ptr(png));
  if (rest.size() < length) png_error(png, "cut short");
  std::memcpy(to, rest.data(), length);
  rest.remove_prefix(length);
}

// Owns libpng's state. A longjmp of the library ends in `guarded`, whose callers keep only trivial objects on the stack below
// it.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &failure_, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      throw data_error("PNG: out of memory");
    }
  }
  ~Reader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  png_structp png() const { return png_; }
  png_infop info() const { return info_; }

  void read_header() {
    // Five bytes a name: four letters and a zero.
    static const png_byte skipped[] = "tEXt\0zTXt\0iTXt\0iCCP\0sPLT\0hIST\0tIME\0pCAL\0sCAL";
    guarded([&] {
      png_set_read_fn(png_, &rest_, read_input);
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, skipped, static_cast<int>(sizeof skipped / 5));
      png_read_info(png_, info_);
    });
  }

  template <class Body>
  void guarded(const Body& body) {
    if (setjmp(failure_.jump) != 0) throw data_error(failure_.text);
    body();
  }

 private:
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::string_view rest_;
  Failure failure_{};
};

// deflate never makes more than 1,032 bytes of one, so that a short file cannot claim many pixels.
void check_plausible(const Reader& png, std::string_view bytes) {
  const auto raw = static_cast<uint64_t>(png_get_rowbytes(png.png(), png.info())) * png_get_image_height(png.png(), png.info());
  if (raw > 1032 * static_cast<uint64_t>(bytes.size())) throw data_error("PNG: cut short, or a size that its data cannot fill");
}

int orientation_of(const Reader& png) {
  png_uint_32 length = 0;
  png_bytep block = nullptr;
  if (png_get_eXIf_1(png.png(), png.info(), &length, &block) == 0) return 1;
  return exif_orientation({reinterpret_cast<const char*>(block), length});
}

// Means over boxes of reduce x reduce pixels, the last ones over what there is.
class BoxMeans {
 public:
  BoxMeans(size_t width, size_t channels, size_t reduce, const Colour& background, uint8_t* to)
      : width_(width),
        channels_(channels),
        reduce_(reduce),
        boxes_((width + reduce - 1) / reduce),
        background_(background),
        sums_(boxes_ * 3),
        to_(to) {}

  void add_row(const uint8_t* row) {
    for (size_t box = 0, x = 0; box < boxes_; ++box) {
      const size_t end = std::min(width_, x + reduce_);
      uint32_t r = 0, g = 0, b = 0;
      if (channels_ == 3) {
        for (; x < end; ++x, row += 3) r += row[0], g += row[1], b += row[2];
      } else {
        for (; x < end; ++x, row += 4) {
          const uint32_t alpha = row[3], rest = 255 - alpha;
          r += row[0] * alpha + background_[0] * rest, g += row[1] * alpha + background_[1] * rest;
          b += row[2] * alpha + background_[2] * rest;
        }
      }
      uint32_t* const sum = &sums_[box * 3];
      sum[0] += r, sum[1] += g, sum[2] += b;
    }
    if (++rows_ == reduce_) flush();
  }

  void flush() {
    if (rows_ == 0) return;
    for (size_t box = 0; box < boxes_; ++box) {
      const size_t columns = std::min(width_, (box + 1) * reduce_) - box * reduce_;
      const auto weight = static_cast<uint32_t>(columns * rows_ * (channels_ == 4 ? 255 : 1));
      for (size_t k = 0; k < 3; ++k) *to_++ = static_cast<uint8_t>((uint64_t{sums_[box * 3 + k]} + weight / 2) / weight);
    }
    std::fill(sums_.begin(), sums_.end(), 0);
    rows_ = 0;
  }

 private:
  size_t width_, channels_, reduce_, boxes_, rows_ = 0;
  Colour background_;
  std::vector<uint32_t> sums_;  // at most 255 * 255 * 256 * 256, which fits
  uint8_t* to_;
};

}  // namespace

PngSize streamable_png_size(std::string_view bytes) {
  if (format_of(bytes) != Format::png || bytes.size() < 29 || bytes.substr(12, 4) != "IHDR" || bytes[28] != 0) return {};
  const auto* header = reinterpret_cast<const uint8_t*>(bytes.data());
  return {static_cast<int64_t>(png_get_uint_32(header + 16)), static_cast<int64_t>(png_get_uint_32(header + 20))};
}

Decoded decode_png(std::string_view bytes, const DecodeLimits& limits, int reduce) {
  Decoded decoded;
  Reader reader(bytes);
  reader.read_header();
  const png_structp png = reader.png();
  const png_infop info = reader.info();
  const size_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
  check_size(static_cast<int64_t>(width), static_cast<int64_t>(height), limits);
  check_plausible(reader, bytes);
  decoded.orientation = orientation_of(reader);

  const bool interlaced = png_get_interlace_type(png, info) != PNG_INTERLACE_NONE;
  reader.guarded([&] {
    png_set_scale_16(png);
    png_set_expand(png);
    png_set_gray_to_rgb(png);
    if (interlaced) png_set_interlace_handling(png);
    png_read_update_info(png, info);
  });
  const size_t channels = png_get_channels(png, info), row_bytes = png_get_rowbytes(png, info);
  if ((channels != 3 && channels != 4) || row_bytes != width * channels) throw data_error("PNG: unexpected row format");

  const auto step = static_cast<size_t>(interlaced ? 1 : std::clamp(reduce, 1, 256));
  Image& image = decoded.image;
  image.width = static_cast<int>((width + step - 1) / step);
  image.height = static_cast<int>((height + step - 1) / step);
  const size_t stride = static_cast<size_t>(image.width) * 3;
  image.rgb.resize(stride * static_cast<size_t>(image.height));
  uint8_t* const pixels = image.rgb.data();

  if (interlaced) {
    std::vector<uint8_t> whole(row_bytes * height);
    std::vector<png_bytep> rows(height);
    for (size_t y = 0; y < height; ++y) rows[y] = whole.data() + y * row_bytes;
    reader.guarded([&] { png_read_image(png, rows.data()); });
    if (channels == 4)
      lay_on(limits.background, whole.data(), width * height, pixels);
    else
      image.rgb = std::move(whole);
    return decoded;
  }

  std::vector<uint8_t> line(row_bytes);
  uint8_t* const row = line.data();
  const Colour& background = limits.background;
  if (step > 1) {
    BoxMeans means(width, channels, step, limits.background, pixels);
    reader.guarded([&] {
      for (size_t y = 0; y < height; ++y) {
        png_read_row(png, row, nullptr);
        means.add_row(row);
      }
    });
    means.flush();
    return decoded;
  }
  reader.guarded([&] {
    for (size_t y = 0; y < height; ++y) {
      uint8_t* const to = pixels + y * stride;
      png_read_row(png, channels == 3 ? to : row, nullptr);
      if (channels == 4) lay_on(background, row, width, to);
    }
  });
  return decoded;
}

}  // namespace mm::data
