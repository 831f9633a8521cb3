// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/kernel_watch.h"

#include <fmt/format.h>
#include <fstream>
#include <time.h>

namespace mm::agent {
namespace {

constexpr double old_news = 600, forget_after = 24 * 3600;  // seconds
constexpr milliseconds age_period{600000};

double monotonic() {
  timespec t = {};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// From sysfs: what the kernel knows of a device of this machine.
LogContext::Kind kind_from_sysfs(const std::string& device) {
  std::ifstream file(fmt::format("/sys/bus/pci/devices/{}/class", device));
  std::string text;
  if (!(file >> text)) return LogContext::Kind::unknown;
  const unsigned long code = std::strtoul(text.c_str(), nullptr, 16) >> 8;
  std::ifstream vendor_file(fmt::format("/sys/bus/pci/devices/{}/vendor", device));
  std::string vendor;
  vendor_file >> vendor;
  if (code == 0x0302 || code == 0x1200 || (code == 0x0300 && (vendor == "0x10de" || vendor == "0x1002"))) return LogContext::Kind::gpu;
  if (code == 0x0200 || code == 0x0207 || code == 0x0280) return LogContext::Kind::nic;
  if (code == 0x0108) return LogContext::Kind::nvme;
  return code == 0x0604 ? LogContext::Kind::bridge : LogContext::Kind::other;
}

// "%n" is the node's name.
std::string path_for(std::string path, const std::string& node) {
  for (size_t at; (at = path.find("%n")) != std::string::npos;) path.replace(at, 2, node);
  return path;
}

}  // namespace

KernelWatch::KernelWatch(Context& context, Desk& desk, const std::string& position)
    : c_(context),
      desk_(desk),
      started_(monotonic()),
      first_start_(position.empty()),
      classifier_(kind_from_sysfs),
      age_timer_(context.loop),
      log_(context.loop, path_for(context.site.kernel_log, context.node), position, {[this](std::string_view text) { line(text); }, [this] { turn(); }}) {
  age_timer_.repeat(age_period, [this] { age(); });
}

void KernelWatch::line(std::string_view text) {
  classifier_.add(text);
  changed_.insert(classifier_.changed().begin(), classifier_.changed().end());
}

// What has changed goes to the desk when the lines of one moment are all read: they may name the cause after its effects.
void KernelWatch::turn() {
  for (const uint64_t number : std::exchange(changed_, {})) {
    const Finding* found = classifier_.find(number);
    if (found == nullptr) continue;  // folded into another
    const Finding f = found->shown();
    std::string& key = keys_[number];
    if (key.empty()) key = fmt::format("kernel/{}/{}/{}/{}", name(f.part), f.code, f.device, f.clock == LogLine::Clock::none ? 0.0 : f.first);
    if (f.over && f.code != "link_flap") {
      desk_.over(key);
      continue;
    }
    Report r;
    r.part = f.part;
    r.code = f.code;
    r.device = f.device;
    if (f.facts.contains("sxid")) r.scope = "switch";  // of NVLink: every GPU behind it
    r.severity = f.severity;
    r.action = f.action;
    r.count = f.count;
    r.evidence = f.evidence;
    // The message is what people want to read in a node's reason; the record's head is not.
    for (std::string& e : r.evidence) e = std::string(parse_log_line(e).message);
    if (const auto job = f.facts.find("job"); job != f.facts.end()) r.job = job->second;
    const bool old = first_start_ && log_.is_device() && f.clock == LogLine::Clock::monotonic && started_ > 2 * old_news && f.last < started_ - old_news;
    if (old) r.action = std::min(r.action, Action::alert);
    // Which interfaces carry training is for rtnetlink and the configuration to say.
    if (f.code == "link_down") r.action = std::min(r.action, Action::alert);
    desk_.report(key, r);
  }
  if (log_.lost() > lost_) {
    lost_ = log_.lost();
    Report r;
    r.code = "kernel_log_overrun";
    r.evidence = {"the kernel overwrote log records before they were read"};
    r.count = static_cast<int64_t>(lost_);
    desk_.report("kernel/overrun", r);
  }
}

void KernelWatch::age() {
  for (const Finding& f : classifier_.findings()) {
    if (f.clock != LogLine::Clock::monotonic || f.last > monotonic() - forget_after) continue;
    classifier_.forget(f.number);
    keys_.erase(f.number);
  }
}

}  // namespace mm::agent
