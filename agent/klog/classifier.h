// SPDX-License-Identifier: Apache-2.0
// Makes incidents of a kernel log: one for each fault, with the root cause, the worst severity and action, a count and the lines.
//
// Sightings of one family are one fault. For Xids it is the driver's own word ("caused by previous Xid"), else the rules of klog/xid.h on one
// GPU, that say which is whose consequence, whatever order the lines came in; NVLink 5 faults spread over the GPUs of a node within a
// minute and are one. A reboot ends what was before it: such findings are kept, but ask for nothing.
//
// Memory is bounded, whatever the log: equal lines are counted, a finding keeps a limited number of different lines, and the number of findings
// is limited (the oldest harmless one goes).
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "agent/klog/sighting.h"

namespace mm::agent {

struct Finding {
  uint64_t number = 0;  // in the order of their first line
  Part part = Part::node;
  std::string code, device;
  Severity severity = Severity::info;
  Action action = Action::ignore;
  int64_t count = 0;
  std::vector<std::string> evidence;  // different lines, first come
  std::map<std::string, std::string> facts;
  std::vector<std::string> devices;   // where there are several
  bool over = false;                  // the link is back, the server answers
  bool earlier_boot = false;
  LogLine::Clock clock = LogLine::Clock::none;
  double first = 0, last = 0;

  // As it is to be shown: a fault that is over, or that a reboot has cleared, asks for less; a rate of corrected errors may ask for more.
  Finding shown() const;

  // Of the classifier.
  std::string family;
  int rank = -1, xid = 0;
  bool implied = false;               // its Xid was only named as a cause so far
  std::unordered_set<size_t> known;   // hashes of the lines in evidence
};

class Classifier {
 public:
  // Of this machine's own log: how devices are known. `now_kernel`: every line is the kernel's.
  explicit Classifier(std::function<LogContext::Kind(const std::string&)> look_up = {});

  void add(std::string_view line);
  // Those that changed with the last line, by number.
  const std::vector<uint64_t>& changed() const { return changed_; }
  const Finding* find(uint64_t number) const;
  // In the order of their first line.
  std::vector<Finding> findings() const;
  void forget(uint64_t number);
  uint64_t lines() const { return lines_; }

 private:
  void take(Sighting s, const LogLine& line, std::string_view raw);
  Finding* home(const Sighting& s, const LogLine& line);
  Finding* home_of_xid(const Sighting& s, const LogLine& line);
  void absorb_effects(Finding& root, const LogLine& line);
  void merge(Finding& into, Finding& from);
  void note(Finding& f, const Sighting& s, const LogLine& line, std::string_view raw);
  void reboot();

  LogContext context_;
  std::deque<Finding> findings_;
  std::vector<std::string> pending_;  // lines of a sentence whose end is to come
  std::vector<uint64_t> changed_;
  std::string last_message_;
  std::vector<std::pair<uint64_t, int>> last_counts_;  // what the last message added to: for equal lines
  uint64_t next_ = 1, lines_ = 0;
  bool any_kernel_line_ = false;
};

}  // namespace mm::agent
