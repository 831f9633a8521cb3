// SPDX-License-Identifier: Apache-2.0
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include <jpeglib.h>

#include "trainer/data/image/image.h"

namespace mm::data {
namespace {

struct Failure {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto& failure = *static_cast<Failure*>(info->client_data);
  (*info->err->format_message)(info, failure.text);
  std::longjmp(failure.jump, 1);
}

// Owns the compressor and what it wrote.
struct Writer {
  jpeg_compress_struct info{};
  Failure failure{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;

  Writer() {
    info.err = jpeg_std_error(&failure.manager);
    failure.manager.error_exit = on_error;
    info.client_data = &failure;
    jpeg_create_compress(&info);
  }
  ~Writer() {
    jpeg_destroy_compress(&info);
    std::free(bytes);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
};

}  // namespace

std::string encode_jpeg(const Image& image, int quality) {
  Writer writer;
  jpeg_compress_struct& info = writer.info;
  if (setjmp(writer.failure.jump) != 0) throw std::runtime_error(std::string("JPEG: ") + writer.failure.text);
  jpeg_mem_dest(&info, &writer.bytes, &writer.size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  info.optimize_coding = TRUE;
  jpeg_start_compress(&info, TRUE);
  const size_t stride = static_cast<size_t>(image.width) * 3;
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(&image.rgb[info.next_scanline * stride]);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  return std::string(reinterpret_cast<const char*>(writer.bytes), writer.size);
}

}  // namespace mm::data
