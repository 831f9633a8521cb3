// SPDX-License-Identifier: Apache-2.0
// JPEG through the libjpeg API, because only there a warning can be told from an error and one warning from another: a file cut
// short is "only" a warning, and so is junk between markers, which viewers pass over.
#include <csetjmp>
#include <cstdio>
#include <vector>

#include <jpeglib.h>
// (needs jpeglib.h before it)
#include <jerror.h>

#include "common/error.h"
#include "trainer/data/image/decode.h"

namespace mm::data {
namespace {

constexpr int most_scans = 500;  // a small progressive file can ask for a scan of every pixel thousands of times

struct Failure {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
  char text[JMSG_LENGTH_MAX];
};

Failure& failure_of(j_common_ptr info) {
  return *static_cast<Failure*>(info->client_data);
}

[[noreturn]] void on_error(j_common_ptr info) {
  (*info->err->format_message)(info, failure_of(info).text);
  std::longjmp(failure_of(info).jump, 1);
}

// Warnings that mean that pixels were lost or made up.
bool loses_pixels(int code) {
  switch (code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_ARITH_BAD_CODE:
      return true;
    default:
      return false;
  }
}

void on_message(j_common_ptr info, int level) {
  if (level < 0 && loses_pixels(info->err->msg_code)) on_error(info);
}

void on_progress(j_common_ptr info) {
  if (!info->is_decompressor) return;
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= most_scans) return;
  std::snprintf(failure_of(info).text, sizeof failure_of(info).text, "more than %d scans", most_scans);
  std::longjmp(failure_of(info).jump, 1);
}

// Owns the decompressor. A longjmp of the library ends in `guarded`, whose callers keep only trivial objects on the stack below
// it.
class Decompressor {
 public:
  Decompressor() {
    info_.err = jpeg_std_error(&failure_.manager);
    failure_.manager.error_exit = on_error;
    failure_.manager.emit_message = on_message;
    info_.client_data = &failure_;
    guarded([&] { jpeg_create_decompress(&info_); });
  }
  ~Decompressor() { jpeg_destroy_decompress(&info_); }
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  void open(std::string_view bytes) {
    progress_.progress_monitor = on_progress;
    info_.progress = &progress_;
    guarded([&] {
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<unsigned long>(bytes.size()));
      jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
      jpeg_read_header(&info_, TRUE);
    });
  }
  jpeg_decompress_struct& info() { return info_; }

  template <class Body>
  void guarded(const Body& body) {
    if (setjmp(failure_.jump) != 0) throw data_error(failure_.text);
    body();
  }

 private:
  jpeg_decompress_struct info_{};
  Failure failure_{};
  jpeg_progress_mgr progress_{};
};

// Adobe's CMYK is stored inverted; as in every common viewer, all CMYK files are taken for such.
void cmyk_to_rgb(const uint8_t* cmyk, size_t pixels, uint8_t* rgb) {
  for (size_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3)
    for (int k = 0; k < 3; ++k) rgb[k] = static_cast<uint8_t>((uint32_t{cmyk[k]} * cmyk[3] + 127) / 255);
}

}  // namespace

Decoded decode_jpeg(std::string_view bytes, const DecodeLimits& limits) {
  Decoded decoded;
  Decompressor jpeg;
  jpeg.open(bytes);
  jpeg_decompress_struct& info = jpeg.info();
  check_size(info.image_width, info.image_height, limits);
  for (jpeg_saved_marker_ptr m = info.marker_list; m != nullptr; m = m->next) {
    const std::string_view block(reinterpret_cast<const char*>(m->data), m->data_length);
    if (!block.starts_with(std::string_view("Exif\0", 5))) continue;
    decoded.orientation = exif_orientation(block);
    break;
  }
  const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg.guarded([&] { jpeg_start_decompress(&info); });

  Image& image = decoded.image;
  image.width = static_cast<int>(info.output_width);
  image.height = static_cast<int>(info.output_height);
  const size_t width = info.output_width, stride = width * 3;
  image.rgb.resize(stride * info.output_height);
  std::vector<uint8_t> quads(cmyk ? width * 4 : 0);
  uint8_t* const pixels = image.rgb.data();
  uint8_t* const row = quads.data();
  jpeg.guarded([&] {
    while (info.output_scanline < info.output_height) {
      uint8_t* const to = pixels + info.output_scanline * stride;
      JSAMPROW line = cmyk ? row : to;
      jpeg_read_scanlines(&info, &line, 1);
      if (cmyk) cmyk_to_rgb(row, width, to);
    }
    jpeg_finish_decompress(&info);
  });
  return decoded;
}

}  // namespace mm::data
