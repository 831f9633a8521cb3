// SPDX-License-Identifier: Apache-2.0
// The node itself: lockups, hung tasks, stalls, crashes of the kernel, its clock, its temperature. Also learns when the boot began.
#include <fmt/format.h>

#include "agent/klog/scan.h"
#include "agent/klog/sighting.h"

namespace mm::agent {
namespace {

constexpr double boot_window = 120;  // seconds

Sighting node(const char* code, Severity severity, Action action) {
  Sighting s;
  s.code = code;
  s.severity = severity;
  s.action = action;
  return s;
}

// watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]
// NMI watchdog: Watchdog detected hard LOCKUP on cpu 3
bool match_lockup(std::string_view text, const See& see) {
  Scan scan(text);
  if (contains(text, "Watchdog detected hard LOCKUP on cpu")) {
    see(node("hard_lockup", Severity::fatal, Action::drain));
    return true;
  }
  if (!scan.skip_past("BUG: soft lockup - CPU#")) return false;
  Sighting s = node("soft_lockup", Severity::error, Action::alert);
  if (const auto cpu = scan.number()) s.facts.emplace_back("cpu", std::to_string(*cpu));
  if (scan.skip_past("[")) s.facts.emplace_back("process", std::string(scan.until(":]")));
  see(std::move(s));
  return true;
}

// INFO: task jfsmount:136986 blocked for more than 120 seconds.
// INFO: task khugepaged:412 blocked on a mutex likely owned by task ... is another kernel's word for it
bool match_hung_task(std::string_view text, const See& see) {
  Scan scan(text);
  scan.take("INFO: ");
  if (!scan.take("task ") || !contains(scan.rest(), " blocked for more than ") || !contains(scan.rest(), " seconds")) return false;
  Sighting s = node("hung_task", Severity::warning, Action::alert);
  const std::string_view task = scan.until(" ");
  const size_t colon = task.rfind(':');
  s.facts.emplace_back("process", std::string(task.substr(0, colon)));
  if (colon != std::string_view::npos) s.facts.emplace_back("pid", std::string(task.substr(colon + 1)));
  see(std::move(s));
  return true;
}

}  // namespace

void match_kernel(const LogLine& line, LogContext& context, const See& see) {
  const std::string_view text = line.message;
  // Linux version 5.15.0-1053-nvidia (buildd@lcy02-amd64-018) (gcc ...)
  if (text.starts_with("Linux version ")) {
    context.boot_seen = true;
    context.boot_clock = line.clock;
    context.boot_seconds = line.seconds;
    return;
  }
  if (match_lockup(text, see) || match_hung_task(text, see)) return;
  // BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 37s!
  if (text.starts_with("BUG: workqueue lockup")) return see(node("workqueue_lockup", Severity::warning, Action::alert));
  // rcu: INFO: rcu_sched self-detected stall on CPU
  // rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
  // rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 3-... }
  if (contains(text, "INFO: rcu_") && contains(text, "stall")) return see(node("rcu_stall", Severity::warning, Action::alert));
  // Kernel panic - not syncing: Fatal machine check
  if (text.starts_with("Kernel panic - not syncing") || text.starts_with("Kernel Panic - not syncing"))
    return see(node("kernel_panic", Severity::fatal,
                    contains(text, "achine check") || contains(text, "hard LOCKUP") || contains(text, "Hard LOCKUP") || contains(text, "hardware error") ||
                            contains(text, "CPUs entered broadcast exception handler") || contains(text, "NMI: Not continuing") || contains(text, "Uncorrected")
                        ? Action::drain
                        : Action::requeue));
  // BUG: unable to handle page fault for address: ffffb5a4c0a3d000
  // general protection fault, probably for non-canonical address 0xdead000000000108: 0000 [#1] PREEMPT SMP NOPTI
  // kernel BUG at mm/slub.c:305!   Oops: 0000 [#1] SMP NOPTI
  if (text.starts_with("BUG: unable to handle ") || text.starts_with("kernel BUG at ") || text.starts_with("Oops: ") || text.starts_with("Internal error: Oops") ||
      ((text.starts_with("general protection fault") || text.starts_with("invalid opcode") || text.starts_with("double fault")) && contains(text, "[#"))) {
    Sighting s = node("kernel_oops", Severity::error, Action::alert);
    if (text.starts_with("Oops")) s.count = 0;
    return see(std::move(s));
  }
  // clocksource: timekeeping watchdog on CPU3: Marking clocksource 'tsc' as unstable because the skew is too large:
  if (text.starts_with("clocksource: ") && contains(text, "Marking clocksource") && contains(text, "unstable") && !contains(text, "'tsc-early'")) {
    Sighting s = node("clocksource_unstable", Severity::warning, Action::alert);
    s.part = Part::clock;
    return see(std::move(s));
  }
  // tsc: Marking TSC unstable due to clocksource watchdog: the same once more, or found by another check; while it boots it is only found out
  if (contains(text, ": Marking TSC unstable due to ") && context.since_boot(line) > boot_window) {
    Sighting s = node("clocksource_unstable", Severity::warning, Action::alert);
    s.part = Part::clock;
    s.count = contains(text, "clocksource watchdog") ? 0 : 1;
    return see(std::move(s));
  }
  // mce: CPU20: Package temperature above threshold, cpu clock throttled (total events = 1)
  // CPU20: Core temperature/speed normal
  if (contains(text, " temperature above threshold, cpu clock throttled")) return see(node("cpu_throttled", Severity::warning, Action::alert));
  if (contains(text, " temperature/speed normal")) {
    Sighting s = node("cpu_throttled", Severity::info, Action::ignore);
    s.joins_only = s.ends = true;
    s.count = 0;
    return see(std::move(s));
  }
  // thermal thermal_zone0: critical temperature reached (105 C), shutting down
  if (contains(text, "ritical temperature reached")) return see(node("critical_temperature", Severity::fatal, Action::drain));
  // Uhhuh. NMI received for unknown reason 3d on CPU 0.
  if (text.starts_with("Uhhuh. NMI received") || text.starts_with("NMI: PCI system error") || text.starts_with("NMI: IOCK error"))
    return see(node("nmi", Severity::warning, Action::alert));
  // VFS: file-max limit 1000000 reached
  if (text.starts_with("VFS: file-max limit ")) return see(node("file_limit", Severity::error, Action::alert));
}

}  // namespace mm::agent
