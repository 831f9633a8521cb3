// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/source.h"

namespace mm::checkpoint {
namespace {

class FileSource : public Source {
 public:
  explicit FileSource(io::File file) : file_(std::move(file)) {}
  uint64_t size() const override { return file_.size(); }
  void read(void* data, size_t bytes, uint64_t offset) override { file_.read(data, bytes, offset); }
  void will_need(uint64_t offset, uint64_t bytes) noexcept override { file_.will_need(offset, bytes); }

 private:
  io::File file_;
};

}  // namespace

Place place_of_file(const std::string& path) {
  return {path, [path] { return std::make_unique<FileSource>(io::File::open(path)); }};
}

}  // namespace mm::checkpoint
