// SPDX-License-Identifier: Apache-2.0
// PCI Express: errors that the Advanced Error Reporting driver prints, in the spellings of Linux 4 to 6, and slots that lose their card.
// Only GPUs, NICs, NVMe disks and ports that hide what is behind them count. A corrected error is a matter of its rate, a fatal one is an event.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "agent/klog/scan.h"
#include "agent/klog/sighting.h"

namespace mm::agent {

LogContext::Kind LogContext::kind(const std::string& device) const {
  if (const auto at = kinds.find(device); at != kinds.end()) return at->second;
  return look_up ? look_up(device) : Kind::unknown;
}

double LogContext::since_boot(const LogLine& line) const {
  constexpr double unknown = 1e12;
  if (line.clock == LogLine::Clock::monotonic) return line.seconds;
  if (boot_seen && line.clock == boot_clock && line.clock != LogLine::Clock::none) return line.seconds - boot_seconds;
  return unknown;
}

namespace {

using Kind = LogContext::Kind;

Kind kind_of_driver(std::string_view driver) {
  constexpr std::array<std::string_view, 3> gpus = {"nvidia", "amdgpu", "nouveau"};
  constexpr std::array<std::string_view, 22> nics = {"mlx5_core", "mlx4_core", "bnxt_en", "ice",  "i40e", "iavf", "ixgbe", "igb", "igc", "e1000e", "tg3",
                                                     "efa",       "ena",       "irdma",   "hfi1", "qede", "qed",  "cxgb4", "sfc", "gve", "bnx2x",  "r8169"};
  const auto is = [&](const auto& list) { return std::find(list.begin(), list.end(), driver) != list.end(); };
  if (is(gpus)) return Kind::gpu;
  if (is(nics)) return Kind::nic;
  if (driver == "nvme") return Kind::nvme;
  if (driver == "pcieport") return Kind::bridge;
  if (driver == "pci" || driver == "vfio-pci") return Kind::unknown;
  return Kind::other;
}

Kind kind_of_class(int64_t class_code, std::string_view vendor) {
  switch (class_code >> 8) {
    case 0x0302: return Kind::gpu;
    case 0x0300: return vendor == "10de" || vendor == "1002" ? Kind::gpu : Kind::other;  // else a board's own display
    case 0x1200: return Kind::gpu;                                                      // processing accelerator
    case 0x0200: case 0x0207: case 0x0280: return Kind::nic;
    case 0x0108: return Kind::nvme;
    case 0x0604: return Kind::bridge;
    case 0: return Kind::unknown;
    default: return Kind::other;
  }
}

Part part_of(Kind kind) {
  switch (kind) {
    case Kind::gpu: return Part::gpu;
    case Kind::nic: return Part::nic;
    case Kind::nvme: return Part::storage;
    default: return Part::node;
  }
}

enum class Level { none, corrected, non_fatal, fatal };

// "Corrected", "Correctable", "Uncorrected (Non-Fatal)", "Uncorrectable (Fatal)"
Level level_at(std::string_view text) {
  if (text.starts_with("Correct")) return Level::corrected;
  if (!text.starts_with("Uncorrect")) return Level::none;
  return contains(text.substr(0, 40), "Non-Fatal") ? Level::non_fatal : Level::fatal;
}

Sighting aer(Level level, const std::string& device, const LogContext& context) {
  Sighting s;
  const Kind kind = context.kind(device);
  s.part = part_of(kind);
  s.device = device;
  s.family = "aer/" + device;
  switch (level) {
    case Level::fatal:
      s.code = "aer_fatal";
      s.severity = Severity::fatal;
      // The part that failed is behind a bridge, where only the bridge is named: somebody has to look.
      s.action = kind == Kind::bridge ? Action::alert : Action::drain;
      break;
    case Level::non_fatal: s.code = "aer_nonfatal", s.severity = Severity::error, s.action = Action::alert; break;
    default: s.code = "aer_corrected", s.severity = Severity::info, s.action = Action::ignore;
  }
  s.rank = 2 * static_cast<int>(level);
  if (kind == Kind::other) s.joins_only = s.retracts = true;
  return s;
}

// pcieport 0000:00:1b.4: AER: Corrected error received: id=00dc
// pcieport 0000:00:1d.0: AER: Multiple Corrected error received: 0000:01:00.0
// pcieport 0000:00:06.0: AER: Correctable error message received from 0000:01:00.0
bool match_header(std::string_view text, LogContext& context, const See& see) {
  Scan scan(text);
  if (!scan.skip_past("AER: ")) return false;
  scan.take("Multiple ");
  const Level level = level_at(scan.rest());
  if (level == Level::none || !scan.skip_past("received")) return false;
  std::string device;
  const std::string port = find_pci_address(text.substr(0, text.find("AER: ")));
  if (Scan id = scan; id.skip_past("id=")) {
    const std::string domain = port.empty() ? "0000" : port.substr(0, port.find(':'));
    if (const auto requester = id.number(16))
      device = fmt::format("{}:{:02x}:{:02x}.{:x}", domain, *requester >> 8 & 0xff, *requester >> 3 & 0x1f, *requester & 7);
  } else {
    device = find_pci_address(scan.rest());
  }
  if (device.empty()) device = port;
  if (device.empty()) return false;
  context.aer_device = device;
  context.aer_severity = std::to_string(static_cast<int>(level));
  context.aer_level = static_cast<int>(level);
  see(aer(level, device, context));
  return true;
}

// nvme 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)
// pcieport 0000:00:1c.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, id=00e0(Requester ID)
bool match_bus_error(std::string_view text, LogContext& context, const See& see) {
  Scan scan(text);
  if (!scan.skip_past("PCIe Bus Error: severity=")) return false;
  const Level level = level_at(scan.rest());
  const std::string device = find_pci_address(text.substr(0, text.find("PCIe Bus Error")));
  if (level == Level::none || device.empty()) return true;
  Sighting s = aer(level, device, context);
  // The driver's name says what the device is.
  if (const Kind kind = context.kind(device); kind != Kind::unknown && kind != Kind::bridge) ++s.rank;
  // The header has counted it.
  if (context.aer_device == device && context.aer_severity == std::to_string(static_cast<int>(level))) s.count = 0;
  context.aer_device = device;
  context.aer_level = static_cast<int>(level);
  context.aer_severity.clear();
  see(std::move(s));
  return true;
}

}  // namespace

void match_pcie(const LogLine& line, LogContext& context, const See& see) {
  const std::string_view text = line.message;
  // "DRIVER ADDRESS: ..." tells what a device is, and so does the kernel's list at boot:
  // pci 0000:18:00.0: [10de:2330] type 00 class 0x030200 PCIe Endpoint
  if (text.starts_with("AER: ")) {
    match_header(text, context, see);
    return;
  }
  // pciehp 0000:00:1c.4:pcie004: Slot(4): Link Down, in the words of Linux 4
  if (Scan old(text); old.take("pciehp ") && contains(text, ": Slot(") && (contains(text, "Link Down") || contains(text, "Card not present"))) {
    Sighting s;
    s.code = "pcie_link_down";
    s.device = find_pci_address(text);
    s.severity = Severity::error;
    s.family = "pcie/" + s.device;
    return see(std::move(s));
  }
  Scan scan(text);
  const std::string_view driver = scan.until(" :");
  if (!scan.take(" ")) return;
  const std::string_view word = scan.until(" ");
  if (word.size() < 11 || word.back() != ':') return;
  const std::string device = pci_address(word.substr(0, word.size() - 1));
  if (device.empty()) return;
  scan.spaces();
  const std::string_view rest = scan.rest();
  if (driver == "pci" && rest.starts_with("[")) {
    if (Scan vendor(rest.substr(1)), type(rest); type.skip_past(" class 0x"))
      if (const auto code = type.number(16)) context.kinds[device] = kind_of_class(*code, vendor.until(":"));
    return;
  }
  if (const Kind kind = kind_of_driver(driver); kind != Kind::unknown) {
    // A port is a port, but a driver's word for a device is better than that of its class.
    if (kind != Kind::bridge || !context.kinds.contains(device)) context.kinds[device] = kind;
  }
  if (match_header(text, context, see) || match_bus_error(text, context, see)) return;
  // nvidia 0000:03:00.0: AER: can't recover (no error_detected callback): what the port's error has hit
  if (rest.starts_with("AER: can't recover") && !context.aer_device.empty() && device != context.aer_device) {
    const Kind kind = context.kind(device);
    if (kind != Kind::gpu && kind != Kind::nic && kind != Kind::nvme) return;
    Sighting s = aer(static_cast<Level>(context.aer_level), device, context);
    s.family = "aer/" + context.aer_device;
    s.rank += 1;
    s.count = 0;
    s.joins_only = true;
    return see(std::move(s));
  }
  // Details of the record:   device [8086:9d14] error status/mask=00000001/00002000,    [ 0] Receiver Error   (First)
  if (rest.starts_with("AER:") || contains(rest, "error status/mask=") || contains(rest, "aer_status:") || contains(rest, "TLP Header:") ||
      (rest.starts_with("[") && device == context.aer_device)) {
    Sighting s = aer(Level::none, device, context);
    s.joins_only = true;
    s.count = 0;
    return see(std::move(s));
  }
  const auto event = [&](const char* code, Severity severity, Action action) {
    Sighting s;
    s.part = part_of(context.kind(device));
    s.code = code;
    s.device = device;
    s.severity = severity;
    s.action = action;
    s.family = fmt::format("pcie/{}", device);
    see(std::move(s));
  };
  // pcieport 0000:60:03.1: pciehp: Slot(12): Link Down, Card not present
  if (contains(rest, "pciehp: Slot(") && (contains(rest, "Link Down") || contains(rest, "Card not present"))) {
    event("pcie_link_down", Severity::error, Action::alert);
  // pcieport 0000:40:01.1: DPC: containment event, status:0x1f05 source:0x0000
  } else if (contains(rest, "DPC: containment event")) {
    event("pcie_containment", Severity::error, Action::alert);
  // nvidia 0000:01:00.0: Unable to change power state from D3cold to D0, device inaccessible
  } else if (contains(rest, "device inaccessible") || contains(rest, "can't change power state from D3cold to D0 (config space inaccessible)")) {
    const Kind kind = context.kind(device);
    if (kind == Kind::gpu || kind == Kind::nic || kind == Kind::nvme) event("pcie_inaccessible", Severity::fatal, Action::drain);
  }
}

}  // namespace mm::agent
