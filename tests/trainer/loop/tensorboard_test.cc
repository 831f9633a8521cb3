// SPDX-License-Identifier: Apache-2.0
// The events are read back by a reader of the test's own, with a bitwise checksum.
#include "trainer/loop/tensorboard.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/files.h"

namespace mm::loop {
namespace {

struct Folder {
  const std::string path =
      std::filesystem::temp_directory_path() / ("mm-events-" + std::to_string(::getpid()) + "-" + std::to_string(made++));
  ~Folder() { std::filesystem::remove_all(path); }
  static inline int made = 0;
};

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78U : 0);
  }
  return ~crc;
}

template <class T>
T take(std::string_view& from) {
  T value;
  std::memcpy(&value, from.data(), sizeof value);
  from.remove_prefix(sizeof value);
  return value;
}

uint64_t take_varint(std::string_view& from) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<uint8_t>(from);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

// Fields by number; the last of each, but all of those of `repeated`.
std::multimap<int, std::string> fields(std::string_view message) {
  std::multimap<int, std::string> out;
  while (!message.empty()) {
    const uint64_t key = take_varint(message);
    const size_t size = (key & 7) == 2 ? take_varint(message) : (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : 0;
    if ((key & 7) == 0) {
      out.emplace(static_cast<int>(key >> 3), std::to_string(take_varint(message)));
      continue;
    }
    out.emplace(static_cast<int>(key >> 3), std::string(message.substr(0, size)));
    message.remove_prefix(size);
  }
  return out;
}

std::vector<std::multimap<int, std::string>> events_of(const std::string& folder) {
  std::string bytes;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) bytes += read_file(entry.path());
  std::string_view left = bytes;
  std::vector<std::multimap<int, std::string>> events;
  while (!left.empty()) {
    const std::string_view head = left.substr(0, 8);
    const auto length = take<uint64_t>(left);
    const auto unmasked = [](uint32_t sum) { return (sum - 0xa282ead8U) << 15 | (sum - 0xa282ead8U) >> 17; };
    EXPECT_EQ(unmasked(take<uint32_t>(left)), crc32c(head));
    const std::string_view event = left.substr(0, length);
    left.remove_prefix(length);
    EXPECT_EQ(unmasked(take<uint32_t>(left)), crc32c(event));
    events.push_back(fields(event));
  }
  return events;
}

TEST(TensorBoard, ScalarsOfEachStepAndWhereARestartBegins) {
  ASSERT_EQ(crc32c("123456789"), 0xE3069283U);
  const Folder folder;
  EventFile file(folder.path + "/tensorboard", 300);
  StepMetrics metrics;
  metrics.step = 300;
  metrics.loss = 1.5;
  metrics.lr = 0.25;
  EXPECT_EQ(file.append(metrics), "");
  const auto events = events_of(folder.path + "/tensorboard");
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].find(3)->second, "brain.Event:2");
  EXPECT_EQ(events[1].find(2)->second, "300");
  EXPECT_EQ(fields(events[1].find(7)->second).find(1)->second, "1");  // SessionLog.START: forget what comes after
  EXPECT_EQ(events[2].find(2)->second, "300");
  std::map<std::string, float> scalars;
  for (const auto& [id, value] : fields(events[2].find(5)->second)) {
    const auto parts = fields(value);
    std::string_view number = parts.find(2)->second;
    scalars[parts.find(1)->second] = take<float>(number);
  }
  EXPECT_EQ(scalars["loss"], 1.5F);
  EXPECT_EQ(scalars["lr"], 0.25F);
  EXPECT_TRUE(scalars.contains("grad_norm") && scalars.contains("speed/images_s") && scalars.contains("wait/data_s"));
}

TEST(TensorBoard, TwoStartsWithinASecondHaveAFileEach) {
  const Folder folder;
  { const EventFile first(folder.path, 0); }
  { const EventFile second(folder.path, 5); }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 2);
}

TEST(TensorBoard, ADiskThatTakesNoMoreLosesWholeRecordsOnly) {
  const Folder folder;
  EventFile file(folder.path, 0);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{500, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  std::string why;
  int written = 0;
  for (StepMetrics metrics; why.empty() && written < 100; ++written) why = file.append(metrics);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  EXPECT_NE(why.find("events.out.tfevents"), std::string::npos) << why;
  EXPECT_EQ(events_of(folder.path).size(),
            static_cast<size_t>(written));  // the first is the version's, the last is not there
  EXPECT_EQ(file.append({}), "");
}

}  // namespace
}  // namespace mm::loop
