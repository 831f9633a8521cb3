// SPDX-License-Identifier: Apache-2.0
// Memory and machine checks: MCE, EDAC, firmware records (APEI), poisoned pages; and memory that ran out.
#include <fmt/format.h>

#include "agent/klog/scan.h"
#include "agent/klog/sighting.h"

namespace mm::agent {
namespace {

// Everything that says "memory lost data" within one boot is one fault of the node, however many drivers report it.
constexpr const char* uncorrected_family = "memory/uncorrected";

Sighting corrected(Part part, const char* code) {
  Sighting s;
  s.part = part;
  s.code = code;
  s.severity = Severity::info;
  s.action = Action::ignore;
  s.family = "memory/corrected";
  s.rank = part == Part::memory ? 2 : 1;
  return s;
}

Sighting uncorrected(Part part, const char* code, int rank) {
  Sighting s;
  s.part = part;
  s.code = code;
  s.severity = Severity::fatal;
  s.action = Action::drain;
  s.family = uncorrected_family;
  s.rank = rank;
  return s;
}

Sighting more(Sighting s) {
  s.joins_only = true;
  s.count = 0;
  s.severity = Severity::info;
  s.action = Action::ignore;
  return s;
}

// mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 5: be00000000800400
// mce: [Hardware Error]: CPU 10: Machine Check: 0 Bank 7: 8c00004000010090
// Bit 61 of the status: uncorrected; its lowest 16 bits 0000 0000 1MMM CCCC: the memory controller.
bool match_machine_check(std::string_view text, const See& see) {
  Scan scan(text);
  if (!scan.skip_past("Machine Check") || !scan.skip_past("Bank ")) return false;
  const auto bank = scan.number();
  if (!bank || !scan.take(": ")) return false;
  const std::string_view digits = scan.while_is(is_hex);
  uint64_t status = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), status, 16).ec != std::errc()) return false;
  const bool memory = (status & 0xff80) == 0x0080, lost = (status >> 61 & 1) != 0;
  const Part part = memory ? Part::memory : Part::node;
  Sighting s = lost ? uncorrected(part, "mce_uncorrected", 2) : corrected(part, "mce_corrected");
  s.facts.emplace_back("bank", std::to_string(*bank));
  see(std::move(s));
  return true;
}

// [Hardware Error]: MC4_STATUS[Over|CE|MiscV|-|AddrV|-|-|CECC]: 0xdc10410040080a13, and with "CPU:2 (19:1:1) " in front.
// The same bits; bit 44: deferred, which the line before has told.
bool match_amd_status(std::string_view words, const See& see) {
  Scan scan(words);
  if (!scan.skip_past("_STATUS[") || !scan.skip_past("]: 0x")) return false;
  const std::string_view digits = scan.while_is(is_hex);
  uint64_t status = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), status, 16).ec != std::errc() || (status >> 44 & 1) != 0) return false;
  Sighting s = (status >> 61 & 1) != 0 ? uncorrected(Part::node, "mce_uncorrected", 2) : corrected(Part::node, "mce_corrected");
  s.count = 0;  // the line before counts
  see(std::move(s));
  return true;
}

