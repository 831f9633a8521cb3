// SPDX-License-Identifier: Apache-2.0
// WebP: still pictures by the plain decoder, of animations the first frame as it is shown (the plain decoder refuses those).
#include <memory>
#include <vector>

#include <webp/decode.h>
#include <webp/demux.h>

#include "common/error.h"
#include "trainer/data/image/decode.h"

namespace mm::data {
namespace {

struct FreeDemuxer {
  void operator()(WebPDemuxer* d) const { WebPDemuxDelete(d); }
};
struct FreeAnimation {
  void operator()(WebPAnimDecoder* d) const { WebPAnimDecoderDelete(d); }
};

int orientation_of(const WebPDemuxer* demuxer) {
  WebPChunkIterator chunk{};
  int orientation = 1;
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk))
    orientation = exif_orientation({reinterpret_cast<const char*>(chunk.chunk.bytes), chunk.chunk.size});
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

const char* reason_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "WebP: out of memory";
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "WebP: cut short";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "WebP: unsupported feature";
    default:
      return "WebP: damaged bitstream";
  }
}

}  // namespace

Decoded decode_webp(std::string_view bytes, const DecodeLimits& limits) {
  const WebPData data{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  const std::unique_ptr<WebPDemuxer, FreeDemuxer> demuxer(WebPDemux(&data));
  if (!demuxer) throw data_error("WebP: damaged or cut short");
  const int64_t width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
                height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  check_size(width, height, limits);
  const uint32_t flags = WebPDemuxGetI(demuxer.get(), WEBP_FF_FORMAT_FLAGS);

  Decoded decoded;
  decoded.orientation = orientation_of(demuxer.get());
  Image& image = decoded.image;
  image.width = static_cast<int>(width);
  image.height = static_cast<int>(height);
  const size_t pixels = static_cast<size_t>(width * height);

  if ((flags & ANIMATION_FLAG) != 0) {
    WebPAnimDecoderOptions options;
    if (!WebPAnimDecoderOptionsInit(&options)) throw data_error("WebP: library version");
    options.color_mode = MODE_RGBA;
    const std::unique_ptr<WebPAnimDecoder, FreeAnimation> animation(WebPAnimDecoderNew(&data, &options));
    uint8_t* canvas = nullptr;
    int timestamp = 0;
    if (!animation || !WebPAnimDecoderGetNext(animation.get(), &canvas, &timestamp))
      throw data_error("WebP: first frame does not decode");
    image.rgb.resize(pixels * 3);
    lay_on(limits.background, canvas, pixels, image.rgb.data());
    return decoded;
  }

  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) throw data_error("WebP: library version");
  VP8StatusCode status = WebPGetFeatures(data.bytes, data.size, &config.input);
  if (status != VP8_STATUS_OK) throw data_error(reason_of(status));
  if (config.input.width != width || config.input.height != height)
    throw data_error("WebP: sizes of canvas and picture differ");
  const bool alpha = config.input.has_alpha != 0;
  std::vector<uint8_t> out(pixels * (alpha ? 4 : 3));
  config.output.colorspace = alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = out.data();
  config.output.u.RGBA.size = out.size();
  config.output.u.RGBA.stride = static_cast<int>(width) * (alpha ? 4 : 3);
  status = WebPDecode(data.bytes, data.size, &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) throw data_error(reason_of(status));
  if (alpha) {
    image.rgb.resize(pixels * 3);
    lay_on(limits.background, out.data(), pixels, image.rgb.data());
  } else {
    image.rgb = std::move(out);
  }
  return decoded;
}

}  // namespace mm::data
