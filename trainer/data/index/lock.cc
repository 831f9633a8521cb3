// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/index/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "common/error.h"
#include "common/key_values.h"
#include "trainer/data/index/link_new.h"

namespace mm::data {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds look_every{200};  // of one who waits, at most

std::string lock_path(const std::string& folder, const std::string& name, int64_t term) {
  return fmt::format("{}/.{}.lock.{}", folder, name, term);
}

// The highest term of the folder; 0: none yet. Others are removed where `keep` says from which on they stay.
int64_t highest_term(const std::string& folder, const std::string& name, int64_t keep = 0) {
  const std::string prefix = fmt::format(".{}.lock.", name);
  int64_t highest = 0;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string file = at->path().filename().string();
    if (!file.starts_with(prefix)) continue;
    int64_t term = 0;
    const auto [stop, bad] = std::from_chars(file.data() + prefix.size(), file.data() + file.size(), term);
    if (bad != std::errc() || stop != file.data() + file.size()) continue;
    highest = std::max(highest, term);
    if (term < keep) ::unlink(at->path().c_str());
  }
  if (error) throw Error(exit_status::usage, fmt::format("data: lock: list {}: {}", folder, error.message()));
  return highest;
}

std::string machine() {
  char host[256] = {}, space[64] = {};
  ::gethostname(host, sizeof host - 1);
  // A process number means something inside its own namespace only.
  if (::readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) space[0] = '\0';
  return fmt::format("{} {}", host, space);
}

// The time since boot at which a process began: its number may have been given to another one since.
std::string start_time(int64_t pid) {
  std::string line;
  try {
    line = read_file(fmt::format("/proc/{}/stat", pid));
  } catch (const Error&) {
    return "";
  }
  size_t at = line.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  return at == std::string::npos ? "" : line.substr(at + 1, line.find(' ', at + 1) - at - 1);
}

struct Holder {
  std::string text;  // all of it; changes with each beat
  std::string name;  // for messages
  bool released = false, gone = false;
  std::chrono::milliseconds lease{0};
};

std::optional<Holder> read_holder(const std::string& path) {
  Holder holder;
  try {
    holder.text = read_file(path);
  } catch (const Error&) {
    if (::access(path.c_str(), F_OK) != 0) return std::nullopt;  // removed by a later owner
    throw;
  }
  const KeyValues values = parse_key_values(holder.text);
  const std::string job(get(values, "JOB"));
  holder.released = get(values, "STATE") == "released";
  holder.name = fmt::format("{}, process {} on {}{}", get(values, "PURPOSE"), get(values, "PID"), get(values, "HOST"), job.empty() ? "" : ", job " + job);
  holder.lease = std::chrono::milliseconds(get_int(values, "LEASE_MS", 0));
  holder.gone = get(values, "MACHINE") == machine() && start_time(get_int(values, "PID", 0)) != get(values, "STARTED");
  return holder;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, const std::string& name, Options options)
    : folder_(folder), name_(name), options_(std::move(options)) {
  const Clock::time_point give_up = Clock::now() + options_.deadline;
  int64_t watched = 0;
  std::string seen, told;
  Clock::time_point seen_at = Clock::now();
  for (;;) {
    const int64_t highest = highest_term(folder_, name_);
    const std::optional<Holder> holder = highest == 0 ? std::nullopt : read_holder(lock_path(folder_, name_, highest));
    if (highest > 0 && !holder) continue;
    const Clock::time_point now = Clock::now();
    if (holder && (highest != watched || holder->text != seen)) watched = highest, seen = holder->text, seen_at = now;
    const bool free = !holder || holder->released || holder->gone || now - seen_at > holder->lease;
    if (free && try_begin(highest + 1)) break;
    if (free) continue;
    if (options_.waiting && told != holder->name) options_.waiting(told = holder->name);
    if (now > give_up)
      throw Error(exit_status::internal, fmt::format("data: lock {}: still held by {}", lock_path(folder_, name_, highest), holder->name));
    std::this_thread::sleep_for(std::min(look_every, holder->lease / 8));
  }
  beating_ = std::thread([this] { beat(); });
}

bool FolderLock::try_begin(int64_t term) {
  static std::atomic<int> tries = 0;
  const std::string host = machine().substr(0, machine().find(' '));
  const std::string temporary = fmt::format("{}/.{}.lock.new.{}.{}.{}", folder_, name_, host, ::getpid(), tries++);
  file_ = UniqueFd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file_) throw system_error("data: lock: create " + temporary, errno, exit_status::usage);
  write_state("held");
  const int linked = link_new(temporary, lock_path(folder_, name_, term));
  const int reason = errno;
  ::unlink(temporary.c_str());
  if (linked != 0 && reason != EEXIST) throw system_error("data: lock: link " + lock_path(folder_, name_, term), reason);
  if (linked != 0) return false;
  // The number may be one that was used and removed while this writer was slow: then a higher one is there.
  if (highest_term(folder_, name_, term) != term) {
    ::unlink(lock_path(folder_, name_, term).c_str());
    return false;
  }
  term_ = term;
  return true;
}

void FolderLock::write_state(const std::string& state) {
  const char* job = std::getenv("SLURM_JOB_ID");
  const std::string where = machine();
  const std::string text = format_key_values({{"STATE", state},
                                              {"BEAT", fmt::format("{:020}", beats_++)},
                                              {"PURPOSE", options_.purpose},
                                              {"PID", std::to_string(::getpid())},
                                              {"STARTED", start_time(::getpid())},
                                              {"HOST", where.substr(0, where.find(' '))},
                                              {"MACHINE", where},
                                              {"JOB", job != nullptr ? job : ""},
                                              {"LEASE_MS", std::to_string(options_.lease.count())}});
  // A write that fails is a beat that is missed: others will take over, and check() tells.
  const ssize_t written = ::pwrite(file_.get(), text.data(), text.size(), 0);
  if (written == static_cast<ssize_t>(text.size())) ::fsync(file_.get());  // to the server of a network file system
}

void FolderLock::beat() {
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, options_.lease / 4, [&] { return stopping_; })) write_state("held");
}

FolderLock::~FolderLock() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  beating_.join();
  write_state("released");
}

bool FolderLock::held() const {
  return highest_term(folder_, name_) == term_;
}

void FolderLock::check() const {
  const int64_t highest = highest_term(folder_, name_);
  if (highest == term_) return;
  const std::optional<Holder> holder = read_holder(lock_path(folder_, name_, highest));
  throw Error(exit_status::internal, fmt::format("data: the lock on {} went to {}: this process did nothing for longer than its lease",
                                                 folder_, holder ? holder->name : "another writer"));
}

}  // namespace mm::data