// The words of AMD's decoder, and what Linux says of what it has logged.
bool match_hardware_error(std::string_view text, LogContext& context, const See& see) {
  if (!contains(text, "[Hardware Error]:")) return false;
  if (match_machine_check(text, see)) return true;
  Scan scan(text);
  scan.skip_past("[Hardware Error]:");
  scan.spaces();
  const std::string_view words = scan.rest();
  if (context.previous_boot_record) {
    Sighting s;
    s.code = "previous_boot_record";
    see(more(std::move(s)));
    return true;
  }
  if (match_amd_status(words, see)) return true;
  if (words.starts_with("Machine check events logged")) {
    see(corrected(Part::node, "mce_corrected"));
  } else if (words.starts_with("Corrected error, no action required")) {
    see(corrected(Part::node, "mce_corrected"));
  } else if (words.starts_with("Deferred error, no action required")) {
    // Data is lost, but nobody has read it yet.
    Sighting s = uncorrected(Part::memory, "mce_deferred", 1);
    s.severity = Severity::error;
    s.action = Action::checkpoint;
    see(std::move(s));
  } else if (words.starts_with("Uncorrected") || words.starts_with("System Fatal error")) {
    see(uncorrected(Part::node, "mce_uncorrected", 2));
  // {1}[Hardware Error]: event severity: corrected / section_type: memory error / device_id: 0000:81:00.0
  } else if (words.starts_with("event severity: ")) {
    context.apei_severity = std::string(words.substr(words.find(": ") + 2));
    context.apei_part.clear();
  } else if (Scan section(words); section.skip_past("section_type: ")) {
    context.apei_part = std::string(section.rest());
    const bool bad = context.apei_severity != "corrected" && !context.apei_severity.starts_with("info");
    if (context.apei_part.starts_with("memory error")) {
      see(bad ? uncorrected(Part::memory, "apei_memory_uncorrected", 3) : corrected(Part::memory, "apei_memory_corrected"));
    } else if (!context.apei_part.starts_with("PCIe error")) {
      see(bad ? uncorrected(Part::node, "apei_uncorrected", 1) : corrected(Part::node, "apei_corrected"));
    }
  } else if (Scan device(words); device.take("device_id: ") && context.apei_part.starts_with("PCIe error")) {
    const std::string address = pci_address(device.rest());
    const bool fatal = context.apei_severity == "fatal", bad = fatal || context.apei_severity == "recoverable";
    const auto kind = context.kind(address);
    Sighting s;
    s.part = kind == LogContext::Kind::gpu ? Part::gpu : kind == LogContext::Kind::nic ? Part::nic : kind == LogContext::Kind::nvme ? Part::storage : Part::node;
    s.device = address;
    s.code = fatal ? "aer_fatal" : bad ? "aer_nonfatal" : "aer_corrected";
    s.severity = fatal ? Severity::fatal : bad ? Severity::error : Severity::info;
    s.action = fatal && kind != LogContext::Kind::bridge ? Action::drain : bad ? Action::alert : Action::ignore;
    s.family = "aer/" + address;
    if (kind == LogContext::Kind::other) s.joins_only = s.retracts = true;
    see(std::move(s));
  } else {
    see(more(corrected(Part::node, "mce_corrected")));
    see(more(uncorrected(Part::node, "mce_uncorrected", 0)));
  }
  return true;
}

// EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x12f4 offset:0x80 grain:32 syndrome:0x0 ...
// EDAC MC1: 2 UE memory scrubbing error on CPU_SrcID#1_Ha#0_Chan#2_DIMM#0 ...
// EDAC MC0: CE page 0x1a2b, offset 0x0, grain 0, syndrome 0x32, row 2, channel 1, label "DIMM_B1": amd64_edac
bool match_edac(std::string_view text, const See& see) {
  Scan scan(text);
  if (!scan.take("EDAC ")) return false;
  if (!scan.take("MC")) return true;
  scan.while_is(is_digit);
  if (!scan.take(": ")) return true;
  Scan counted = scan;
  const auto n = counted.number();
  if (n) counted.take(" "), scan = counted;
  const bool ce = scan.take("CE "), ue = !ce && scan.take("UE ");
  if ((!ce && !ue) || (n && *n <= 0)) return true;
  Sighting s = ce ? corrected(Part::memory, "edac_ce") : uncorrected(Part::memory, "edac_ue", 4);
  s.rank = ce ? 3 : 4;
  s.count = n ? static_cast<int>(std::min<int64_t>(*n, 1 << 20)) : 1;
  std::string label;
  if (Scan quoted(scan.rest()); quoted.skip_past("label \"")) label = std::string(quoted.until("\""));
  else if (Scan on(scan.rest()); on.take("on ") || on.skip_past(" on ")) label = std::string(on.until(" ("));
  if (!label.empty()) s.facts.emplace_back("dimm", label);
  // Each DIMM has a rate of its own.
  if (ce) s.family = "memory/corrected/" + label;
  see(std::move(s));
  return true;
}

// Memory failure: 0x1f7b2a3: recovery action for dirty LRU page: Recovered
// Memory failure: 0x1f7b2a3: Sending SIGBUS to python3:71942 due to hardware memory corruption
// mce: Uncorrected hardware memory error in user-access at 1f7b2a3c40
bool match_poison(std::string_view text, const See& see) {
  if (text.starts_with("Memory failure: 0x") || text.starts_with("MCE 0x") || text.starts_with("MCE: Killing ")) {
    Sighting s = uncorrected(Part::memory, "memory_failure", 3);
    if (!contains(text, "recovery action") && !contains(text, "Sending SIGBUS") && !contains(text, "Killing ")) s.count = 0;
    see(std::move(s));
    return true;
  }
  if (contains(text, "Uncorrected hardware memory error")) {
    see(uncorrected(Part::memory, "memory_failure", 3));
    return true;
  }
  return false;
}

