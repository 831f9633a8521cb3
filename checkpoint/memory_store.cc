// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/memory_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>

#include "checkpoint/folder.h"
#include "checkpoint/io.h"

namespace mm::checkpoint {
namespace {

io::File new_memory(const std::string& name) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) throw io::Failure("memfd " + name, errno);
  return io::File::adopt(std::move(fd), "memory:" + name);
}

void seal(const io::File& file) {
  if (::fcntl(file.fd(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw io::Failure("seal " + file.path(), errno);
}

class MemorySource : public Source {
 public:
  explicit MemorySource(io::File file) : file_(std::move(file)) {}
  uint64_t size() const override { return file_.size(); }
  void read(void* data, size_t bytes, uint64_t offset) override { file_.read(data, bytes, offset); }

 private:
  io::File file_;
};

}  // namespace

MemoryStore::MemoryStore(const std::string& socket, const std::string& job, const std::string& run)
    : keeper_(socket, job), prefix_(run_key(run) + "/") {}

std::string MemoryStore::key_of(int64_t step, const std::string& name, const std::string& file) const {
  return prefix_ + step_name(step) + "." + name + "/" + file;
}

FileRecord MemoryStore::write(const Identity& identity, const std::vector<ConstView>& views, const WriteOptions& options) {
  const std::string key = key_of(identity.step, identity.writer, rank_file_name(identity.rank));
  io::File file = new_memory(key);
  const FileRecord record = fill_rank_file(file, identity, views, options);
  seal(file);
  keeper_.put(key, file.fd());
  return record;
}

void MemoryStore::commit(int64_t step, const std::string& name, const std::string& manifest) {
  const std::string key = key_of(step, name, "manifest.json");
  io::File file = new_memory(key);
  file.write(manifest.data(), manifest.size(), 0);
  seal(file);
  keeper_.put(key, file.fd());
}

void MemoryStore::remove_old(int keep, int64_t step) {
  std::set<std::pair<int64_t, std::string>> stay, all;
  for (const Copy& c : list()) {
    all.emplace(c.step, c.name);
    if (c.file == "manifest.json" && c.step <= step) stay.emplace(c.step, c.name);
  }
  while (stay.size() > static_cast<size_t>(keep)) stay.erase(stay.begin());
  for (const auto& [number, name] : all) {
    // A later one without a manifest is the next save, of another rank of this node.
    const bool is_next = number > step && !has_manifest(number, name);
    if (!stay.contains({number, name}) && !is_next) keeper_.drop(key_of(number, name, ""));
  }
}

bool MemoryStore::has_manifest(int64_t step, const std::string& name) {
  for (const Copy& c : list()) {
    if (c.step == step && c.name == name && c.file == "manifest.json") return true;
  }
  return false;
}

std::vector<MemoryStore::Copy> MemoryStore::list() {
  std::vector<Copy> out;
  for (std::string key : keeper_.list()) {
    if (!key.starts_with(prefix_)) continue;
    key.erase(0, prefix_.size());
    const size_t slash = key.find('/'), dot = key.find('.');
    if (slash == std::string::npos || dot > slash) continue;
    if (const auto step = step_of_name(key.substr(0, dot)))
      out.push_back({*step, key.substr(dot + 1, slash - dot - 1), key.substr(slash + 1)});
  }
  return out;
}

std::string MemoryStore::read_manifest(int64_t step, const std::string& name) {
  const io::File file = io::File::adopt(keeper_.get(key_of(step, name, "manifest.json")), "memory:manifest.json");
  std::string text(file.size(), '\0');
  file.read(text.data(), text.size(), 0);
  return text;
}

Place MemoryStore::place(const Copy& copy) {
  const std::string key = key_of(copy.step, copy.name, copy.file);
  // The descriptor now: what the agent drops later stays readable.
  const auto fd = std::make_shared<UniqueFd>(keeper_.get(key));
  return {"memory:" + key, [fd, key] {
            UniqueFd own(::fcntl(fd->get(), F_DUPFD_CLOEXEC, 0));
            if (!own) throw io::Failure("open memory:" + key, errno);
            return std::make_unique<MemorySource>(io::File::adopt(std::move(own), "memory:" + key));
          }};
}

}  // namespace mm::checkpoint
