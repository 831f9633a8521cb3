// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/tensorboard.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <boost/crc.hpp>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "common/error.h"

namespace mm::loop {
namespace {

uint32_t masked_checksum(const std::string& bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  const uint32_t sum = crc.checksum();
  return ((sum >> 15) | (sum << 17)) + 0xa282ead8U;
}

template <class T>
std::string fixed(T value) {
  std::string out(sizeof value, '\0');
  ::memcpy(out.data(), &value, sizeof value);
  return out;
}

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

enum Wire { number = 0, eight_bytes = 1, bytes = 2, four_bytes = 5 };
std::string field(int id, Wire wire, const std::string& content) {
  const std::string key = varint(static_cast<uint64_t>(id) << 3 | wire);
  return wire == bytes ? key + varint(content.size()) + content : key + content;
}

std::string event(int64_t step, const std::string& what) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return field(1, eight_bytes, fixed(now)) + field(2, number, varint(static_cast<uint64_t>(step))) + what;
}

std::string scalar(const char* tag, double value) {
  return field(1, bytes, field(1, bytes, tag) + field(2, four_bytes, fixed(static_cast<float>(value))));
}

}  // namespace

EventFile::EventFile(const std::string& folder, int64_t first_step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(exit_status::usage, folder + ": " + error.message());
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::string name = folder + "/events.out.tfevents." + std::to_string(seconds) + "." + host + "." + std::to_string(::getpid());
  path_ = name;
  const auto create = [&] { return UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)); };
  fd_ = create();
  for (int again = 1; !fd_ && errno == EEXIST; ++again) {  // another start within the same second
    path_ = name + "." + std::to_string(again);
    fd_ = create();
  }
  if (!fd_) throw system_error("create " + path_, errno, exit_status::usage);
  write(event(0, field(3, bytes, "brain.Event:2")));
  constexpr uint64_t start = 1;
  if (first_step > 0) write(event(first_step, field(7, bytes, field(1, number, varint(start)))));
}

std::string EventFile::append(const StepMetrics& m) {
  std::string values = scalar("loss", m.loss) + scalar("grad_norm", m.grad_norm) + scalar("lr", m.lr) +
                       scalar("speed/step_s", m.step_s) + scalar("speed/images_s", m.images_s) +
                       scalar("speed/tokens_s", m.tokens_s) + scalar("speed/mfu", m.mfu) +
                       scalar("wait/data_s", m.data_wait_s) + scalar("wait/comm_s", m.comm_wait_s);
  return write(event(m.step, field(5, bytes, values)));
}

std::string EventFile::write(const std::string& event) {
  const std::string length = fixed(static_cast<uint64_t>(event.size()));
  const std::string record = length + fixed(masked_checksum(length)) + event + fixed(masked_checksum(event));
  const ssize_t n = ::pwrite(fd_.get(), record.data(), record.size(), length_);
  if (n == static_cast<ssize_t>(record.size())) {
    length_ += n;
    return "";
  }
  const std::string why = n < 0 ? ::strerror(errno) : "no room for a whole record";
  if (::ftruncate(fd_.get(), length_) != 0) return path_ + ": " + why + ", and it cannot be cut";
  return path_ + ": " + why;
}

}  // namespace mm::loop
