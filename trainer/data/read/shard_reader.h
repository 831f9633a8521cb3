// SPDX-License-Identifier: Apache-2.0
// The source at the end of every chain: the shards' own files. Requests are merged and read at once.
//
// A read that fails is tried again a few times, a stale handle (a server of NFS that was restarted) after the file was opened
// anew: what fails once and then works is nobody's business, and what goes on failing is an Error with status 70, since another
// node's disk may be well. A shard that is no longer the one that was opened is a data Error.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "trainer/data/read/byte_source.h"
#include "trainer/data/read/engine.h"
#include "trainer/data/read/merge.h"
#include "trainer/data/shard_files.h"

namespace mm::data {

class ShardReader : public ByteSource {
 public:
  explicit ShardReader(std::vector<Shard> shards, ReadEngine::Kind kind = ReadEngine::Kind::automatic, MergeRule rule = {});
  ~ShardReader() override;
  void read(std::span<const Request> requests) override;

 private:
  void read_wave(std::span<const MergedRead> reads, std::span<const Request> requests);
  void finish(uint32_t shard, FileRead& read);
  std::unique_ptr<ReadEngine> take_engine();

  const std::vector<Shard> shards_;
  const ReadEngine::Kind kind_;
  const MergeRule rule_;
  ShardFiles files_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ReadEngine>> idle_;  // one for each thread that reads
};

}  // namespace mm::data
