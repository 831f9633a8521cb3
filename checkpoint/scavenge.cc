// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/scavenge.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "checkpoint/folder.h"
#include "checkpoint/hash.h"
#include "checkpoint/memory_store.h"
#include "checkpoint/node_store.h"
#include "checkpoint/rank_file.h"

namespace mm::checkpoint {
namespace {

using Step = std::pair<int64_t, std::string>;  // step and name of its save

struct Found {
  std::map<Step, std::string> manifests;
  std::map<Step, std::map<std::string, std::vector<Place>>> files;  // by rank file, nearest first
};

void take_memory(MemoryStore& memory, Found& found) {
  for (const MemoryStore::Copy& c : memory.list()) {
    const Step step{c.step, c.name};
    if (c.file == "manifest.json")
      found.manifests.try_emplace(step, memory.read_manifest(c.step, c.name));
    else
      found.files[step][c.file].push_back(memory.place(c));
  }
}

void take_disk(const NodeStore& node, Found& found) {
  for (const NodeStore::Copy& c : node.list()) {
    const Step step{c.step, c.name};
    found.manifests.try_emplace(step, node.read_manifest(c.step, c.name));
    found.files[step][rank_file_name(c.rank)].push_back(place_of_file(c.path));
  }
}

void copy(const Place& place, const std::string& path) {
  const std::unique_ptr<Source> source = place.open();
  io::File file = io::File::create(path);
  std::vector<char> piece;
  for (uint64_t at = 0; at < source->size(); at += piece.size()) {
    piece.resize(std::min(block_bytes, source->size() - at));
    source->read(piece.data(), piece.size(), at);
    file.write(piece.data(), piece.size(), at);
  }
  file.sync();
  file.close();
}

// What keeps the copy from being used; empty where it is there.
std::string try_copy(const Place& place, const std::string& folder, int rank, const Manifest& manifest) {
  const std::string temporary = folder + "/.copy-" + new_writer();
  try {
    copy(place, temporary);
    check_rank_file(temporary, manifest.files.at(static_cast<size_t>(rank)),
                    {manifest.writer, manifest.step, rank, static_cast<int>(manifest.files.size())});
    io::rename(temporary, folder + "/" + rank_file_name(rank));
    return "";
  } catch (const BadStep& e) {
    io::remove_tree(temporary);
    return place.name + ": " + e.what();
  }
}

}  // namespace

std::string scavenged_folder(const std::string& checkpoints) {
  return checkpoints + "/.scavenged";
}

Scavenged scavenge(const std::string& run, const Tiers& tiers) {
  const std::string checkpoints = RunFolder(run, false).path();
  Scavenged out;
  Found found;
  const auto attempt = [&](auto&& f) {
    try {
      f();
    } catch (const Error& e) {
      out.problems.emplace_back(e.what());
    }
  };
  std::optional<MemoryStore> memory;
  if (!tiers.memory_socket.empty()) attempt([&] { take_memory(memory.emplace(tiers.memory_socket, tiers.job, checkpoints), found); });
  if (!tiers.node_folder.empty()) attempt([&] { take_disk(NodeStore(tiers.node_folder, checkpoints), found); });
  if (found.manifests.empty()) return out;
  const NodeStore target(scavenged_folder(checkpoints), checkpoints);
  for (const auto& [step, text] : found.manifests) {
    Manifest manifest;
    try {
      manifest = parse_manifest(text, step_name(step.first) + "'s manifest on this node");
    } catch (const BadStep& e) {
      out.problems.emplace_back(e.what());
      continue;
    }
    const std::string folder = target.committed_folder(step.first, step.second);
    io::make_folder(folder);
    for (int rank = 0; rank < static_cast<int>(manifest.files.size()); ++rank) {
      const auto copies = found.files[step].find(rank_file_name(rank));
      if (copies == found.files[step].end() || io::exists(folder + "/" + rank_file_name(rank))) continue;
      for (const Place& place : copies->second) {
        const std::string problem = try_copy(place, folder, rank, manifest);
        if (!problem.empty()) {
          out.problems.push_back(problem);
          continue;
        }
        ++out.files;
        out.bytes += manifest.files[static_cast<size_t>(rank)].payload;
        out.newest = std::max(out.newest, step.first);
        break;
      }
    }
    if (!io::exists(folder + "/manifest.json")) {
      const std::string temporary = folder + "/.manifest." + new_writer();
      io::write_file(temporary, text);
      io::rename(temporary, folder + "/manifest.json");
    }
    io::sync_folder(folder);
  }
  return out;
}

}  // namespace mm::checkpoint
