// SPDX-License-Identifier: Apache-2.0
// Network interfaces: links that go down, firmware that fails, cables and modules. A link counts as lost only where it was seen up, or where the
// boot is long over: ports that were never cabled say "Link down" as well. Container interfaces, and failed register reads of restricted
// functions (ACCESS_REG), say nothing about hardware.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "agent/klog/scan.h"
#include "agent/klog/sighting.h"

namespace mm::agent {
namespace {

constexpr double boot_window = 120;  // seconds in which links settle

struct Place {
  std::string driver, pci, interface;
  std::string_view words;  // what is said
  std::string device(const LogContext& context) const {
    if (!pci.empty()) return pci;
    const auto at = context.pci_of.find(interface);
    return at != context.pci_of.end() ? at->second : interface;
  }
};

bool is_interface(std::string_view text) {
  return !text.empty() && text.size() <= 15 && std::all_of(text.begin(), text.end(), [](char c) { return is_word(c) || c == '.' || c == '@'; });
}

bool is_virtual(std::string_view interface) {
  constexpr std::array<std::string_view, 17> prefixes = {"veth", "docker", "br-", "virbr", "cali", "cni", "flannel", "tap", "tun", "vnet", "lo", "dummy", "lxc",
                                                         "lxd", "podman", "vxlan", "wg"};
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return interface.starts_with(p); });
}

constexpr std::array<std::string_view, 24> drivers = {"mlx5_core", "mlx4_core", "mlx4_en", "bnxt_en", "bnxt_re", "ice",  "i40e", "iavf", "ixgbe", "igb",   "igc", "e1000e",
                                                      "e1000",     "tg3",       "efa",     "ena",     "irdma",   "hfi1", "qede", "qed",  "cxgb4", "bnx2x", "sfc", "r8169"};
bool is_driver(std::string_view text) { return std::find(drivers.begin(), drivers.end(), text) != drivers.end(); }

// "mlx5_core 0000:ab:00.0 ens1: WORDS", "ice 0000:31:00.0: WORDS", "e1000e: eth0 WORDS", "eth0: WORDS"
Place place_of(std::string_view text) {
  Place p;
  Scan scan(text);
  const std::string_view first = scan.until(" :");
  if (is_driver(first)) {
    p.driver = first;
    if (scan.take(": ")) {
      // e1000e: eth0 NIC Link is Down
      Scan ahead = scan;
      const std::string_view word = ahead.until(" :");
      if (is_interface(word) && !contains(word, "_") && word.find_first_of("0123456789") != std::string_view::npos && (ahead.take(": ") || ahead.take(" "))) {
        p.interface = word;
        scan = ahead;
      }
    } else if (scan.take(" ")) {
      std::string_view address = scan.until(" ");
      const bool ends = !address.empty() && address.back() == ':';
      if (ends) address.remove_suffix(1);
      p.pci = pci_address(address);
      scan.take(" ");
      if (Scan ahead = scan; !p.pci.empty()) {
        const std::string_view word = ahead.until(" :");
        if (is_interface(word) && ahead.take(": ")) {
          p.interface = word;
          scan = ahead;
        } else if (!ends && scan.take("(unnamed net_device)")) {
          scan.until(":");
          scan.take(": ");
        }
      }
    }
  } else if (is_interface(first) && scan.take(": ")) {
    p.interface = first;
  } else {
    return p;
  }
  p.words = scan.rest();
  return p;
}

Sighting nic(const Place& place, const LogContext& context, const char* code, Severity severity, Action action) {
  Sighting s;
  s.part = Part::nic;
  s.code = code;
  s.device = place.device(context);
  s.severity = severity;
  s.action = action;
  if (!place.interface.empty()) s.facts.emplace_back("interface", place.interface);
  return s;
}

enum class Link { none, up, down };

// mlx5_core 0000:1a:00.0 ens1f0: Link down
// mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN          (and Link INIT, Link ACTIVE)
// mlx5_core 0000:5c:00.0: Port module event: module 0, Cable unplugged
// ice 0000:31:00.0 ens2: NIC Link is Down
// bnxt_en 0000:c1:00.0 eth2: NIC Link is Down
// igb 0000:02:00.0: eth0: igb: eth0 NIC Link is Down
// tg3 0000:04:00.0 eth0: Link is down
// systemd-networkd: ib6: Lost carrier
Link link_words(std::string_view words) {
  if (words.starts_with("Port module event: ")) return words.ends_with("Cable unplugged") ? Link::down : Link::none;
  for (const std::string_view down : {"NIC Link is Down", "NIC Link is down", "NIC link is down", "Link is Down", "Link is down", "Link down", "Link DOWN", "Lost carrier", "lost carrier"})
    if (contains(words, down)) return Link::down;
  for (const std::string_view up : {"NIC Link is Up", "NIC Link is up", "NIC link is up", "Link is Up", "Link is up", "Link up", "Link ACTIVE", "Gained carrier", "gained carrier"})
    if (contains(words, up)) return Link::up;
  return Link::none;
}

