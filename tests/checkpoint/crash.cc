// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/crash.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace mm::checkpoint::test {
namespace {

constexpr uint64_t page_bytes = 4096;

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

CrashModel::CrashModel(std::string root) : root_(std::move(root)) {
  io::set_hook([this](const io::Operation& o) {
    const std::string prefix = root_ + "/";
    if (o.path != root_ && !o.path.starts_with(prefix)) return io::Fault{};
    const auto below = [&](const std::string& path) { return path.size() > prefix.size() ? path.substr(prefix.size()) : ""; };
    const std::lock_guard lock(mutex_);
    operations_.push_back(
        {o.op, below(o.path), below(o.to), o.data != nullptr ? std::string(o.data, o.bytes) : "", o.offset, o.bytes});
    return io::Fault{};
  });
}

CrashModel::~CrashModel() {
  io::set_hook({});
}

void CrashModel::stop() {
  io::set_hook({});
  analyse();
}

void CrashModel::forget_syncs_of(const std::string& name, size_t begin) {
  for (size_t k = begin; k < operations_.size(); ++k) {
    Operation& o = operations_[k];
    if (o.op == io::Op::sync && o.path.ends_with("/" + name)) o.op = io::Op::list;
  }
}

size_t CrashModel::size() {
  const std::lock_guard lock(mutex_);
  return operations_.size();
}

bool CrashModel::syncs_folder(size_t k, const std::string& folder) const {
  return operations_[k].op == io::Op::sync_folder && operations_[k].path == folder;
}

int CrashModel::find(const std::string& path) const {
  if (path.empty()) return 0;
  const auto found = live_.find(path);
  return found == live_.end() ? -1 : found->second;
}

// Each path is set to an inode, or removed; all in one folder, in one change.
void CrashModel::change_names(size_t operation, const std::vector<std::pair<std::string, int>>& paths) {
  Change c;
  c.kind = Change::Kind::names;
  c.operation = operation;
  c.inode = find(parent_of(paths[0].first));
  if (c.inode < 0) return;
  // What lies below a moved folder moves with it.
  std::map<std::string, int> moved;
  const std::map<std::string, int> before = live_;
  for (const auto& [path, inode] : paths) {
    if (find(parent_of(path)) != c.inode) throw std::logic_error("a rename between folders: " + path);
    c.names.emplace_back(name_of(path), inode);
    std::erase_if(live_, [&](const auto& l) { return l.first == path || l.first.starts_with(path + "/"); });
    if (inode < 0) continue;
    moved[path] = inode;
    for (const auto& [old, i] : before) {
      if (i != inode) continue;
      for (const auto& [below, j] : before) {
        if (below.starts_with(old + "/")) moved[path + below.substr(old.size())] = j;
      }
    }
  }
  live_.merge(moved);
  changes_.push_back(std::move(c));
}

void CrashModel::analyse() {
  is_folder_ = {true};
  for (size_t k = 0; k < operations_.size(); ++k) {
    const Operation& o = operations_[k];
    const int inode = find(o.path);
    switch (o.op) {
      case io::Op::create:
      case io::Op::make_folder:
        if (inode >= 0) break;  // it was there
        is_folder_.push_back(o.op == io::Op::make_folder);
        change_names(k, {{o.path, static_cast<int>(is_folder_.size()) - 1}});
        break;
      case io::Op::allocate: {
        Change c{Change::Kind::length, k, inode, 0, "", o.bytes, {}};
        changes_.push_back(std::move(c));
        break;
      }
      case io::Op::write: {
        changes_.push_back({Change::Kind::length, k, inode, 0, "", o.offset + o.bytes, {}});
        for (uint64_t at = 0; at < o.bytes;) {
          const uint64_t n = std::min(o.bytes - at, page_bytes - (o.offset + at) % page_bytes);
          changes_.push_back({Change::Kind::data, k, inode, o.offset + at, o.data.substr(at, n), 0, {}});
          at += n;
        }
        break;
      }
      case io::Op::sync:
      case io::Op::sync_folder:
        for (Change& c : changes_) {
          if (c.inode == inode && c.durable_from == SIZE_MAX) c.durable_from = k + 1;
        }
        break;
      case io::Op::rename:
        if (inode >= 0) change_names(k, {{o.path, -1}, {o.to, inode}});
        break;
      case io::Op::exchange:
        change_names(k, {{o.path, find(o.to)}, {o.to, inode}});
        break;
      case io::Op::link:
        if (find(o.to) < 0) change_names(k, {{o.to, inode}});
        break;
      case io::Op::remove:
        if (inode >= 0) change_names(k, {{o.path, -1}});
        break;
      default:
        break;
    }
  }
}

std::vector<CrashModel::Pending> CrashModel::pending(size_t prefix) const {
  std::vector<Pending> out;
  for (size_t i = 0; i < changes_.size() && changes_[i].operation < prefix; ++i) {
    if (changes_[i].durable_from > prefix) out.push_back({i, changes_[i].kind == Change::Kind::names});
  }
  return out;
}

void CrashModel::write_folder(int inode, const std::map<int, std::map<std::string, int>>& names,
                              const std::map<int, std::string>& contents, const std::string& target, int depth) const {
  if (depth > 8) throw std::logic_error("folders too deep at " + target);
  std::filesystem::create_directory(target);
  const auto here = names.find(inode);
  if (here == names.end()) return;
  for (const auto& [name, child] : here->second) {
    const std::string path = target + "/" + name;
    if (is_folder_[static_cast<size_t>(child)]) {
      write_folder(child, names, contents, path, depth + 1);
      continue;
    }
    const auto content = contents.find(child);
    std::ofstream(path, std::ios::binary) << (content == contents.end() ? std::string() : content->second);
  }
}

void CrashModel::build(size_t prefix, const std::function<bool(size_t)>& keep, const std::function<size_t(size_t)>& torn,
                       const std::string& target) const {
  std::map<int, std::map<std::string, int>> names;
  std::map<int, uint64_t> lengths;
  std::vector<size_t> data;
  for (size_t i = 0; i < changes_.size() && changes_[i].operation < prefix; ++i) {
    const Change& c = changes_[i];
    if (c.durable_from > prefix && !keep(i)) continue;
    switch (c.kind) {
      case Change::Kind::names:
        for (const auto& [name, inode] : c.names) {
          if (inode < 0)
            names[c.inode].erase(name);
          else
            names[c.inode][name] = inode;
        }
        break;
      case Change::Kind::length:
        lengths[c.inode] = std::max(lengths[c.inode], c.length);
        break;
      case Change::Kind::data:
        data.push_back(i);
        break;
    }
  }
  std::map<int, std::string> contents;
  for (const auto& [inode, length] : lengths) contents[inode].resize(length, '\0');
  for (const size_t i : data) {
    const Change& c = changes_[i];
    std::string& file = contents[c.inode];
    size_t n = c.durable_from > prefix ? std::min(torn(i), c.data.size()) : c.data.size();
    if (c.offset >= file.size()) continue;
    n = std::min<size_t>(n, file.size() - c.offset);
    file.replace(c.offset, n, c.data, 0, n);
  }
  write_folder(0, names, contents, target, 0);
}

}  // namespace mm::checkpoint::test
