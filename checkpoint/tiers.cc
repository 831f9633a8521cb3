// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "checkpoint/folder.h"
#include "checkpoint/io.h"
#include "checkpoint/scavenge.h"

namespace mm::checkpoint {
namespace {

constexpr int kept_steps = 2;

// The next rank on another node.
std::optional<int> partner_of(int rank, const std::vector<std::string>& nodes) {
  const int n = static_cast<int>(nodes.size());
  for (int i = 1; i < n; ++i) {
    const int other = (rank + i) % n;
    if (nodes[static_cast<size_t>(other)] != nodes[static_cast<size_t>(rank)]) return other;
  }
  return std::nullopt;
}

}  // namespace

NearCopies::NearCopies(const Tiers& tiers, const std::string& run, Group& group) : rank_(group.rank()), checkpoints_(run) {
  const auto attempt = [&](const char* what, auto&& make) {
    try {
      make();
    } catch (const std::exception& e) {
      problems_.push_back(fmt::format("rank {}: no {}: {}", rank_, what, e.what()));
    }
  };
  if (!tiers.node_folder.empty())
    attempt("copies on the node's disk", [&] {
      node_ = std::make_unique<NodeStore>(tiers.node_folder, run);
      node_->remove_private();
    });
  if (!tiers.memory_socket.empty())
    attempt("copies in memory", [&] { memory_ = std::make_unique<MemoryStore>(tiers.memory_socket, tiers.job, run); });
  const std::string scavenged = scavenged_folder(run);
  if (io::is_folder(scavenged)) attempt("copies of nodes that left", [&] { scavenged_ = std::make_unique<NodeStore>(scavenged, run); });
  attempt("connections for copies", [&] { server_ = std::make_unique<PeerServer>(tiers.peer ? node_.get() : nullptr); });
  const std::string node = tiers.node_name.empty() ? wire::host_name() : tiers.node_name;
  std::vector<std::string> nodes;
  bool all_can = true;
  for (const std::string& text :
       group.all_gather(wire::pack({node, server_ ? wire::text_of(server_->door()) : "", tiers.peer && node_ ? "1" : "0"}))) {
    const std::vector<std::string> parts = wire::unpack(text);
    nodes.push_back(parts.at(0));
    doors_.push_back(parts.at(1).empty() ? wire::Door{} : wire::parse_door(parts[1]));
    whom_.push_back(fmt::format("rank {} on {}", whom_.size(), parts[0]));
    all_can = all_can && parts.at(2) == "1";
  }
  if (tiers.peer && all_can) partner_ = partner_of(rank_, nodes);
}

std::pair<std::string, FileRecord> NearCopies::write(const Identity& identity, const std::vector<ConstView>& views,
                                                     const WriteOptions& options) {
  std::string tiers;
  FileRecord record;
  problems_.clear();
  const auto attempt = [&](char letter, const char* what, auto&& put) {
    try {
      put();
      tiers += letter;
    } catch (const std::exception& e) {
      problems_.push_back(fmt::format("rank {}: no copy {}: {}", rank_, what, e.what()));
    }
  };
  if (memory_) attempt('m', "in memory", [&] { record = memory_->write(identity, views, options); });
  if (!node_) return {tiers, record};
  std::string path;
  attempt('n', "on the node's disk", [&] {
    const std::string folder = node_->private_folder(identity.step, identity.writer);
    record = write_rank_file(folder + "/" + rank_file_name(identity.rank), identity, views, options);
    io::sync_folder(folder);
    path = folder + "/" + rank_file_name(identity.rank);
  });
  if (partner_ && !path.empty()) {
    attempt('p', "on another node", [&] {
      const auto to = static_cast<size_t>(*partner_);
      give_copy(doors_[to], whom_[to], path, identity.step, identity.writer, identity.rank, identity.ranks, record);
    });
  }
  return {tiers, record};
}

void NearCopies::commit(int64_t step, const std::string& name, const std::string& manifest, const std::string& tiers) {
  const auto attempt = [&](auto&& f) {
    try {
      f();
    } catch (const std::exception& e) {
      problems_.push_back(fmt::format("rank {}: {}", rank_, e.what()));
    }
  };
  if (memory_ && tiers.find('m') != std::string::npos) {
    attempt([&] {
      memory_->commit(step, name, manifest);
      memory_->remove_old(kept_steps, step);
    });
  }
  if (node_ && tiers.find('n') != std::string::npos) {
    attempt([&] {
      node_->commit(step, name, manifest);
      node_->remove_old(kept_steps, step);
    });
  }
  if (scavenged_ && rank_ == 0) attempt([&] { io::remove_tree(scavenged_folder(checkpoints_)); });
  scavenged_.reset();
}

// What this rank can reach without a network: memory first.
void NearCopies::collect() {
  own_.clear();
  const auto rank_of = [](const std::string& file) {
    int rank = -1;
    if (file.size() > 5) std::from_chars(file.data() + 5, file.data() + file.size(), rank);
    return rank;
  };
  try {
    if (memory_) {
      for (const MemoryStore::Copy& c : memory_->list()) {
        if (c.file.starts_with("rank-")) own_.push_back({c.step, c.name, rank_of(c.file), memory_->place(c)});
      }
    }
  } catch (const Error& e) {
    problems_.push_back(e.what());
  }
  try {
    for (const NodeStore* store : {node_.get(), scavenged_.get()}) {
      if (store == nullptr) continue;
      for (const NodeStore::Copy& c : store->list()) own_.push_back({c.step, c.name, c.rank, place_of_file(c.path)});
    }
  } catch (const Error& e) {
    problems_.push_back(e.what());
  }
}

std::string NearCopies::own_manifest(int64_t step, const std::string& name) {
  if (memory_) {
    try {
      return memory_->read_manifest(step, name);
    } catch (const Error&) {
    }
  }
  for (const NodeStore* store : {node_.get(), scavenged_.get()}) {
    if (store == nullptr) continue;
    try {
      return store->read_manifest(step, name);
    } catch (const Error&) {
    }
  }
  return "";
}

std::vector<NearCopies::Step> NearCopies::list(Group& group) {
  collect();
  std::vector<Place> offered;
  std::map<std::pair<int64_t, std::string>, std::pair<int64_t, size_t>> manifests;  // -> epoch, ranks; of those that hold
  std::string mine;
  for (const Own& o : own_) {
    const auto [at, is_new] = manifests.try_emplace({o.step, o.name}, 0, 0);
    if (is_new) {
      try {
        const Manifest m = parse_manifest(own_manifest(o.step, o.name), o.place.name);
        if (m.step == o.step && m.writer == o.name) at->second = {m.epoch, m.files.size()};
      } catch (const std::exception&) {
        // Without a manifest its files are of no use from here.
      }
    }
    const auto [epoch, ranks] = at->second;
    mine += fmt::format("{} {} {} {} {}\n", o.step, o.name, o.rank, epoch, ranks);
    offered.push_back(o.place);
  }
  if (server_) server_->offer(std::move(offered));

  std::map<std::pair<int64_t, std::string>, Step> steps;
  int holder = 0;
  for (const std::string& text : group.all_gather(mine)) {
    std::istringstream in(text);
    int64_t step = 0, epoch = 0;
    std::string name;
    int rank = 0;
    size_t ranks = 0;
    for (size_t number = 0; in >> step >> name >> rank >> epoch >> ranks; ++number) {
      Step& s = steps[{step, name}];
      if (ranks > 0 && s.ranks == 0) {
        s.ranks = ranks;
        s.epoch = epoch;
        s.holder = holder;
      }
      s.step = step;
      s.name = name;
      s.files[rank].push_back({holder, number});
    }
    ++holder;
  }
  std::vector<Step> out;
  for (auto& [key, s] : steps) {
    if (s.ranks > 0) out.push_back(std::move(s));
  }
  return out;
}

void NearCopies::end_of_load() {
  if (server_) server_->offer({});
  own_.clear();
}

std::string NearCopies::manifest(Group& group, const Step& step) {
  const std::string mine = rank_ == step.holder ? own_manifest(step.step, step.name) : "";
  return group.all_gather(mine).at(static_cast<size_t>(step.holder));
}

std::vector<Place> NearCopies::places(const Step& step, int file, uint64_t size, bool remote) const {
  std::vector<Place> out;
  const auto found = step.files.find(file);
  if (found == step.files.end()) return out;
  for (const Step::Copy& c : found->second) {
    if (!remote && c.holder == rank_) out.push_back(own_.at(c.number).place);
    const auto holder = static_cast<size_t>(c.holder);
    if (remote && c.holder != rank_ && doors_.at(holder).port != 0)
      out.push_back(remote_place(doors_[holder], whom_[holder], c.number, size));
  }
  return out;
}

}  // namespace mm::checkpoint
