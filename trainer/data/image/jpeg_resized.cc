// SPDX-License-Identifier: Apache-2.0
// The decoder's planes hold whole blocks, so that a picture of odd size has chroma for the pixel beyond its edge: zimg gets the
// size rounded up to what the chroma covers, and the picture's own size as the active region. Its graphs take up to a
// millisecond to build, several times a resize: each thread keeps those of the latest geometries.
#include <zimg.h>

#include <algorithm>
#include <array>
#include <list>
#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include "trainer/data/image/jpeg_reader.h"
#include "trainer/data/image/resized.h"

namespace mm::data {
namespace {

constexpr size_t alignment = 64, most_graphs = 32;
constexpr int most_rows_at_once = 32;  // of a plane: two block rows, doubled

struct FreeAligned {
  void operator()(uint8_t* p) const { ::operator delete[](p, std::align_val_t{alignment}); }
};
using AlignedBytes = std::unique_ptr<uint8_t[], FreeAligned>;
AlignedBytes aligned_bytes(size_t size) {
  return AlignedBytes(new (std::align_val_t{alignment}) uint8_t[size]);
}

struct Plane {
  AlignedBytes bytes;
  size_t stride = 0, rows = 0;

  Plane(size_t width, size_t height) : stride((width + alignment - 1) / alignment * alignment), rows(height) {
    bytes = aligned_bytes(stride * rows);
  }
  uint8_t* row(size_t y) const { return bytes.get() + y * stride; }
};

struct Geometry {
  unsigned width, height;            // of the picture
  unsigned wide_chroma, high_chroma;  // log2 of the chroma's sampling
  unsigned to_width, to_height;
  bool operator==(const Geometry&) const = default;
};

[[noreturn]] void fail(const char* what) {
  char text[256] = "";
  zimg_get_last_error(text, sizeof text);
  throw std::runtime_error(std::string("zimg: ") + what + ": " + text);
}

struct Graph {
  Geometry geometry;
  std::unique_ptr<zimg_filter_graph, void (*)(zimg_filter_graph*)> graph{nullptr, zimg_filter_graph_free};
  AlignedBytes scratch;

