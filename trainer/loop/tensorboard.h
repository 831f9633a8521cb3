// SPDX-License-Identifier: Apache-2.0
// RUN/tensorboard: the numbers of metrics.jsonl as scalars that TensorBoard draws. Each start of a run has a file of its own,
// which tells TensorBoard to forget what earlier files say of the steps that are done again.
//
// A file is a sequence of records: length (uint64), its checksum, an Event message, its checksum; little-endian, CRC-32C masked
// as TensorFlow's record format does. Of the Event message (tensorflow/core/util/event.proto) these fields are written: 1
// wall_time, 2 step, 3 file_version, 5 summary, 7 session_log.
#pragma once

#include <cstdint>
#include <string>

#include "common/files.h"
#include "trainer/loop/metrics.h"

namespace mm::loop {

class EventFile {
 public:
  // Throws an Error that names the file.
  EventFile(const std::string& folder, int64_t first_step);
  // The reason where the disk does not take it, else "". A record is written whole or not at all; one that was not is lost.
  std::string append(const StepMetrics& metrics);

 private:
  std::string write(const std::string& event);

  std::string path_;
  UniqueFd fd_;
  int64_t length_ = 0;
};

}  // namespace mm::loop
