// SPDX-License-Identifier: Apache-2.0
#include "agent/klog/classifier.h"

#include <algorithm>
#include <cmath>

#include "agent/klog/scan.h"
#include "agent/klog/xid.h"

namespace mm::agent {
namespace {

constexpr size_t most_evidence = 40, most_findings = 512, most_pending = 8, longest_line = 2048;
constexpr double link_window = 60, effect_window = 600;
constexpr int64_t many_corrected = 100;       // with at least `corrected_an_hour`: a part that goes bad
constexpr double corrected_an_hour = 60;

bool near(const Finding& f, const LogLine& line, double seconds) {
  if (f.clock == LogLine::Clock::none || line.clock != f.clock) return true;
  return line.seconds >= f.first - seconds && line.seconds <= f.last + seconds;
}

bool on_device(const Finding& f, const std::string& device) {
  return f.device == device || std::find(f.devices.begin(), f.devices.end(), device) != f.devices.end();
}

std::string fact(const Sighting& s, const std::string& key) {
  for (const auto& [k, value] : s.facts)
    if (k == key) return value;
  return "";
}

bool same_instance(const Finding& f, const Sighting& s) {
  const auto at = f.facts.find("instance");
  return (at == f.facts.end() ? "" : at->second) == fact(s, "instance");
}

bool is_link(int xid) { return xid_entry(xid).role == XidRole::link; }
bool is_corrected(const std::string& code) {
  return code == "aer_corrected" || code == "edac_ce" || code == "mce_corrected" || code == "apei_memory_corrected" || code == "apei_corrected";
}

}  // namespace

Finding Finding::shown() const {
  Finding out = *this;
  if (is_corrected(code) && count >= many_corrected && (clock == LogLine::Clock::none || static_cast<double>(count) * 3600 >= corrected_an_hour * (last - first))) {
    out.severity = std::max(out.severity, Severity::warning);
    out.action = std::max(out.action, Action::alert);
  }
  if (over && code == "link_down") {
    out.code = "link_flap";
    out.severity = Severity::warning;
    out.action = Action::alert;
  } else if (over) {
    out.severity = Severity::info;
    out.action = Action::ignore;
  }
  if (earlier_boot) out.action = Action::ignore;
  return out;
}

Classifier::Classifier(std::function<LogContext::Kind(const std::string&)> look_up) { context_.look_up = std::move(look_up); }

void Classifier::add(std::string_view raw) {
  ++lines_;
  changed_.clear();
  raw = raw.substr(0, longest_line);
  const LogLine line = parse_log_line(raw);
  if (line.message.empty()) return;
  if (!line.kernel) {
    if (line.program != "systemd-networkd") return;
  } else if (line.message == last_message_) {
    // The same again, as in a storm: it is counted where the line before was.
    for (const auto& [number, count] : last_counts_)
      if (auto at = std::find_if(findings_.begin(), findings_.end(), [n = number](const Finding& f) { return f.number == n; }); at != findings_.end()) {
        at->count += int64_t{count} * line.repeated;
        if (line.clock == at->clock) at->last = std::max(at->last, line.seconds);
        changed_.push_back(number);
      }
    if (!last_counts_.empty()) return;
  }
  last_counts_.clear();
  last_message_ = line.message;
  bool seen = false;
  const See see = [&](Sighting s) {
    seen = true;
    take(std::move(s), line, raw);
  };
  context_.hold.clear();
  if (!line.kernel) {
    match_network(line, context_, see);
    return;
  }
  if (any_kernel_line_ && line.message.starts_with("Linux version ")) reboot();
  any_kernel_line_ = true;
  for (const auto match : {match_nvidia, match_pcie, match_memory, match_kernel, match_storage, match_network}) {
    match(line, context_, see);
    if (seen) return;
    if (!context_.hold.empty()) {
      if (pending_.size() < most_pending) pending_.emplace_back(raw);
      return;
    }
  }
}

void Classifier::take(Sighting s, const LogLine& line, std::string_view raw) {
  if (s.retracts) {
    const std::string family = s.family;
    std::erase_if(findings_, [&](const Finding& f) { return !f.earlier_boot && f.family == family; });
    return;
  }
  // A program's end names its cause: that is what the incident is about.
  const bool implied = s.caused_by != 0;
  if (implied) {
    const XidEntry cause = xid_entry(s.caused_by);
    s.xid = s.caused_by;
    s.code = std::to_string(s.caused_by);
    s.rank = xid_rank(s.caused_by, false) - 1;
    s.part = cause.role == XidRole::user ? Part::app : Part::gpu;
    s.severity = cause.role == XidRole::link ? Severity::error : cause.severity;
    s.action = cause.role == XidRole::link ? Action::restart : cause.action;
  }
  if (s.family.empty()) s.family = std::string(name(s.part)) + "/" + s.code + "/" + s.device;
  Finding* f = s.xid != 0 ? home_of_xid(s, line) : home(s, line);
  if (f == nullptr) {
    if (s.joins_only) return;
    if (findings_.size() >= most_findings) {
      const auto harmless = std::find_if(findings_.begin(), findings_.end(), [](const Finding& old) { return old.action == Action::ignore; });
      findings_.erase(harmless != findings_.end() ? harmless : findings_.begin());
    }
    f = &findings_.emplace_back();
    f->number = next_++;
    f->family = s.family;
    f->implied = implied;
    f->clock = line.clock;
    f->first = f->last = line.seconds;
  }
  const uint64_t number = f->number;
  if (f->count == 0 && f->known.empty()) s.count = std::max(s.count, 1);
  if (s.code == "mce_corrected" && f->code == "edac_ce") s.count = 0;
  note(*f, s, line, raw);
  if (s.xid != 0) absorb_effects(*f, line);
  changed_.push_back(number);
  last_counts_.emplace_back(number, s.count);
  if (s.ends) last_counts_.clear();
}

Finding* Classifier::home(const Sighting& s, const LogLine& line) {
  for (auto f = findings_.rbegin(); f != findings_.rend(); ++f) {
    if (f->earlier_boot) continue;
    if (f->family == s.family) return &*f;
    // "Machine check events logged", and the driver that says which DIMM it was.
    if (s.code == "mce_corrected" && f->family.starts_with("memory/corrected/") && near(*f, line, link_window)) return &*f;
    if (s.code == "edac_ce" && f->family == "memory/corrected" && near(*f, line, link_window)) {
      f->family = s.family;
      f->count = 0;
      return &*f;
    }
    // The PCIe errors of a GPU that has fallen off the bus, and a start that fails without saying of which GPU.
    if (f->xid == 79 && (s.family == "aer/" + f->device || s.family == "pcie/" + f->device) && near(*f, line, effect_window)) return &*f;
    if (s.part == Part::gpu && s.device.empty() && s.xid == 0 && f->part == Part::gpu && (f->xid == 79 || f->code == "rm_init_failed") && near(*f, line, effect_window)) return &*f;
    if (s.code == "rm_init_failed" && f->xid == 79 && on_device(*f, s.device)) return &*f;
  }
  return nullptr;
}

Finding* Classifier::home_of_xid(const Sighting& s, const LogLine& line) {
  for (auto f = findings_.rbegin(); f != findings_.rend(); ++f) {
    if (f->earlier_boot || f->xid == 0) continue;
    if (is_link(f->xid) && is_link(s.xid) && near(*f, line, link_window)) return &*f;
    if (!on_device(*f, s.device) || (!same_instance(*f, s) && f->xid != 79)) continue;
    if (f->xid == s.xid || f->xid == 79) return &*f;
    if (xid_follows(f->xid, s.xid) && near(*f, line, xid_entry(s.xid).role == XidRole::cause ? link_window : effect_window)) return &*f;
    // The same fault, told in another order: the worse one will name it.
    if (xid_entry(f->xid).role == XidRole::cause && xid_entry(s.xid).role == XidRole::cause && xid_follows(s.xid, f->xid) && s.xid != 79 && near(*f, line, link_window)) return &*f;
  }
  return nullptr;
}

// What came before its cause was printed.
void Classifier::absorb_effects(Finding& root, const LogLine& line) {
  const uint64_t number = root.number;
  for (bool again = true; again;) {
    again = false;
    auto into = std::find_if(findings_.begin(), findings_.end(), [&](const Finding& f) { return f.number == number; });
    for (auto f = findings_.begin(); f != findings_.end(); ++f) {
      if (f == into || f->earlier_boot) continue;
      const bool effect = f->xid != 0 && on_device(*into, f->device) && f->xid != into->xid && xid_follows(into->xid, f->xid) &&
                          (xid_entry(f->xid).role == XidRole::effect || f->implied || into->xid == 79 || f->xid == 43) && near(*f, line, effect_window);
      const bool bus = into->xid == 79 && (f->family == "aer/" + into->device || (f->code == "rm_init_failed" && f->device == into->device)) && near(*f, line, effect_window);
      const bool nameless_start = into->xid == 79 && f->code == "probe_failed" && near(*f, line, link_window);
      if (!effect && !bus && !nameless_start) continue;
      merge(*into, *f);
      findings_.erase(f);
      again = true;
      break;
    }
  }
}

void Classifier::merge(Finding& into, Finding& from) {
  into.count += from.count;
  into.severity = std::max(into.severity, from.severity);
  into.action = std::max(into.action, from.action);
  if (from.first < into.first && from.clock == into.clock) {
    // Lines stay in the order in which they came.
    from.evidence.insert(from.evidence.end(), into.evidence.begin(), into.evidence.end());
    into.evidence = std::move(from.evidence);
    into.first = from.first;
  } else if (from.number < into.number) {
    from.evidence.insert(from.evidence.end(), into.evidence.begin(), into.evidence.end());
    into.evidence = std::move(from.evidence);
  } else {
    into.evidence.insert(into.evidence.end(), from.evidence.begin(), from.evidence.end());
  }
  if (into.evidence.size() > most_evidence) into.evidence.resize(most_evidence);
  into.known.merge(from.known);
  into.facts.merge(from.facts);
  for (const std::string& d : from.devices)
    if (std::find(into.devices.begin(), into.devices.end(), d) == into.devices.end()) into.devices.push_back(d);
}

void Classifier::note(Finding& f, const Sighting& s, const LogLine& line, std::string_view raw) {
  if (s.rank > f.rank || (f.implied && s.caused_by == 0 && s.xid == f.xid)) {
    f.rank = std::max(f.rank, s.rank);
    f.part = s.part;
    f.code = s.code;
    if (s.xid != 0) f.xid = s.xid;
    if (!s.device.empty()) f.device = s.device;
    f.implied = s.caused_by != 0;
  }
  if (f.device.empty()) f.device = s.device;
  // The block device says more than its controller.
  if (f.part == Part::storage && !f.device.empty() && s.device.starts_with(f.device + "n")) f.device = s.device;
  if (!s.device.empty() && std::find(f.devices.begin(), f.devices.end(), s.device) == f.devices.end() && f.devices.size() < most_evidence) f.devices.push_back(s.device);
  f.severity = std::max(f.severity, s.severity);
  f.action = std::max(f.action, s.action);
  f.count += int64_t{s.count} * line.repeated;
  if (s.ends) f.over = true;
  else if (s.count > 0) f.over = false;
  if (line.clock == f.clock) f.first = std::min(f.first, line.seconds), f.last = std::max(f.last, line.seconds);
  for (const auto& [key, value] : s.facts)
    if (!value.empty()) f.facts.try_emplace(key, value);
  const auto keep = [&](std::string_view text, std::string_view message) {
    if (f.evidence.size() >= most_evidence) return;
    if (f.known.insert(std::hash<std::string_view>()(message)).second) f.evidence.emplace_back(trimmed(text));
  };
  if (!pending_.empty() && (s.code == "79" || s.code == "oom")) {
    for (const std::string& p : pending_) keep(p, parse_log_line(p).message);
    pending_.clear();
  }
  keep(raw, line.message);
}

void Classifier::reboot() {
  for (Finding& f : findings_) f.earlier_boot = true;
  auto look_up = std::move(context_.look_up);
  context_ = LogContext();
  context_.look_up = std::move(look_up);
  pending_.clear();
}

const Finding* Classifier::find(uint64_t number) const {
  const auto at = std::find_if(findings_.begin(), findings_.end(), [&](const Finding& f) { return f.number == number; });
  return at == findings_.end() ? nullptr : &*at;
}

std::vector<Finding> Classifier::findings() const {
  std::vector<Finding> out(findings_.begin(), findings_.end());
  std::stable_sort(out.begin(), out.end(), [](const Finding& a, const Finding& b) { return a.number < b.number; });
  return out;
}

void Classifier::forget(uint64_t number) {
  std::erase_if(findings_, [&](const Finding& f) { return f.number == number; });
}

}  // namespace mm::agent
