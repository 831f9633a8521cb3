// SPDX-License-Identifier: Apache-2.0
#include "agent/klog/xid.h"

namespace mm::agent {
namespace {

constexpr XidEntry entries[] = {
#define XID(code, role, severity, action, vendor, reason) {code, XidRole::role, Severity::severity, Action::action, vendor, reason},
#include "agent/klog/xid_catalogue.inc"
#undef XID
};

constexpr int lost = 79;

// GSP and its neighbours: one stops answering, and the others time out.
bool is_firmware(int code) { return code == 119 || code == 120 || code == 62 || code == 61 || code == 109 || code == 46 || code == 158; }
bool is_memory(int code) { return code == 48 || code == 94 || code == 95 || code == 140 || code == 92; }

}  // namespace

XidEntry xid_entry(int code) {
  for (const XidEntry& e : entries)
    if (e.code == code) return e;
  XidEntry unknown;
  unknown.code = code;
  unknown.vendor = "-";
  return unknown;
}

bool xid_follows(int earlier, int later) {
  if (earlier == later || earlier == lost) return true;
  const XidEntry first = xid_entry(earlier), second = xid_entry(later);
  if (later == 45 || later == 43) return first.role != XidRole::note;  // the program ends of it
  if (first.role == XidRole::user || first.role == XidRole::note) return false;
  if (second.role == XidRole::effect) return true;
  if (first.role == XidRole::link) return second.role == XidRole::link || later == 155 || later == 74;
  return (is_firmware(earlier) && is_firmware(later)) || (is_memory(earlier) && is_memory(later));
}

int xid_rank(int code, bool fatal) {
  if (code == lost) return 100;
  const XidEntry e = xid_entry(code);
  switch (e.role) {
    case XidRole::link: return (fatal ? 50 : 40) + (code == 149 ? 5 : 0);  // 149 is the link itself, the others what runs over it
    case XidRole::cause: return code == 48 ? 60 : e.action == Action::drain ? 50 : 40;
    case XidRole::user: return code == 43 ? 5 : 20;
    case XidRole::effect: return code == 45 ? 10 : e.action == Action::drain ? 30 : 15;
    case XidRole::note: return 1;
  }
  return 0;
}

}  // namespace mm::agent
