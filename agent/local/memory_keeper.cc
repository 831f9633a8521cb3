// SPDX-License-Identifier: Apache-2.0
#include "agent/local/memory_keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/error.h"
#include "common/memory_keeper.h"

namespace mm::agent {
namespace {

constexpr int backlog = 256;
constexpr size_t most_clients = 4096, most_keys = 1024, longest_key = 128;
constexpr int wanted_seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

MemoryKeeper::MemoryKeeper(Loop& loop, const std::string& path, uint64_t most_bytes, std::function<std::optional<uid_t>(const std::string&)> owner_of)
    : loop_(loop), path_(path), most_bytes_(most_bytes), owner_of_(std::move(owner_of)) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) throw usage_error("agent: socket " + path_ + ": path is too long");
  std::memcpy(address.sun_path, path_.c_str(), path_.size());
  ::unlink(path_.c_str());
  listener_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_ || ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw system_error("agent: bind " + path_, errno);
  if (::chmod(path_.c_str(), 0666) != 0 || ::listen(listener_.get(), backlog) != 0) throw system_error("agent: listen " + path_, errno);
  watch_ = FdWatch(loop_, listener_.get(), [this] { accept(); });
}

MemoryKeeper::~MemoryKeeper() { ::unlink(path_.c_str()); }

void MemoryKeeper::accept() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  ucred credentials = {};
  socklen_t size = sizeof credentials;
  if (!fd || clients_.size() >= most_clients || ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return;
  const uint64_t id = next_++;
  auto& client = clients_[id] = std::make_unique<Client>();
  client->fd = std::move(fd);
  client->uid = credentials.uid;
  client->readable = FdWatch(loop_, client->fd.get(), [this, id] { receive(id); });
}

void MemoryKeeper::receive(uint64_t id) {
  const auto at = clients_.find(id);
  if (at == clients_.end()) return;
  Client& client = *at->second;
  std::string text;
  UniqueFd fd;
  try {
    if (receive_packet(client.fd.get(), text, fd, "agent: memory keeper")) {
      int give = -1;
      const KeyValues out = answer(client.uid, parse_key_values(text), std::move(fd), give);
      return send_packet(client.fd.get(), format_key_values(out), give, "agent: memory keeper");
    }
  } catch (const Error&) {
    // A client that does not take its answer, or is gone.
  }
  clients_.erase(id);
}

void MemoryKeeper::put(std::map<std::string, Kept>& job, const std::string& key, UniqueFd fd) {
  struct stat s = {};
  const int seals = fd ? ::fcntl(fd.get(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & wanted_seals) != wanted_seals || ::fstat(fd.get(), &s) != 0)
    throw usage_error("what is put must be a memfd that is sealed against writing, growing and shrinking");
  if (key.empty() || key.size() > longest_key || key.find_first_of(" \n") != std::string::npos) throw usage_error("a key that is none");
  uint64_t bytes = static_cast<uint64_t>(s.st_size);
  for (const auto& [other, kept] : job) bytes += other == key ? 0 : kept.bytes;
  if (bytes > most_bytes_ || (job.size() >= most_keys && !job.contains(key)))
    throw usage_error(fmt::format("the job would keep {} bytes here; {} are allowed", bytes, most_bytes_));
  job[key] = {std::move(fd), static_cast<uint64_t>(s.st_size)};
}

KeyValues MemoryKeeper::answer(uid_t uid, const KeyValues& message, UniqueFd fd, int& give) {
  try {
    const std::string job = get(message, "JOB"), key = get(message, "KEY"), verb = get(message, "VERB");
    const auto owner = owner_of_(job);
    if (!owner || *owner != uid) throw usage_error(fmt::format("job {} is not known here as one of user {}", job, uid));
    std::map<std::string, Kept>& mine = kept_[job];
    KeyValues out = {{"OK", "1"}};
    if (verb == "put") {
      put(mine, key, std::move(fd));
    } else if (verb == "get") {
      const auto found = mine.find(key);
      if (found == mine.end()) throw usage_error(key + ": nothing is kept");
      give = found->second.fd.get();
    } else if (verb == "list") {
      std::string keys;
      for (const auto& [name, kept] : mine) keys += (keys.empty() ? "" : " ") + name;
      if (keys.size() > 60 * 1024) throw usage_error("too many keys for one message");
      out["KEYS"] = keys;
    } else if (verb == "drop") {
      std::erase_if(mine, [&](const auto& k) { return k.first.starts_with(get(message, "PREFIX")); });
    } else {
      throw usage_error("unknown verb '" + verb + "'");
    }
    return out;
  } catch (const Error& e) {
    return {{"OK", "0"}, {"ERROR", e.what()}};
  }
}

}  // namespace mm::agent
