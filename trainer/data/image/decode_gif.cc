// SPDX-License-Identifier: Apache-2.0
// The first frame of a GIF on its canvas; what it leaves open, or marks transparent, shows the background. Rows are decoded one by one and
// kept only when they came, and the canvas is made last, so that a few bytes cannot ask for much memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gif_lib.h>

#include "common/error.h"
#include "trainer/data/image/decode.h"

namespace mm::data {
namespace {

struct Input {
  std::string_view rest;
};

int read_input(GifFileType* file, GifByteType* to, int length) {
  auto& input = *static_cast<Input*>(file->UserData);
  const size_t n = std::min(input.rest.size(), static_cast<size_t>(std::max(length, 0)));
  std::memcpy(to, input.rest.data(), n);
  input.rest.remove_prefix(n);
  return static_cast<int>(n);
}

struct CloseGif {
  void operator()(GifFileType* file) const { DGifCloseFile(file, nullptr); }
};

[[noreturn]] void fail(int code) {
  const char* reason = GifErrorString(code);
  throw data_error(std::string("GIF: ") + (reason != nullptr ? reason : "damaged or cut short"));
}

// Reads up to the first frame; returns the index that its graphics control block marks transparent, or -1.
int find_frame(GifFileType* gif) {
  int transparent = NO_TRANSPARENT_COLOR;
  for (;;) {
    GifRecordType record;
    if (DGifGetRecordType(gif, &record) == GIF_ERROR) fail(gif->Error);
    if (record == IMAGE_DESC_RECORD_TYPE) return transparent;
    if (record == TERMINATE_RECORD_TYPE) throw data_error("GIF: no picture");
    if (record != EXTENSION_RECORD_TYPE) continue;
    int code = 0;
    GifByteType* block = nullptr;
    if (DGifGetExtension(gif, &code, &block) == GIF_ERROR) fail(gif->Error);
    if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr && block[0] >= 4) {
      GraphicsControlBlock control;
      if (DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) transparent = control.TransparentColor;
    }
    while (block != nullptr)
      if (DGifGetExtensionNext(gif, &block) == GIF_ERROR) fail(gif->Error);
  }
}

}  // namespace

Decoded decode_gif(std::string_view bytes, const DecodeLimits& limits) {
  Input input{bytes};
  int error = 0;
  const std::unique_ptr<GifFileType, CloseGif> gif(DGifOpen(&input, read_input, &error));
  if (!gif) fail(error);
  const int width = gif->SWidth, height = gif->SHeight;
  check_size(width, height, limits);
  const int transparent = find_frame(gif.get());
  if (DGifGetImageDesc(gif.get()) == GIF_ERROR) fail(gif->Error);
  const GifImageDesc& frame = gif->Image;
  check_size(frame.Width, frame.Height, limits);
  const ColorMapObject* map = frame.ColorMap != nullptr ? frame.ColorMap : gif->SColorMap;
  if (map == nullptr) throw data_error("GIF: no colour map");

  std::vector<GifPixelType> pixels, line(static_cast<size_t>(frame.Width));
  for (int y = 0; y < frame.Height; ++y) {
    if (DGifGetLine(gif.get(), line.data(), frame.Width) == GIF_ERROR) fail(gif->Error);
    pixels.insert(pixels.end(), line.begin(), line.end());
  }

  Decoded decoded;
  Image& image = decoded.image;
  image.width = width;
  image.height = height;
  image.rgb.resize(static_cast<size_t>(width) * static_cast<size_t>(height) * 3);
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = limits.background[i % 3];
  constexpr std::array<std::pair<int, int>, 4> passes{{{0, 8}, {4, 8}, {2, 4}, {1, 2}}};  // first row and step of each pass
  const GifPixelType* from = pixels.data();
  const auto draw = [&](int y) {
    for (int x = 0; x < frame.Width; ++x, ++from) {
      if (*from == transparent) continue;
      if (*from >= map->ColorCount) throw data_error("GIF: a colour that its map does not have");
      if (frame.Left + x >= width || frame.Top + y >= height) continue;
      const GifColorType& colour = map->Colors[*from];
      uint8_t* to =
          &image.rgb[(static_cast<size_t>(frame.Top + y) * static_cast<size_t>(width) + static_cast<size_t>(frame.Left + x)) *
                     3];
      to[0] = colour.Red, to[1] = colour.Green, to[2] = colour.Blue;
    }
  };
  if (frame.Interlace)
    for (const auto& [first, step] : passes)
      for (int y = first; y < frame.Height; y += step) draw(y);
  else
    for (int y = 0; y < frame.Height; ++y) draw(y);
  return decoded;
}

}  // namespace mm::data
