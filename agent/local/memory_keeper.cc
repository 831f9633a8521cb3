// SPDX-License-Identifier: Apache-2.0
#include "agent/local/memory_keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "common/error.h"
#include "common/log.h"
#include "common/memory_keeper.h"

namespace mm::agent {
namespace {

constexpr int backlog = 256;
constexpr size_t most_clients = 4096, most_keys = 1024, longest_key = 128;
constexpr int wanted_seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
constexpr std::string_view folder_prefix = "job-";

// Slurm's job ids, also of arrays and of parts of a heterogeneous job: what is safe as a part of a path.
bool is_job_id(const std::string& job) {
  return !job.empty() && job.size() <= 32 && std::all_of(job.begin(), job.end(), [](char c) { return (c >= '0' && c <= '9') || c == '_' || c == '+'; });
}

bool is_folder_of(const std::string& path, uid_t uid, mode_t forbidden) {
  struct stat s = {};
  return ::lstat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == uid && (s.st_mode & forbidden) == 0;
}

// FOLDERS/job-ID, which belongs to `uid`. Throws an Error.
std::string make_folder(const std::string& folders, const std::string& job, uid_t uid) {
  std::error_code error;
  if (std::filesystem::create_directories(folders, error)) ::chmod(folders.c_str(), 0755);
  if (error) throw Error(exit_status::data, fmt::format("create folder {}: {}", folders, error.message()));
  if (!is_folder_of(folders, ::geteuid(), 022)) throw usage_error(folders + ": others than the agent's user may write there");
  const std::string path = folders + "/" + std::string(folder_prefix) + job;
  const bool made = ::mkdir(path.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) throw system_error("create folder " + path, errno, exit_status::data);
  if (made && ::lchown(path.c_str(), uid, static_cast<gid_t>(-1)) != 0) throw system_error("give folder " + path, errno, exit_status::data);
  if (!is_folder_of(path, uid, 077)) throw usage_error(path + ": is not a folder of the job's user alone");
  return path;
}

void remove_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) log::warn("remove {}: {}", path, error.message());
}

}  // namespace

MemoryKeeper::MemoryKeeper(Loop& loop, const std::string& path, uint64_t most_bytes, std::string folders,
                           std::function<std::optional<uid_t>(const std::string&)> owner_of)
    : loop_(loop), path_(path), most_bytes_(most_bytes), folders_(std::move(folders)), owner_of_(std::move(owner_of)) {
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
      const KeyValues message = parse_key_values(text);
      if (get(message, "VERB") == "folder") return give_folder(id, get(message, "JOB"), client.uid);
      int give = -1;
      const KeyValues out = answer(client.uid, message, std::move(fd), give);
      return send(id, out, give);
    }
  } catch (const Error&) {
    // A client that does not take its answer, or is gone.
  }
  clients_.erase(id);
}

// Throws an Error where the client does not take it.
void MemoryKeeper::send(uint64_t id, const KeyValues& message, int give) {
  const auto at = clients_.find(id);
  if (at != clients_.end()) send_packet(at->second->fd.get(), format_key_values(message), give, "agent: memory keeper");
}

void MemoryKeeper::check_owner(const std::string& job, uid_t uid) const {
  const auto owner = owner_of_(job);
  if (!owner || *owner != uid) throw usage_error(fmt::format("job {} is not known here as one of user {}", job, uid));
}

// The disk is asked in a worker, whose jobs run in order: a removal that was asked for before is over then.
void MemoryKeeper::give_folder(uint64_t id, const std::string& job, uid_t uid) {
  try {
    check_owner(job, uid);
    if (folders_.empty() || !is_job_id(job)) throw usage_error("no folder for jobs on this node (agent.node_tier)");
  } catch (const Error& e) {
    return send(id, {{"OK", "0"}, {"ERROR", e.what()}});
  }
  loop_.work(Loop::Pool::disk, [this, id, job, uid, folders = folders_]() -> Loop::Action {
    KeyValues out;
    try {
      out = {{"OK", "1"}, {"FOLDER", make_folder(folders, job, uid)}};
    } catch (const Error& e) {
      out = {{"OK", "0"}, {"ERROR", e.what()}};
    }
    return [this, id, out] {
      try {
        send(id, out);
      } catch (const Error&) {
        clients_.erase(id);
      }
    };
  });
}

void MemoryKeeper::job_ended(const std::string& job) {
  kept_.erase(job);
  secrets_.erase(job);
  if (folders_.empty() || !is_job_id(job)) return;
  loop_.work(Loop::Pool::disk, [path = folders_ + "/" + std::string(folder_prefix) + job]() -> Loop::Action {
    remove_folder(path);
    return {};
  });
}

void MemoryKeeper::sweep(std::function<bool(const std::string&)> runs_here) {
  if (folders_.empty()) return;
  loop_.work(Loop::Pool::slurm, [this, folders = folders_, runs_here = std::move(runs_here)]() -> Loop::Action {
    std::error_code error;
    std::vector<std::string> ended;
    for (const auto& entry : std::filesystem::directory_iterator(folders, error)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(folder_prefix)) continue;
      const std::string job = name.substr(folder_prefix.size());
      try {
        if (is_job_id(job) && !runs_here(job)) ended.push_back(job);
      } catch (const std::exception& e) {
        log::warn("{}: stays, as Slurm does not tell of its job: {}", entry.path().string(), e.what());
      }
    }
    return [this, ended] {
      // One that has been registered meanwhile runs here after all.
      for (const std::string& job : ended)
        if (!owner_of_(job)) job_ended(job);
    };
  });
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
    check_owner(job, uid);
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
    } else if (verb == "secret") {
      auto& secret = secrets_[job];
      if (!secret) secret = std::make_unique<Secret>();
      out["SECRET"] = secret->hex();
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
