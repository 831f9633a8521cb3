// SPDX-License-Identifier: Apache-2.0
#include "agent/probes/ethtool.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "common/files.h"

namespace mm::agent {
namespace {

constexpr uint32_t most_counters = 16384;

bool call(int fd, const std::string& interface, void* data) {
  ifreq request = {};
  if (interface.size() >= sizeof request.ifr_name) return false;
  std::memcpy(request.ifr_name, interface.c_str(), interface.size());
  request.ifr_data = static_cast<char*>(data);
  return ::ioctl(fd, SIOCETHTOOL, &request) == 0;
}

}  // namespace

DriverCounters driver_counters(const std::string& interface) {
  const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return {};
  // The one count that is asked for follows the structure.
  alignas(ethtool_sset_info) char sizes_memory[sizeof(ethtool_sset_info) + sizeof(uint32_t)] = {};
  auto* sizes = reinterpret_cast<ethtool_sset_info*>(sizes_memory);
  sizes->cmd = ETHTOOL_GSSET_INFO;
  sizes->sset_mask = 1ull << ETH_SS_STATS;
  if (!call(fd.get(), interface, sizes) || sizes->sset_mask == 0) return {};
  uint32_t count = 0;
  std::memcpy(&count, sizes_memory + sizeof(ethtool_sset_info), sizeof count);
  if (count == 0 || count > most_counters) return {};
  // The kernel writes as many as the driver has now: room for some that came since.
  const uint32_t room = count + 64;
  std::vector<uint64_t> names((sizeof(ethtool_gstrings) + room * ETH_GSTRING_LEN) / sizeof(uint64_t) + 1), values(sizeof(ethtool_stats) / sizeof(uint64_t) + room + 1);
  auto* strings = reinterpret_cast<ethtool_gstrings*>(names.data());
  auto* stats = reinterpret_cast<ethtool_stats*>(values.data());
  strings->cmd = ETHTOOL_GSTRINGS;
  strings->string_set = ETH_SS_STATS;
  strings->len = count;
  stats->cmd = ETHTOOL_GSTATS;
  stats->n_stats = count;
  if (!call(fd.get(), interface, strings) || !call(fd.get(), interface, stats)) return {};
  count = std::min<uint32_t>({strings->len, stats->n_stats, room});
  DriverCounters out;
  for (uint32_t i = 0; i < count; ++i) {
    const auto* text = reinterpret_cast<const char*>(strings->data) + i * ETH_GSTRING_LEN;
    out[std::string(text, ::strnlen(text, ETH_GSTRING_LEN))] = stats->data[i];
  }
  return out;
}

double wire_errors(const DriverCounters& counters) {
  double out = 0;
  for (const auto& [name, value] : counters) {
    if (name.find("corrected") != std::string::npos || name.find("fec") != std::string::npos) continue;
    // mlx5 rx_crc_errors_phy, rx_symbol_err_phy; bnxt rx_fcs_err_frames, rx_align_err_frames; ice rx_crc_errors.nic, illegal_bytes.nic; igb rx_align_errors
    for (const std::string_view mark : {"crc_err", "fcs_err", "symbol_err", "align_err", "illegal_bytes", "code_violation"})
      if (name.find(mark) != std::string::npos) {
        out += static_cast<double>(value);
        break;
      }
  }
  return out;
}

}  // namespace mm::agent
