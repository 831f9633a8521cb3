// SPDX-License-Identifier: Apache-2.0
// The copies of steps that are nearer than the shared file system: in memory that the node's agent keeps, on the node's disk,
// on another node's disk. A step counts as saved in a tier when all ranks have put their file there; each node then gets the
// manifest of the whole step. Each tier may fail for itself: that is said, and the others go on.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/memory_store.h"
#include "checkpoint/node_store.h"
#include "checkpoint/peer.h"

namespace mm::checkpoint {

class NearCopies {
 public:
  // Collective. Tiers that cannot be had are left out; problems() says why.
  NearCopies(const Tiers& tiers, const std::string& run, Group& group);
  const std::vector<std::string>& problems() const { return problems_; }

  // At a save. Writes this rank's file to memory, disk and partner, in this order; returns the letters of the tiers that have
  // it (m, n, p) and its record; no letter: none has.
  std::pair<std::string, FileRecord> write(const Identity& identity, const std::vector<ConstView>& views,
                                           const WriteOptions& options);
  // All ranks have their file in `tiers`. Removes what is old.
  void commit(int64_t step, const std::string& name, const std::string& manifest, const std::string& tiers);

  // At a load: what all ranks have, the same on all of them. Collective.
  struct Step {
    int64_t step = 0, epoch = 0;
    std::string name;
    size_t ranks = 0;
    int holder = 0;  // a rank that has the manifest
    struct Copy {
      int holder = 0;
      size_t number = 0;  // in the holder's list
    };
    std::map<int, std::vector<Copy>> files;  // of each rank file
    bool complete() const { return files.size() == ranks; }
  };
  std::vector<Step> list(Group& group);
  // The manifest, on all ranks; empty where its holder cannot read it. Collective.
  std::string manifest(Group& group, const Step& step);
  // Copies of a rank file, nearest first: own ones, then those of others.
  std::vector<Place> places(const Step& step, int file, uint64_t size, bool remote) const;
  // When no rank reads any more: lets go of what it has held for that.
  void end_of_load();

 private:
  struct Own {
    int64_t step = 0;
    std::string name;
    int rank = 0;
    Place place;
  };
  std::string own_manifest(int64_t step, const std::string& name);
  void collect();

  int rank_ = 0;
  std::vector<std::string> problems_;
  std::unique_ptr<NodeStore> node_;
  std::unique_ptr<NodeStore> scavenged_;  // what was saved from nodes that left the job (checkpoint/scavenge.h)
  std::string checkpoints_;
  std::unique_ptr<MemoryStore> memory_;
  std::unique_ptr<PeerServer> server_;
  std::vector<wire::Door> doors_;  // of all ranks
  std::vector<std::string> whom_;  // for messages
  std::optional<int> partner_;     // who gets a copy of this rank's file
  std::vector<Own> own_;
};

}  // namespace mm::checkpoint
