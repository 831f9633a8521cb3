// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/read/shard_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "common/error.h"
#include "common/log.h"

namespace mm::data {
namespace {

constexpr int most_tries = 4;
constexpr std::chrono::milliseconds first_pause{20};  // doubles
constexpr int64_t wave_bytes = int64_t{8} << 20;      // read at once, which bounds the memory for what is read beside

}  // namespace

ShardReader::ShardReader(std::vector<Shard> shards, ReadEngine::Kind kind, MergeRule rule) : shards_(std::move(shards)), kind_(kind), rule_(rule) {}
ShardReader::~ShardReader() = default;

std::unique_ptr<ReadEngine> ShardReader::take_engine() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<ReadEngine> engine = std::move(idle_.back());
      idle_.pop_back();
      return engine;
    }
  }
  return std::make_unique<ReadEngine>(kind_);
}

void ShardReader::read(std::span<const Request> requests) {
  const std::vector<MergedRead> reads = merge_requests(requests, rule_);
  for (size_t begin = 0, end = 0; begin < reads.size(); begin = end) {
    int64_t bytes = 0;
    while (end < reads.size() && (end == begin || bytes + reads[end].size <= wave_bytes)) bytes += reads[end++].size;
    read_wave(std::span(reads).subspan(begin, end - begin), requests);
  }
}

void ShardReader::read_wave(std::span<const MergedRead> reads, std::span<const Request> requests) {
  std::vector<std::shared_ptr<const UniqueFd>> files(reads.size());
  std::vector<std::string> beside(reads.size());  // where a read serves several
  std::vector<FileRead> work(reads.size());
  for (size_t i = 0; i < reads.size(); ++i) {
    const MergedRead& m = reads[i];
    const Request& first = requests[m.requests.front()];
    files[i] = files_.get(m.shard, shards_[m.shard]);
    std::span<char> to;
    if (m.requests.size() == 1) {
      to = first.to.subspan(static_cast<size_t>(m.offset - first.offset), static_cast<size_t>(m.size));
    } else {
      beside[i].resize(static_cast<size_t>(m.size));
      to = beside[i];
    }
    work[i] = {files[i]->get(), &shards_[m.shard].path, m.offset, to};
  }
  std::unique_ptr<ReadEngine> engine = take_engine();
  engine->run(work);
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(engine));
  }
  for (size_t i = 0; i < reads.size(); ++i) {
    finish(reads[i].shard, work[i]);
    if (reads[i].requests.size() == 1) continue;
    for (const uint32_t r : reads[i].requests)
      std::memcpy(requests[r].to.data(), beside[i].data() + (requests[r].offset - reads[i].offset), requests[r].to.size());
  }
}

void ShardReader::finish(uint32_t id, FileRead& read) {
  const Shard& shard = shards_[id];
  std::shared_ptr<const UniqueFd> file;
  ReadEngine plain(ReadEngine::Kind::plain);
  auto pause = first_pause;
  for (int tried = 1; read.error != 0 && tried < most_tries; ++tried, pause *= 2) {
    log::warn("data: read {} at offset {}: {}; it is tried again", shard.path, read.offset, std::strerror(read.error));
    std::this_thread::sleep_for(pause);
    if (read.error == ESTALE) {
      files_.forget(id);
      file = files_.get(id, shard);
      read.fd = file->get();
    }
    read.error = 0;
    plain.run({&read, 1});
  }
  if (read.error != 0) throw system_error(fmt::format("data: read {} at offset {}", shard.path, read.offset), read.error);
  if (read.done < read.to.size())
    throw data_error(fmt::format("data: {}: offset {}: cut short since it was opened", shard.path, read.offset + static_cast<int64_t>(read.done)));
}

}  // namespace mm::data