void see_link(Link link, const Place& place, const LogLine& line, LogContext& context, const See& see) {
  const bool fabric = place.driver == "mlx5_core" || place.driver == "mlx4_core" || place.driver == "bnxt_en" || place.driver == "ice" || place.driver == "efa" ||
                      place.driver == "hfi1" || place.interface.starts_with("ib");
  Sighting s = nic(place, context, "link_down", Severity::error, fabric ? Action::restart : Action::alert);
  if (s.device.empty()) return;
  s.family = "link/" + s.device;
  bool& was_up = context.had_link[s.device];
  const bool settling = context.since_boot(line) < boot_window;
  if (link == Link::up) {
    was_up = true;
    s.joins_only = s.ends = true;
    s.retracts = settling;
    s.severity = Severity::info;
    s.action = Action::ignore;
    s.count = 0;
  } else if (!was_up && settling) {
    return;
  }
  see(std::move(s));
}

// bond0: (slave eth0): link status definitely down, disabling slave
// bonding: bond0: link status definitely down for interface eth0, disabling it
bool match_bond(std::string_view text, const LogLine& line, LogContext& context, const See& see) {
  Scan scan(text);
  Place place;
  if (Scan old(text); old.skip_past("link status definitely ") && old.skip_past(" for interface ")) {
    place.interface = std::string(old.until(", "));
    scan.skip_past(": ");
  } else if (scan.skip_past("(slave ")) {
    place.interface = std::string(scan.until(")"));
  } else {
    return false;
  }
  if (contains(scan.rest(), "link status definitely down")) see_link(Link::down, place, line, context, see);
  else if (contains(scan.rest(), "link status definitely up")) see_link(Link::up, place, line, context, see);
  return true;
}

// mlx5_core 0000:1a:00.0: poll_health:795:(pid 0): device's health compromised - reached miss count
// mlx5_core 0000:1a:00.0: poll_health:825:(pid 0): Fatal error 3 detected
// mlx5_core 0000:1a:00.0: print_health_info:425:(pid 0): Health issue observed, firmware internal error, severity(3) ERROR:
// mlx5_core 0000:1a:00.0: wait_func:1151:(pid 3021): CREATE_MKEY(0x200) timeout. Will cause a leak of a command resource
// mlx5_core 0000:5c:00.0: mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, High Temperature
// mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).
// mlx5_core 0000:5c:00.0: temp_warning: High temperature on sensors with bit set 0x1
void match_mellanox(const Place& place, LogContext& context, const See& see) {
  const std::string_view w = place.words;
  const auto event = [&](const char* code, Severity severity, Action action) {
    Sighting s = nic(place, context, code, severity, action);
    if (severity == Severity::fatal) s.family = "firmware/" + s.device;
    s.rank = code == std::string_view("firmware_fatal");
    see(std::move(s));
  };
  if (contains(w, "ACCESS_REG(")) return;
  // Health issue observed, High temperature, severity(4) WARNING: / synd 0x10: High temperature
  const bool issue = contains(w, "Health issue observed") || (contains(w, "synd 0x") && !contains(w, "synd 0x0"));
  if (issue && contains(w, "emperature")) return event("temperature", Severity::warning, Action::alert);
  if (issue) return event("firmware_fatal", Severity::fatal, Action::drain);
  // mlx5_load_one failed with error code -22 / probe_one:1234:(pid 1): mlx5_init_one failed with error code -110
  if (contains(w, "_one failed with error code")) return event("probe_failed", Severity::error, Action::alert);
  if (contains(w, "health compromised") || (contains(w, "Fatal error ") && contains(w, " detected")) || contains(w, "firmware internal error") ||
      contains(w, "enter_error_state") || contains(w, "mlx5_error_sw_reset") || contains(w, "health recovery flow aborted") || contains(w, "Internal error detected:") ||
      contains(w, "device is in error state") || contains(w, "FW fatal") || contains(w, "health poll failed") || contains(w, "handling bad device here") ||
      contains(w, "nrecoverable"))
    return event("firmware_fatal", Severity::fatal, Action::drain);
  if (contains(w, " timeout") && contains(w, "cause a leak of a command resource")) return event("command_timeout", Severity::fatal, Action::drain);
  if (contains(w, "Port module event[error]"))
    return contains(w, "High Temperature") ? event("module_temperature", Severity::error, Action::alert) : event("module_error", Severity::error, Action::alert);
  if (contains(w, "insufficient power on the PCIe slot")) return event("slot_power", Severity::warning, Action::alert);
  if (contains(w, "High temperature on sensors") || contains(w, "temp_warn")) return event("temperature", Severity::warning, Action::alert);
  if (contains(w, "TX timeout detected") || contains(w, "TX timeout on queue")) return event("tx_timeout", Severity::error, Action::alert);
}

