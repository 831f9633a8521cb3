// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/channel.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

#include "checkpoint/wire.h"
#include "common/error.h"

namespace mm::checkpoint {
namespace {

using wire::Clock;
using namespace std::chrono_literals;

constexpr auto join_deadline = 60s;  // for all ranks

// A descriptor for each rank, beyond what the process may have by default.
void allow_descriptors(int more) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, static_cast<rlim_t>(more) + 1024);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<UniqueFd> accept_ranks(int listener, const wire::Door& door, const std::vector<std::string>& hosts) {
  const auto until = Clock::now() + join_deadline;
  std::vector<UniqueFd> peers(hosts.size());
  for (size_t joined = 1; joined < hosts.size() && wire::wait_readable(listener, until);) {
    auto one = wire::accept_one(listener, door);
    if (!one || one->first < 1 || one->first >= static_cast<int>(hosts.size())) continue;
    UniqueFd& place = peers[static_cast<size_t>(one->first)];
    if (!place) ++joined;
    place = std::move(one->second);
  }
  for (size_t r = 1; r < peers.size(); ++r) {
    if (!peers[r])
      throw Error(exit_status::data,
                  fmt::format("checkpoint: rank {} of {} on {} has not connected to rank 0 on {} within {} s", r, hosts.size(),
                              hosts[r], hosts[0], join_deadline / 1s));
  }
  return peers;
}

}  // namespace

Channel::Channel(Group& group, std::chrono::milliseconds deadline) : rank_(group.rank()), deadline_(deadline) {
  hosts_ = group.all_gather(wire::host_name());
  if (size() == 1) return;
  for (const std::string& error : group.all_gather(connect_all(group))) {
    if (!error.empty()) throw Error(exit_status::data, error);
  }
}

// Returns what went wrong.
std::string Channel::connect_all(Group& group) {
  std::string error, mine;
  UniqueFd listener;
  wire::Door door;
  if (rank_ == 0) {
    try {
      allow_descriptors(size());
      std::tie(listener, door) = wire::open_door(size());
      mine = wire::text_of(door);
    } catch (const Error& e) {
      error = e.what();
    }
  }
  const std::string told = group.broadcast(mine);
  if (told.empty()) return error;
  try {
    if (rank_ == 0)
      peers_ = accept_ranks(listener.get(), door, hosts_);
    else
      peers_.push_back(wire::connect_to(wire::parse_door(told), rank_, "rank 0 on " + hosts_[0]));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::string Channel::name_of(size_t rank) const {
  return rank == 0 ? "rank 0 on " + hosts_[0] : fmt::format("rank {} of {} on {}", rank, hosts_.size(), hosts_[rank]);
}

std::vector<std::string> Channel::gather(const std::string& mine) {
  const auto until = Clock::now() + deadline_;
  if (rank_ != 0) {
    wire::send_message(peers_[0].get(), mine, until, name_of(0));
    return {};
  }
  std::vector<std::string> all{mine};
  for (size_t r = 1; r < peers_.size(); ++r) all.push_back(wire::receive_message(peers_[r].get(), until, name_of(r)));
  return all;
}

std::string Channel::broadcast(const std::string& mine) {
  // Rank 0 itself may have waited for the slowest of all until its deadline.
  const auto until = Clock::now() + 2 * deadline_;
  if (rank_ != 0) return wire::receive_message(peers_[0].get(), until, name_of(0));
  for (size_t r = 1; r < peers_.size(); ++r) wire::send_message(peers_[r].get(), mine, until, name_of(r));
  return mine;
}

std::vector<std::string> Channel::all_gather(const std::string& mine) {
  const std::vector<std::string> all = gather(mine);
  return wire::unpack(broadcast(wire::pack(all)));
}

}  // namespace mm::checkpoint
