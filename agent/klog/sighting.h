// SPDX-License-Identifier: Apache-2.0
// What a matcher reads in one line of the log. Sightings become incidents in the classifier: those of one family are one fault, whose name is
// that of its sighting of the highest rank, and whose severity and action are the worst of all.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/klog/line.h"
#include "agent/klog/types.h"

namespace mm::agent {

struct Sighting {
  Part part = Part::node;
  std::string code;
  std::string device;  // PCI address, block device or interface; empty where the line names none
  Severity severity = Severity::warning;
  Action action = Action::alert;
  std::string family;  // empty: part, code and device
  int rank = 0;
  int count = 1;            // events that the line stands for; 0: more words about an event that another line counts
  bool joins_only = false;  // no incident of its own, only evidence for one that is there
  bool ends = false;        // the fault is over: the link is back, the server answers
  bool retracts = false;    // the device is none that this program looks after: its incident goes
  int xid = 0;              // an Xid, which has rules of its own (klog/xid.h)
  int caused_by = 0;        // the Xid that the line itself names as its cause
  std::vector<std::pair<std::string, std::string>> facts;  // more keys of the incident
};

// What earlier lines have told.
struct LogContext {
  enum class Kind { unknown, gpu, nic, nvme, bridge, other };
  std::map<std::string, Kind, std::less<>> kinds;            // by PCI address
  std::function<Kind(const std::string& device)> look_up;    // the machine's own answer, where the log is this machine's
  std::map<std::string, std::string, std::less<>> pci_of;    // by network interface
  std::map<std::string, bool, std::less<>> had_link;         // by network interface or PCI address: its link was seen up
  bool boot_seen = false;
  double boot_seconds = 0;      // when the boot began, on `boot_clock`
  LogLine::Clock boot_clock = LogLine::Clock::none;
  std::string lost_gpu;         // "The NVIDIA GPU ADDRESS" of a sentence over several lines
  std::string aer_device;       // of the AER record that is being printed
  std::string aer_severity;     // until the record's second line
  int aer_level = 0;
  std::string apei_severity, apei_part;
  bool previous_boot_record = false;  // BERT: what follows is about the boot before
  std::string oom_cgroup, oom_pid;
  std::string hold;  // set by a matcher whose line begins a sentence: the code of the sighting that it will be evidence for

  Kind kind(const std::string& device) const;
  // Seconds since this boot began, or a large number where the log does not tell.
  double since_boot(const LogLine& line) const;
};

using See = std::function<void(Sighting)>;

// Each looks at one line; `line.message` is not empty and is the kernel's, but for match_network (see there).
void match_nvidia(const LogLine& line, LogContext& context, const See& see);   // Xid, SXid, a GPU that is gone, one that does not start
void match_pcie(const LogLine& line, LogContext& context, const See& see);     // AER, DPC, hot-plug slots
void match_memory(const LogLine& line, LogContext& context, const See& see);   // machine checks, EDAC, APEI, poisoned pages, OOM kills
void match_kernel(const LogLine& line, LogContext& context, const See& see);   // lockups, hung tasks, panics, clocks, temperature
void match_storage(const LogLine& line, LogContext& context, const See& see);  // disks, file systems, NFS, Lustre
void match_network(const LogLine& line, LogContext& context, const See& see);  // links and firmware of NICs; also systemd-networkd's lines

}  // namespace mm::agent
