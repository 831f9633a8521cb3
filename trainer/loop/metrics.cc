// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <string_view>

#include "common/error.h"

namespace mm::loop {
namespace {

// The step that a line is for; -1 where it is none of ours.
int64_t step_of(std::string_view line) {
  constexpr std::string_view start = "{\"step\":";
  int64_t step = -1;
  if (!line.starts_with(start) || !line.ends_with('}')) return -1;
  const auto [end, error] = std::from_chars(line.data() + start.size(), line.data() + line.size(), step);
  return error == std::errc() ? step : -1;
}

// Bytes of the lines at the start that are whole, in order and of steps below `first_step`.
int64_t kept_length(std::string_view text, int64_t first_step) {
  int64_t last = -1;
  size_t at = 0;
  for (size_t end; (end = text.find('\n', at)) != std::string_view::npos; at = end + 1) {
    const int64_t step = step_of(text.substr(at, end - at));
    if (step <= last || step >= first_step) break;
    last = step;
  }
  return static_cast<int64_t>(at);
}

std::string reason(const std::string& what, int errno_value) {
  return system_error(what, errno_value).what();
}

}  // namespace

std::string format_metrics(const StepMetrics& m) {
  std::string line = fmt::format("{{\"step\":{}", m.step);
  const auto number = [&](const char* key, double value) {
    line += std::isfinite(value) ? fmt::format(",\"{}\":{:.17g}", key, value) : fmt::format(",\"{}\":null", key);
  };
  const auto count = [&](const char* key, int64_t value) { line += fmt::format(",\"{}\":{}", key, value); };
  number("loss", m.loss);
  number("grad_norm", m.grad_norm);
  number("lr", m.lr);
  count("tokens", m.tokens);
  number("step_s", m.step_s);
  number("images_s", m.images_s);
  number("tokens_s", m.tokens_s);
  number("mfu", m.mfu);
  number("data_wait_s", m.data_wait_s);
  number("comm_wait_s", m.comm_wait_s);
  count("comm_bytes", m.comm_bytes);
  const data::StageCounters& stages = m.loader.stages;
  if (stages.budget > 0) {
    count("data_read_queue", stages.read_queue);
    count("data_decode_queue", stages.decode_queue);
    count("data_batch_queue", stages.batch_queue);
    number("data_read_wait_s", stages.read_wait);
    number("data_decode_wait_s", stages.decode_wait);
    count("data_bytes", stages.used);
    count("data_budget", stages.budget);
  }
  if (const data::CacheCounters& cache = m.loader.cache; cache.memory_hits + cache.disk_hits + cache.misses > 0) {
    count("cache_memory_hits", cache.memory_hits);
    count("cache_disk_hits", cache.disk_hits);
    count("cache_misses", cache.misses);
  }
  if (m.save_s > 0) number("save_s", m.save_s);
  if (m.failed_saves > 0) count("failed_saves", m.failed_saves);
  if (m.skipped > 0) count("skipped", m.skipped);
  if (m.rejected > 0) count("rejected", m.rejected);
  return line + "}\n";
}

MetricsFile::MetricsFile(const std::string& path, int64_t first_step)
    : path_(path), fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (!fd_) throw system_error("open " + path, errno);
  length_ = kept_length(read_file(path), first_step);
  if (::ftruncate(fd_.get(), length_) != 0) throw system_error("truncate " + path, errno);
}

std::string MetricsFile::append(const std::string& line) {
  pending_ += line;
  size_t written = 0;
  while (written < pending_.size()) {
    const ssize_t n =
        ::pwrite(fd_.get(), pending_.data() + written, pending_.size() - written, length_ + static_cast<off_t>(written));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int why = errno;
      // No half line stays.
      if (::ftruncate(fd_.get(), length_) != 0) return reason("truncate " + path_, errno);
      return reason("write " + path_, why);
    }
    written += static_cast<size_t>(n);
  }
  length_ += static_cast<int64_t>(written);
  pending_.clear();
  return "";
}

std::string MetricsFile::sync() {
  return ::fdatasync(fd_.get()) == 0 ? "" : reason("fsync " + path_, errno);
}

}  // namespace mm::loop