// bnxt_en 0000:3b:00.0 eth0: Error (timeout: 500015) msg {0x23 0x18} len:0
// bnxt_en 0000:3b:00.0 eth0: TX timeout detected, starting reset task!
// bnxt_en 0000:c1:00.0 eth2: Firmware fatal reset event, data1: 0x..., data2: 0x...
// ice 0000:31:00.0: PF Reset failed; ice 0000:31:00.0 ens2: tx_timeout: VSI_num: 14, Q 5, NTC: ...
// ena 0000:00:05.0 ens5: Keep alive watchdog timeout.
// efa 0000:a0:1b.0: Wait for completion (polling) timeout
void match_other_drivers(const Place& place, LogContext& context, const See& see) {
  const std::string_view w = place.words;
  const auto event = [&](const char* code, Severity severity, Action action) {
    Sighting s = nic(place, context, code, severity, action);
    if (severity == Severity::fatal) s.family = "firmware/" + s.device;
    see(std::move(s));
  };
  if (contains(w, "irmware fatal") || contains(w, "fatal firmware") || contains(w, "Firmware not responding") || contains(w, "firmware is not responding") ||
      contains(w, "PF Reset failed") || contains(w, "Rebuild failed, unload and reload driver") || contains(w, "FW reset failed") || contains(w, "Device recovery failed") ||
      contains(w, "PCI I/O error detected") || contains(w, "PCI channel reported error") || contains(w, "Global reset failed") || contains(w, "EMP reset failed"))
    return event("firmware_fatal", Severity::fatal, Action::drain);
  // igb 0000:02:00.0 enp2s0: PCIe link lost
  if (contains(w, "PCIe link lost") || contains(w, "Adapter removed")) return event("pcie_link_lost", Severity::fatal, Action::drain);
  if (place.driver == "bnxt_en" && contains(w, "Error (timeout: ")) return event("command_timeout", Severity::error, Action::alert);
  // e1000e 0000:00:19.0 eth0: Detected Hardware Unit Hang: / tg3 0000:04:00.0 eth0: transmit timed out, resetting
  if (contains(w, "TX timeout detected") || contains(w, "tx_timeout:") || contains(w, "Transmit timeout") || contains(w, "transmit timed out") ||
      contains(w, "due to tx timeout") || contains(w, "Detected Hardware Unit Hang") || contains(w, "Detected Tx Unit Hang") ||
      contains(w, "lost tx completion is above the threshold")) return event("tx_timeout", Severity::error, Action::alert);
  // i40e 0000:02:00.0: ARQ Critical Error detected / ixgbe 0000:02:00.0: Warning firmware error detected FWSM: 0x00000000
  if (contains(w, "ARQ Critical Error") || contains(w, "ASQ Critical Error") || contains(w, "irmware error detected")) return event("firmware_error", Severity::error, Action::alert);
  if (contains(w, "Malicious Driver Detection event") || contains(w, "TX driver issue detected")) return event("driver_event", Severity::warning, Action::alert);
  if (place.driver == "ena" && (contains(w, "Keep alive watchdog timeout") || contains(w, "Trigger reset is on"))) return event("keep_alive", Severity::error, Action::alert);
  if ((place.driver == "efa" || place.driver == "ena") &&
      (contains(w, "completion (polling) timeout") || contains(w, "didn't send any completion") || contains(w, "didn't send a completion") ||
       contains(w, "didn't receive a MSI-X interrupt") || contains(w, "ailed to submit command") || contains(w, "Reset failed")))
    return event("command_timeout", Severity::error, Action::alert);
}

}  // namespace

void match_network(const LogLine& line, LogContext& context, const See& see) {
  const std::string_view text = line.message;
  // NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out
  if (Scan scan(text); line.kernel && scan.take("NETDEV WATCHDOG: ")) {
    Place place;
    place.interface = std::string(scan.until(" ("));
    if (contains(scan.rest(), "timed out") && !is_virtual(place.interface)) see(nic(place, context, "tx_timeout", Severity::error, Action::alert));
    return;
  }
  if (line.kernel && match_bond(text, line, context, see)) return;
  const Place place = place_of(text);
  if (place.words.empty() || is_virtual(place.interface)) return;
  if (!place.pci.empty() && !place.interface.empty()) context.pci_of[place.interface] = place.pci;
  // mlx5_core 0000:1a:00.0 eth0: NETDEV WATCHDOG: CPU: 12: transmit queue 3 timed out 5376 ms
  if (line.kernel && place.words.starts_with("NETDEV WATCHDOG: ") && contains(place.words, "timed out")) return see(nic(place, context, "tx_timeout", Severity::error, Action::alert));
  if (!line.kernel || place.words.size() < 120)  // a link's line is short
    if (const Link link = link_words(place.words); link != Link::none && !contains(text, "SATA")) return see_link(link, place, line, context, see);
  // ib0: transmit timeout: latency 1580 msecs
  if (line.kernel && place.interface.starts_with("ib") && place.words.starts_with("transmit timeout"))
    return see(nic(place, context, "tx_timeout", Severity::error, Action::alert));
  if (!line.kernel || place.driver.empty()) return;
  if (place.driver == "mlx5_core" || place.driver == "mlx4_core") match_mellanox(place, context, see);
  else match_other_drivers(place, context, see);
}

}  // namespace mm::agent
