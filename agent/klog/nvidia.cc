// SPDX-License-Identifier: Apache-2.0
// Lines of NVIDIA's driver (NVRM, nvidia-nvswitch) and of amdgpu.
#include <fmt/format.h>

#include <algorithm>

#include "agent/klog/scan.h"
#include "agent/klog/sighting.h"
#include "agent/klog/xid.h"

namespace mm::agent {
namespace {

Sighting gpu(std::string code, std::string device, Severity severity, Action action) {
  Sighting s;
  s.part = Part::gpu;
  s.code = std::move(code);
  s.device = std::move(device);
  s.severity = severity;
  s.action = action;
  return s;
}

Sighting xid_sighting(int code, const std::string& device) {
  const XidEntry e = xid_entry(code);
  Sighting s = gpu(std::to_string(code), device, e.severity, e.action);
  s.xid = code;
  s.rank = xid_rank(code, false);
  if (e.role == XidRole::user || code == 45) s.part = Part::app;
  return s;
}

// NVRM: Xid (PCI:0000:c5:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 17 (0x04084507 0x00000004 ...
// NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x004505c6 ...)
// and with "XC 00 i 00", "Link -1"
void read_nvlink5(std::string_view text, Sighting& s) {
  const bool fatal = contains(text, " Fatal");
  bool injected = false;
  for (size_t at = 0; (at = text.find(" i", at)) != std::string_view::npos; ++at) {
    Scan scan(text.substr(at + 2));
    scan.spaces();
    const std::string_view digits = scan.while_is(is_digit);
    if (digits.empty() || (!scan.done() && scan.rest().front() != ' ')) continue;
    injected = digits.find_first_not_of('0') != std::string_view::npos;
    break;
  }
  if (fatal) {
    s.severity = Severity::fatal;
    s.action = Action::drain;
    s.rank = xid_rank(s.xid, true);
  }
  if (injected) {
    s.severity = Severity::info;
    s.action = Action::ignore;
    s.rank = 1;
    s.facts.emplace_back("injected", "yes");
  }
  Scan scan(text);
  while (scan.take("pid=") || scan.take("name=")) {
    scan.skip_past(",");
    scan.spaces();
  }
  s.facts.emplace_back("unit", std::string(scan.word()));
  s.facts.emplace_back("fatal", fatal ? "yes" : "no");
  if (scan.skip_past("Link ")) {
    scan.spaces();
    if (const auto link = scan.number()) s.facts.emplace_back("link", std::to_string(*link));
  }
}

// NVRM: Xid (PCI:0009:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)
// The driver's own word is obeyed: 1 reset, 2 reboot, 4 drain and reset; 3 asks that programs which use peer access end; 0 is no news.
void read_recovery_action(std::string_view text, Sighting& s) {
  Scan scan(text);
  if (!scan.skip_past(" to 0x")) return;
  const auto action = scan.number(16);
  if (Scan words = scan; words.skip_past("(")) s.facts.emplace_back("recovery_action", std::string(words.until(")")));
  if (!action || *action == 0) {
    s.joins_only = true;
  } else if (*action == 3) {
    s.severity = Severity::error;
    s.action = Action::restart;
  } else {
    s.severity = Severity::fatal;
    s.action = Action::drain;
  }
}

// NVRM: Xid (PCI:0000:3b:00): 74, pid=1234, name=python3, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)
// Bits 0, 23 and 30 of the first register may be ignored; 1 and 20 come with another fault.
void read_nvlink4(std::string_view text, Sighting& s) {
  Scan scan(text);
  if (!scan.skip_past("(0x")) return;
  const auto first = scan.number(16);
  if (!first) return;
  bool others = false;
  while (scan.skip_past("0x"))
    if (const auto more = scan.number(16); more && *more != 0) others = true;
  constexpr int64_t harmless = 1LL << 0 | 1LL << 23 | 1LL << 30, sympathetic = 1LL << 1 | 1LL << 20;
  if (others || *first == 0) return;
  if ((*first & ~harmless) == 0) s.severity = Severity::warning, s.action = Action::alert;
  else if ((*first & ~(harmless | sympathetic)) == 0) s.severity = Severity::error, s.action = Action::restart;
}

// NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
// NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No
// NVRM: Xid (PCI:0000:01:00 GPU-I:01 GPU-CI:02): 13, pid=7194, name=python3, Graphics SM Warp Exception ...
// NVRM: Xid (0000:03:00): 14, Channel 00000001
// NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149
void match_xid(Scan scan, const See& see) {
  scan.spaces();
  if (!scan.take("(")) return;
  const std::string_view inside = scan.until(")");
  if (!scan.take(")")) return;
  const std::string device = pci_address(inside);
  if (device.empty()) return;
  scan.take(":");
  scan.spaces();
  const auto code = scan.number();
  if (!code || *code <= 0 || *code > 9999 || (!scan.done() && scan.rest().front() != ',' && scan.rest().front() != ' ' && scan.rest().front() != ':')) return;
  Sighting s = xid_sighting(static_cast<int>(*code), device);
  for (const auto& [mark, key] : {std::pair<std::string_view, const char*>{"GPU-I:", "instance"}, {"GPU-CI:", "compute_instance"}}) {
    Scan mig(inside);
    if (!mig.skip_past(mark)) continue;
    if (const auto number = mig.number()) s.facts.emplace_back(key, std::to_string(*number));
  }
  scan.take(",");
  scan.spaces();
  const std::string_view text = scan.rest();
  if (Scan pid(text); pid.take("pid="))
    if (const auto number = pid.number()) s.facts.emplace_back("pid", std::to_string(*number));
  if (Scan process(text); process.skip_past("name=")) {
    if (const std::string_view process_name = process.until(","); !process_name.starts_with("<")) s.facts.emplace_back("process", std::string(process_name));
  }
  if (Scan cause(text); cause.skip_past("caused by previous Xid ")) {
    if (const auto number = cause.number()) s.caused_by = static_cast<int>(*number);
  }
  if (s.xid >= 144 && s.xid <= 150) read_nvlink5(text, s);
  if (s.xid == 154) read_recovery_action(text, s);
  if (s.xid == 74) read_nvlink4(text, s);
  see(std::move(s));
}

// nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
// nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)
// nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Data {0x50610002, 0x10100030}
void match_sxid(Scan scan, const See& see) {
  if (!scan.skip_past("SXid")) return;
  scan.spaces();
  if (!scan.take("(")) return;
  const std::string device = pci_address(scan.until(")"));
  scan.take(")");
  scan.take(":");
  scan.spaces();
  const auto code = scan.number();
  if (device.empty() || !code || !scan.take(",")) return;
  scan.spaces();
  const std::string_view text = scan.rest();
  Sighting s = gpu(std::to_string(*code), device, Severity::warning, Action::alert);
  if (text.starts_with("Fatal")) s.severity = Severity::fatal, s.action = Action::drain;
  // The words behind an event: its data and where it came from.
  if (text.starts_with("Data") || text.starts_with("Severity") || text.starts_with("Engine")) s.count = 0;
  s.facts.emplace_back("sxid", std::to_string(*code));
  see(std::move(s));
}

// NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.
// NVRM: GPU at 0000:01:00.0 has fallen off the bus.
// NVRM: The NVIDIA GPU 0000:b3:00.0 / (PCI ID: 10de:26b5) installed in this system has / fallen off the bus and is not responding to commands.
bool match_lost(std::string_view text, LogContext& context, const See& see) {
  Sighting s = xid_sighting(79, "");
  if (Scan scan(text); scan.take("The NVIDIA GPU ")) {
    context.lost_gpu = find_pci_address(text);
    if (context.lost_gpu.empty()) context.lost_gpu = pci_address(scan.word());
    if (context.lost_gpu.empty()) return true;
    s.device = context.lost_gpu;
    if (!contains(text, "fallen off the bus")) {
      context.hold = s.code;
      return true;
    }
    context.lost_gpu.clear();
    see(std::move(s));
    return true;
  }
  if (!context.lost_gpu.empty() && contains(text, "installed in this system has") && !contains(text, "fallen off the bus")) {
    context.hold = s.code;
    return true;
  }
  if (!contains(text, "fallen off the bus")) return false;
  s.device = context.lost_gpu;
  context.lost_gpu.clear();
  if (s.device.empty()) s.device = find_pci_address(text);
  if (s.device.empty())
    if (Scan scan(text); scan.skip_past("GPU ")) s.device = pci_address(scan.until(" "));
  see(std::move(s));
  return true;
}

// NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:894)
// NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0
// NVRM: RmInitAdapter failed! (0x26:0xffff:1096)
// NVRM: The NVIDIA probe routine failed for 1 device(s).
void match_start(std::string_view text, const See& see) {
  if (contains(text, "RmInitAdapter failed") || contains(text, "rm_init_adapter failed")) {
    Sighting s = gpu("rm_init_failed", find_pci_address(text), Severity::fatal, Action::drain);
    s.count = contains(text, "RmInitAdapter failed") ? 1 : 0;
    s.rank = 30;
    see(std::move(s));
  } else if (contains(text, "Cannot attach gpu") || contains(text, "bailing out of RmInitAdapter")) {
    Sighting s = gpu("rm_init_failed", "", Severity::info, Action::ignore);
    s.joins_only = true;
    see(std::move(s));
  } else if (contains(text, "probe routine failed for") || contains(text, "None of the NVIDIA ")) {
    Sighting s = gpu("probe_failed", "", Severity::error, Action::alert);
    s.count = contains(text, "probe routine") ? 1 : 0;
    see(std::move(s));
  }
}

// amdgpu 0000:c3:00.0: amdgpu: ring gfx timeout, signaled seq=..., emitted seq=...
// amdgpu 0000:c3:00.0: amdgpu: GPU reset begin!
// amdgpu 0000:c3:00.0: amdgpu: 1 uncorrectable hardware errors detected in umc block
void match_amd(std::string_view text, const See& see) {
  const std::string device = find_pci_address(text);
  const auto event = [&](const char* code, Severity severity, Action action) {
    Sighting s = gpu(code, device, severity, action);
    s.family = "amdgpu/" + device;
    s.rank = static_cast<int>(severity);
    see(std::move(s));
  };
  if (contains(text, "uncorrectable hardware errors detected")) {
    Scan scan(text);
    scan.skip_past("amdgpu: ");
    if (const auto n = scan.number(); !n || *n > 0) event("amd_uncorrectable", Severity::fatal, Action::drain);
  } else if (contains(text, "GPU reset(") && contains(text, "failed")) {
    event("amd_reset_failed", Severity::fatal, Action::drain);
  } else if (contains(text, "ring ") && contains(text, " timeout")) {
    event("amd_ring_timeout", Severity::error, Action::restart);
  } else if (contains(text, "GPU reset begin")) {
    event("amd_reset", Severity::error, Action::restart);
  }
}

}  // namespace

void match_nvidia(const LogLine& line, LogContext& context, const See& see) {
  std::string_view text = line.message;
  if (text.starts_with("nvidia-nvswitch")) return match_sxid(Scan(text), see);
  if (text.starts_with("amdgpu ") || text.starts_with("[drm:amdgpu")) return match_amd(text, see);
  Scan scan(text);
  const bool driver = scan.take("NVRM:");
  scan.spaces();
  text = scan.rest();
  if (!driver) {
    // The rest of a sentence over several lines may come without the driver's name.
    if (!context.lost_gpu.empty()) match_lost(text, context, see);
    return;
  }
  if (scan.take("Xid")) {
    match_xid(scan, see);
    return;
  }
  if (match_lost(text, context, see)) return;
  match_start(text, see);
}

}  // namespace mm::agent