  explicit Graph(const Geometry& g) : geometry(g) {
    zimg_image_format from, to;
    zimg_image_format_default(&from, ZIMG_API_VERSION);
    zimg_image_format_default(&to, ZIMG_API_VERSION);
    const auto up = [](unsigned size, unsigned log) { return (size + (1u << log) - 1) >> log << log; };
    from.width = up(g.width, g.wide_chroma);
    from.height = up(g.height, g.high_chroma);
    from.pixel_type = to.pixel_type = ZIMG_PIXEL_BYTE;
    from.subsample_w = g.wide_chroma;
    from.subsample_h = g.high_chroma;
    from.color_family = ZIMG_COLOR_YUV;
    from.matrix_coefficients = ZIMG_MATRIX_BT470_BG;  // BT.601
    from.pixel_range = to.pixel_range = ZIMG_RANGE_FULL;
    from.chroma_location = ZIMG_CHROMA_CENTER;
    from.active_region = {0, 0, static_cast<double>(g.width), static_cast<double>(g.height)};
    to.width = g.to_width;
    to.height = g.to_height;
    to.color_family = ZIMG_COLOR_RGB;
    to.matrix_coefficients = ZIMG_MATRIX_RGB;
    zimg_graph_builder_params params;
    zimg_graph_builder_params_default(&params, ZIMG_API_VERSION);
    params.resample_filter = params.resample_filter_uv = ZIMG_RESIZE_BICUBIC;
    params.filter_param_a = params.filter_param_a_uv = 0;
    params.filter_param_b = params.filter_param_b_uv = 0.5;
    graph.reset(zimg_filter_graph_build(&from, &to, &params));
    size_t size = 0;
    if (!graph || zimg_filter_graph_get_tmp_size(graph.get(), &size) != ZIMG_ERROR_SUCCESS) fail("build");
    scratch = aligned_bytes(std::max<size_t>(size, 1));
  }
};

const Graph& graph_of(const Geometry& geometry) {
  thread_local std::list<Graph> latest;  // the last used first
  const auto known = std::ranges::find(latest, geometry, &Graph::geometry);
  if (known != latest.end()) {
    latest.splice(latest.begin(), latest, known);
  } else {
    latest.emplace_front(geometry);
    if (latest.size() > most_graphs) latest.pop_back();
  }
  return latest.front();
}

Image resized(const std::array<Plane, 3>& planes, const Geometry& geometry) {
  const Graph& graph = graph_of(geometry);
  const std::array<Plane, 3> out{Plane(geometry.to_width, geometry.to_height), Plane(geometry.to_width, geometry.to_height),
                                 Plane(geometry.to_width, geometry.to_height)};
  zimg_image_buffer_const from{};
  zimg_image_buffer to{};
  from.version = to.version = ZIMG_API_VERSION;
  for (size_t p = 0; p < 3; ++p) {
    from.plane[p] = {planes[p].bytes.get(), static_cast<std::ptrdiff_t>(planes[p].stride), ZIMG_BUFFER_MAX};
    to.plane[p] = {out[p].bytes.get(), static_cast<std::ptrdiff_t>(out[p].stride), ZIMG_BUFFER_MAX};
  }
  if (zimg_filter_graph_process(graph.graph.get(), &from, &to, graph.scratch.get(), nullptr, nullptr, nullptr, nullptr) !=
      ZIMG_ERROR_SUCCESS)
    fail("resize");
  Image image{static_cast<int>(geometry.to_width), static_cast<int>(geometry.to_height), {}};
  image.rgb.resize(size_t{geometry.to_width} * geometry.to_height * 3);
  uint8_t* to_rgb = image.rgb.data();
  for (size_t y = 0; y < geometry.to_height; ++y) {
    const uint8_t *r = out[0].row(y), *g = out[1].row(y), *b = out[2].row(y);
    for (size_t x = 0; x < geometry.to_width; ++x, to_rgb += 3) to_rgb[0] = r[x], to_rgb[1] = g[x], to_rgb[2] = b[x];
  }
  return image;
}

// log2 of 1 and 2; else 2.
unsigned log_of(int sampling) {
  return sampling == 1 ? 0 : sampling == 2 ? 1 : 2;
}

}  // namespace

std::optional<Image> decode_jpeg_resized(std::string_view bytes, int width, int height, const DecodeLimits& limits) {
  JpegReader jpeg;
  jpeg.open(bytes, limits);
  jpeg_decompress_struct& info = jpeg.info();
  if (info.jpeg_color_space != JCS_YCbCr || info.num_components != 3) return std::nullopt;
  const jpeg_component_info* parts = info.comp_info;
  const unsigned wide = log_of(parts[0].h_samp_factor), high = log_of(parts[0].v_samp_factor);
  if (wide > 1 || high > 1 || high > wide) return std::nullopt;
  for (int c = 1; c < 3; ++c)
    if (parts[c].h_samp_factor != 1 || parts[c].v_samp_factor != 1) return std::nullopt;
  // zimg takes pictures from a few pixels on.
  if (info.image_width < 16 || info.image_height < 16 || width < 16 || height < 16) return std::nullopt;

  const int orientation = jpeg.orientation();
  if (orientation >= 5) std::swap(width, height);
  const size_t block_rows = size_t{8} << high, block_columns = size_t{8} << wide;
  const size_t columns = (info.image_width + block_columns - 1) / block_columns * block_columns;
  const size_t rows = (info.image_height + block_rows - 1) / block_rows * block_rows;
  const std::array<Plane, 3> planes{Plane(columns, rows), Plane(columns >> wide, rows >> high), Plane(columns >> wide, rows >> high)};
  info.raw_data_out = TRUE;
  info.out_color_space = JCS_YCbCr;
  jpeg.guarded([&] { jpeg_start_decompress(&info); });
  JSAMPROW lines[3][most_rows_at_once];
  JSAMPARRAY arrays[3] = {lines[0], lines[1], lines[2]};
  jpeg.guarded([&] {
    while (info.output_scanline < info.output_height) {
      const size_t from = info.output_scanline;
      for (size_t y = 0; y < block_rows; ++y) lines[0][y] = planes[0].row(from + y);
      for (size_t p = 1; p < 3; ++p)
        for (size_t y = 0; y < 8; ++y) lines[p][y] = planes[p].row((from >> high) + y);
      jpeg_read_raw_data(&info, arrays, static_cast<JDIMENSION>(block_rows));
    }
    jpeg_finish_decompress(&info);
  });
  const Geometry geometry{info.image_width, info.image_height, wide, high, static_cast<unsigned>(width), static_cast<unsigned>(height)};
  return apply_orientation(resized(planes, geometry), orientation);
}

}  // namespace mm::data
