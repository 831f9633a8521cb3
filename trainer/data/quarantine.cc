// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/quarantine.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {
namespace {

// A reason may quote what it found.
std::string without_quotes(std::string_view reason) {
  std::string out;
  bool quoted = false;
  for (const char c : reason) {
    if (c == '"') quoted = !quoted;
    if (!quoted || c == '"') out += c;
  }
  return out;
}

}  // namespace

void Quarantine::open() {
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
  file_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!file_) throw system_error("data: create " + path_, errno);
  std::istringstream lines(read_file(path_));
  for (std::string line; std::getline(lines, line);) known_.insert(line);
}

void Quarantine::add(const Dataset& dataset, int64_t sample, std::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (path_.empty() || failed_) return;
  const std::string_view key = dataset.key(sample);
  int64_t offset = INT64_MAX;
  for (const Part& part : dataset.parts(sample)) offset = std::min(offset, part.offset);
  const std::string line = fmt::format("{{\"key_hash\": \"{:016x}\", \"shard\": {}, \"offset\": {}, \"reason\": {}}}", XXH3_64bits(key.data(), key.size()),
                                       json_string(dataset.shard_of(sample).path), offset, json_string(without_quotes(reason)));
  try {
    if (!file_) open();
    if (!known_.insert(line).second) return;
    const std::string text = line + "\n";
    if (::write(file_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) throw system_error("data: write " + path_, errno);
  } catch (const std::exception& error) {
    failed_ = true;
    log::warn("{}; samples that cannot be used are named in the log alone", error.what());
  }
}

}  // namespace mm::data
