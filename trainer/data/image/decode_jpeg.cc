// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "trainer/data/image/jpeg_reader.h"
#include "trainer/data/image/spare.h"

namespace mm::data {
namespace {

// Adobe's CMYK is stored inverted; as in every common viewer, all CMYK files are taken for such.
void cmyk_to_rgb(const uint8_t* cmyk, size_t pixels, uint8_t* rgb) {
  for (size_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3)
    for (int k = 0; k < 3; ++k) rgb[k] = static_cast<uint8_t>((uint32_t{cmyk[k]} * cmyk[3] + 127) / 255);
}

}  // namespace

Decoded decode_jpeg(std::string_view bytes, const DecodeLimits& limits) {
  Decoded decoded;
  JpegReader jpeg;
  jpeg.open(bytes, limits);
  jpeg_decompress_struct& info = jpeg.info();
  decoded.orientation = jpeg.orientation();
  const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg.guarded([&] { jpeg_start_decompress(&info); });

  Image& image = decoded.image;
  image.width = static_cast<int>(info.output_width);
  image.height = static_cast<int>(info.output_height);
  const size_t width = info.output_width, stride = width * 3;
  image.rgb = buffer_of(stride * info.output_height);
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
