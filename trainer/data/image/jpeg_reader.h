// SPDX-License-Identifier: Apache-2.0
// JPEG through the libjpeg API, because only there a warning can be told from an error and one warning from another: a file cut
// short is "only" a warning, and so is junk between markers, which viewers pass over.
#pragma once

#include <csetjmp>
#include <cstdio>
#include <string_view>

#include <jpeglib.h>

#include "common/error.h"
#include "trainer/data/image/decode.h"

namespace mm::data {

// Owns the decompressor. A longjmp of the library ends in `guarded`, whose callers keep only trivial objects on the stack below
// it.
class JpegReader {
 public:
  JpegReader();
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Reads the header and checks its size.
  void open(std::string_view bytes, const DecodeLimits& limits);
  // As EXIF says; 1 where it does not.
  int orientation() const;
  jpeg_decompress_struct& info() { return info_; }

  template <class Body>
  void guarded(const Body& body) {
    if (setjmp(failure_.jump) != 0) throw data_error(failure_.text);
    body();
  }

  struct Failure {
    jpeg_error_mgr manager;
    std::jmp_buf jump;
    char text[JMSG_LENGTH_MAX];
  };

 private:
  jpeg_decompress_struct info_{};
  Failure failure_{};
  jpeg_progress_mgr progress_{};
};

}  // namespace mm::data
