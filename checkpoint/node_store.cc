// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/node_store.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <system_error>

#include "checkpoint/folder.h"
#include "checkpoint/io.h"

namespace mm::checkpoint {
namespace {

constexpr uint64_t most_manifest_bytes = uint64_t{256} << 20;

// "step-0000012.NAME"
std::optional<std::pair<int64_t, std::string>> parse_step(const std::string& folder) {
  const size_t dot = folder.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  const auto step = step_of_name(folder.substr(0, dot));
  if (!step) return std::nullopt;
  return std::pair(*step, folder.substr(dot + 1));
}

std::optional<int> rank_of(const std::string& file) {
  int rank = 0;
  constexpr std::string_view prefix = "rank-";
  if (!file.starts_with(prefix)) return std::nullopt;
  std::from_chars(file.data() + prefix.size(), file.data() + file.size(), rank);
  return rank_file_name(rank) == file ? std::optional(rank) : std::nullopt;
}

}  // namespace

NodeStore::NodeStore(const std::string& folder, const std::string& run) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(exit_status::data, "checkpoint: create folder " + folder + ": " + error.message());
  folder_ = folder + "/" + run_key(run);
  if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) throw io::Failure("create folder " + folder_, errno);
  struct stat s {};
  if (::lstat(folder_.c_str(), &s) != 0) throw io::Failure("stat " + folder_, errno);
  if (!S_ISDIR(s.st_mode) || s.st_uid != ::geteuid() || (s.st_mode & 077) != 0)
    throw Error(exit_status::data, "checkpoint: " + folder_ + ": is not this user's own folder, closed to others");
}

std::string NodeStore::committed_folder(int64_t step, const std::string& name) const {
  return folder_ + "/" + step_name(step) + "." + name;
}

std::string NodeStore::private_folder(int64_t step, const std::string& name) const {
  std::string path = folder_ + "/" + private_name(step, name);
  io::make_folder(path);
  return path;
}

void NodeStore::commit(int64_t step, const std::string& name, const std::string& manifest) const {
  const std::string from = folder_ + "/" + private_name(step, name), to = committed_folder(step, name);
  try {
    const std::string temporary = from + "/.manifest." + new_writer();
    io::write_file(temporary, manifest);
    io::rename(temporary, from + "/manifest.json");
    io::sync_folder(from);
    io::rename(from, to);
  } catch (const io::Failure&) {
    if (!io::exists(to + "/manifest.json")) throw;  // else another rank of the node was faster
  }
  io::sync_folder(folder_);
}

void NodeStore::remove_private() const {
  for (const std::string& entry : io::list_folder(folder_)) {
    if (entry.starts_with(".")) io::remove_tree(folder_ + "/" + entry);
  }
}

void NodeStore::remove_old(int keep, int64_t step) const {
  std::vector<std::pair<int64_t, std::string>> steps;
  for (const std::string& entry : io::list_folder(folder_)) {
    const bool is_private = entry.starts_with(".");
    const auto found = parse_step(is_private ? entry.substr(1) : entry);
    if (found && !is_private) steps.push_back(*found);
    if (found && is_private && found->first < step) io::remove_tree(folder_ + "/" + entry);
  }
  std::sort(steps.rbegin(), steps.rend());
  int kept = 0;
  for (const auto& [number, name] : steps) {
    if (number <= step && kept++ < keep) continue;
    // Out of the committed names first; where another rank was faster there is nothing to do.
    const std::string gone = folder_ + "/.trash-" + new_writer();
    try {
      io::rename(committed_folder(number, name), gone);
    } catch (const io::Failure&) {
      continue;
    }
    io::remove_tree(gone);
  }
}

std::vector<NodeStore::Copy> NodeStore::list() const {
  std::vector<Copy> out;
  for (const std::string& entry : io::list_folder(folder_)) {
    const auto step = parse_step(entry);
    const std::string path = folder_ + "/" + entry;
    if (!step || !io::exists(path + "/manifest.json")) continue;
    for (const std::string& file : io::list_folder(path)) {
      if (const auto rank = rank_of(file)) out.push_back({step->first, step->second, *rank, path + "/" + file});
    }
  }
  return out;
}

std::string NodeStore::read_manifest(int64_t step, const std::string& name) const {
  return io::read_file(committed_folder(step, name) + "/manifest.json", most_manifest_bytes);
}

}  // namespace mm::checkpoint
