// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/hardware.h"

#include <fmt/format.h>

#include "agent/klog/xid.h"
#include "agent/probes/gpu.h"
#include "agent/probes/host.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr milliseconds rate_window{60000}, look_back_period{3600000};
constexpr double weeks = 28.0 * 24 * 3600;
constexpr int lemon_faults = 3;  // of hardware, within the four weeks
constexpr const char* xid_probe = "xid";

Part part_of_probe(const std::string& probe) {
  if (probe == "gpu" || probe == xid_probe) return Part::gpu;
  if (probe == "ports" || probe == "interfaces") return Part::nic;
  if (probe == "munge") return Part::slurm;
  if (probe == "clock") return Part::clock;
  return probe == "host" ? Part::node : Part::storage;
}

// Where the kernel log cannot be read, the library tells Xids.
Probe make_xid_probe(const std::shared_ptr<Nvml>& library) {
  Probe p;
  p.name = xid_probe;
  p.period = milliseconds(1000);
  p.deadline = milliseconds(10000);
  p.run = [library] {
    ProbeResult out;
    const auto event = library->wait_for_xid(900);
    if (!event) return out;
    const XidEntry e = xid_entry(event->code);
    Report r;
    r.part = e.role == XidRole::user || event->code == 45 ? Part::app : Part::gpu;
    r.code = std::to_string(event->code);
    r.device = event->device;
    r.severity = e.severity;
    r.action = e.action;
    r.evidence = {fmt::format("gpu {} Xid {}, told by NVML", event->device, event->code)};
    out.reports[fmt::format("{}/{}", event->device, event->code)] = r;
    return out;
  };
  return p;
}

}  // namespace

HardwareWatch::HardwareWatch(Context& context, Desk& desk, History& history, bool kernel_log_reads)
    : c_(context),
      desk_(desk),
      history_(history),
      runner_(context.loop, {[this](const std::string& probe, const ProbeResult& r) { result(probe, r); },
                             [this](const std::string& probe, const std::string& words) {
                               log::warn("{}", words);
                               Report r;
                               r.part = part_of_probe(probe);
                               r.code = "probe_hangs";
                               r.severity = Severity::error;
                               r.evidence = {words};
                               desk_.report("hang/" + probe, r);
                             },
                             [this](const std::string& probe) { desk_.over("hang/" + probe, fmt::format("probe {} has come back", probe)); }}),
      predict_timer_(context.loop),
      look_back_timer_(context.loop) {
  if (!c_.site.nvml.empty())
    if (const auto library = Nvml::load(c_.site.nvml)) {
      if (auto probe = gpu_probe(library)) runner_.add(std::move(*probe));
      if (!kernel_log_reads) runner_.add(make_xid_probe(library));
    }
  runner_.add(host_probe());
  runner_.add(port_probe());
  runner_.add(interface_probe());
  runner_.add(clock_probe());
  if (const auto smartctl = find_smartctl()) runner_.add(smart_probe(*smartctl));
  std::vector<std::string> folders = c_.site.check_paths;
  folders.insert(folders.end(), {"/", c_.site.state_dir});
  runner_.add(disk_probe(std::move(folders)));
  runner_.add(mount_probe());
  if (!c_.site.check_paths.empty()) runner_.add(path_probe(c_.site.check_paths));
  predict_timer_.repeat(rate_window, [this] { predict(); });
  look_back_timer_.repeat(look_back_period, [this] { look_back(); });
  look_back();
}

void HardwareWatch::slurm_known(const std::string& munge_socket) { runner_.add(munge_probe(munge_socket)); }

void HardwareWatch::result(const std::string& probe, const ProbeResult& news) {
  std::set<std::string> now;
  // What an earlier agent has told ends as well, but for a GPU that was lost: this agent has never seen it.
  if (!seen_.contains(probe))
    for (const auto& [key, open] : desk_.open())
      if (key.starts_with(probe + "/") && open.report.code != "gpu_lost") seen_[probe].insert(key);
  for (const auto& [name, report] : news.reports) {
    const std::string key = probe + "/" + name;
    bool told = false;
    for (const auto& [other, open] : desk_.open())
      told |= report.part == Part::gpu && report.code == "gpu_lost" && open.report.part == Part::gpu && open.report.device == report.device &&
              open.report.action == Action::drain && other != key;
    if (told) continue;
    now.insert(key);
    desk_.report(key, report);
  }
  if (probe == xid_probe) return;  // events, not states
  for (const std::string& key : seen_[probe])
    if (!now.contains(key)) desk_.over(key);
  seen_[probe] = std::move(now);
  for (const std::string& name : std::exchange(metric_names_[probe], {})) metrics_.erase(name);
  for (const auto& [name, value] : news.metrics) {
    metrics_[name] = value;
    metric_names_[probe].insert(name);
  }
  for (const auto& [what, count] : news.corrected) errors_[what] += count;
}

std::vector<std::string> HardwareWatch::seen_now() const {
  std::vector<std::string> out;
  for (const auto& [probe, keys] : seen_)
    for (const std::string& key : keys) {
      const auto open = desk_.open().find(key);
      if (open != desk_.open().end() && open->second.report.action >= Action::restart && !open->second.report.evidence.empty()) out.push_back(open->second.report.evidence.front());
    }
  return out;
}

void HardwareWatch::run_all(milliseconds deadline, std::function<void()> done) {
  auto once = std::make_shared<std::function<void()>>(std::move(done));
  const auto finish = [once] {
    if (const auto call = std::exchange(*once, {})) call();
  };
  runner_.run_all(finish);
  c_.loop.after(deadline, finish);
}

void HardwareWatch::predict() {
  const double seconds = std::chrono::duration<double>(rate_window).count();
  for (auto& [what, count] : errors_) rates_.add(what.first, what.second, std::exchange(count, 0), seconds);
  std::set<std::string> now;
  for (const auto& [what, change] : rates_.changes()) {
    const std::string key = fmt::format("predict/{}/{}", change.device, change.kind);
    Report r;
    r.part = change.kind == "ecc" || change.kind == "nvlink" || change.kind == "pcie_replay" ? Part::gpu : Part::nic;
    r.code = "predict_rate";
    r.device = change.device;
    r.action = c_.site.predict_drain > 0 && change.score >= c_.site.predict_drain ? Action::drain : Action::checkpoint;
    r.evidence = {fmt::format("{} {}: {:.0f} corrected {} errors in a minute, usually {:.2g} (score {:.1f}): it may fail", name(r.part), change.device, change.count, change.kind,
                              change.usual, change.score)};
    now.insert(key);
    desk_.report(key, r);
  }
  for (const std::string& key : foretold_)
    if (!now.contains(key)) desk_.over(key);
  foretold_ = std::move(now);
}

void HardwareWatch::look_back() {
  history_.count_hardware(wall_time() - weeks, [this](int count, const std::string& parts) {
    if (count < lemon_faults) return desk_.over("predict/lemon");
    Report r;
    r.code = "predict_repeats";
    r.action = Action::checkpoint;
    r.count = count;
    r.evidence = {fmt::format("node {} failed {} times within four weeks: {}", c_.node, count, parts)};
    desk_.report("predict/lemon", r);
  });
}

}  // namespace mm::agent
