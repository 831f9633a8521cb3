// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/image/jpeg_reader.h"

#include <jerror.h>

namespace mm::data {
namespace {

constexpr int most_scans = 500;  // a small progressive file can ask for a scan of every pixel thousands of times

JpegReader::Failure& failure_of(j_common_ptr info) {
  return *static_cast<JpegReader::Failure*>(info->client_data);
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

}  // namespace

JpegReader::JpegReader() {
  info_.err = jpeg_std_error(&failure_.manager);
  failure_.manager.error_exit = on_error;
  failure_.manager.emit_message = on_message;
  info_.client_data = &failure_;
  guarded([&] { jpeg_create_decompress(&info_); });
}

void JpegReader::open(std::string_view bytes, const DecodeLimits& limits) {
  progress_.progress_monitor = on_progress;
  info_.progress = &progress_;
  guarded([&] {
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<unsigned long>(bytes.size()));
    jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&info_, TRUE);
  });
  check_size(info_.image_width, info_.image_height, limits);
}

int JpegReader::orientation() const {
  for (jpeg_saved_marker_ptr m = info_.marker_list; m != nullptr; m = m->next) {
    const std::string_view block(reinterpret_cast<const char*>(m->data), m->data_length);
    if (block.starts_with(std::string_view("Exif\0", 5))) return exif_orientation(block);
  }
  return 1;
}

}  // namespace mm::data
