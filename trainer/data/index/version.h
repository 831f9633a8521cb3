// SPDX-License-Identifier: Apache-2.0
// Versions of a data set: dataset.json beside the shards, or in a folder of its own, says which shards there are, of which size
// and content, and where their indexes fit. A version is known by the hash of its shards' names, sizes and contents.
//
// Publication. A version has a number, one more than that of its parent. Its text is written to a private file, synced, and
// linked as dataset-NUMBER.json; link(2) fails where the name exists, so that of two writers that started from the same parent,
// one of them perhaps without knowing that its lock has long expired, exactly one publishes. What is published is never edited
// or removed. dataset.json is then replaced by a copy, for people, and for readers to start from: a reader goes on from the
// number that it finds there as long as there is a next one, so that a late writer's old copy misleads nobody.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/index/hash.h"

namespace mm::data {

struct IndexedShard {
  std::string name;  // without the folder; its index is NAME.mmidx in the folder of dataset.json
  int64_t size = 0, modified_ns = 0, samples = 0;
  uint64_t structure = 0;  // see ShardIndex
  Hash128 content;
};

struct Version {
  int64_t number = 0;
  Hash128 id;
  std::optional<Hash128> parent;
  std::vector<IndexedShard> shards;  // by name
};

std::string index_path(const std::string& folder, const std::string& shard_name);
// Sorts the shards and computes the id.
Version make_version(std::vector<IndexedShard> shards, const std::optional<Version>& parent);
std::string to_json(const Version& version);
// Throws a data Error that names `path` where the text is no version, or damaged.
Version parse_version(std::string_view text, const std::string& path);
// A file of that name that another program made. It is left alone.
bool is_foreign(const std::string& folder);

const IndexedShard* find_shard(const Version& version, const std::string& name);

// The newest version in a folder, or none. Throws a data Error where it is damaged.
std::optional<Version> newest_version(const std::string& folder);
// The newest version whose id begins with `id`. Throws a data Error that names those that there are.
Version find_version(const std::string& folder, const std::string& id);
// False where another writer has published a version of this number.
bool publish_version(const std::string& folder, const Version& version);

}  // namespace mm::data