Sighting out_of_memory(const std::string& cgroup) {
  Sighting s;
  s.part = Part::memory;
  s.code = "oom";
  s.severity = Severity::error;
  s.action = Action::alert;
  s.family = "oom/" + cgroup;
  if (!cgroup.empty()) s.facts.emplace_back("cgroup", cgroup);
  return s;
}

// "/slurm/uid_1000/job_4711/step_0" or ".../slurmstepd.scope/job_4711/step_0/user/task_0" -> 4711
std::string job_of(std::string_view cgroup) {
  Scan scan(cgroup);
  return scan.skip_past("job_") ? std::string(scan.while_is(is_digit)) : "";
}

// python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
// oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,oom_memcg=/slurm/uid_1000/job_4711,task_memcg=/slurm/...,task=python3,pid=71942,uid=1000
// Memory cgroup out of memory: Killed process 71942 (python3) total-vm:...
// Out of memory: Kill process 1234 (python3) score 950 or sacrifice child
// Task in /slurm/uid_0/job_12/step_0 killed as a result of limit of /slurm/uid_0/job_12
bool match_out_of_memory(std::string_view text, LogContext& context, const See& see) {
  Scan scan(text);
  if (scan.take("oom-kill:constraint=")) {
    const auto field = [&](std::string_view key) {
      Scan at(text);
      return at.skip_past(key) ? std::string(at.until(",")) : std::string();
    };
    const bool limited = contains(text, "CONSTRAINT_MEMCG");
    context.oom_cgroup = limited ? field("oom_memcg=") : "";
    context.oom_pid = field(",pid=");
    Sighting s = out_of_memory(context.oom_cgroup);
    s.facts.emplace_back("process", field(",task="));
    s.facts.emplace_back("pid", context.oom_pid);
    s.facts.emplace_back("uid", field(",uid="));
    if (const std::string job = job_of(limited ? context.oom_cgroup : field("task_memcg=")); !job.empty()) s.facts.emplace_back("job", job);
    see(std::move(s));
    return true;
  }
  if (contains(text, " invoked oom-killer: ")) {
    context.oom_cgroup.clear();
    context.oom_pid.clear();
    context.hold = "oom";
    return true;
  }
  if (scan.take("Task in ")) {
    if (!scan.skip_past(" killed as a result of limit of ")) return false;
    context.oom_cgroup = std::string(scan.rest());
    return true;
  }
  const bool limited = text.starts_with("Memory cgroup out of memory: Kill");
  if (limited || text.starts_with("Out of memory: Kill") || text.starts_with("Out of memory (oom_kill_allocating_task): Kill")) {
    Sighting s = out_of_memory(limited ? context.oom_cgroup : "");
    if (scan.skip_past(" process ")) {
      const auto pid = scan.number();
      if (pid && std::to_string(*pid) == context.oom_pid) s.count = 0;
      if (pid) s.facts.emplace_back("pid", std::to_string(*pid));
      if (scan.skip_past("(")) s.facts.emplace_back("process", std::string(scan.until(")")));
    }
    if (const std::string job = job_of(context.oom_cgroup); limited && !job.empty()) s.facts.emplace_back("job", job);
    see(std::move(s));
    return true;
  }
  if (text.starts_with("Killed process ") || text.starts_with("oom_reaper: reaped process")) {
    Sighting s = out_of_memory(context.oom_cgroup);
    s.joins_only = true;
    s.count = 0;
    see(std::move(s));
    return true;
  }
  return false;
}

}  // namespace

void match_memory(const LogLine& line, LogContext& context, const See& see) {
  const std::string_view text = line.message;
  if (text.starts_with("BERT: Error records from previous boot")) {
    context.previous_boot_record = true;
    Sighting s;
    s.code = "previous_boot_record";
    s.severity = Severity::error;
    return see(std::move(s));
  }
  if (match_hardware_error(text, context, see)) return;
  context.previous_boot_record = false;
  // CPU 0: Machine Check Exception: 0 Bank 5: 8c00004000010090, in the words of old
  if (text.starts_with("CPU ") && match_machine_check(text, see)) return;
  // soft offline: 0x12345: page migrated: a page that had corrected errors is given up
  if (text.starts_with("soft offline: 0x") || contains(text, "Soft-offlining pfn: ")) return see(corrected(Part::memory, "page_offlined"));
  if (match_edac(text, see) || match_poison(text, see)) return;
  match_out_of_memory(text, context, see);
}

}  // namespace mm::agent
