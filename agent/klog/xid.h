// SPDX-License-Identifier: Apache-2.0
// What an Xid means (xid_catalogue.inc), and which Xid is the consequence of which.
#pragma once

#include <string>
#include <string_view>

#include "agent/klog/types.h"

namespace mm::agent {

enum class XidRole { user, cause, effect, link, note };

struct XidEntry {
  int code = 0;
  XidRole role = XidRole::cause;
  Severity severity = Severity::warning;
  Action action = Action::alert;
  std::string_view vendor;  // NVIDIA's immediate action
  std::string_view reason;  // why ours differs
};

// A code that is not listed gives the entry for such codes.
XidEntry xid_entry(int code);

// Where both are seen on one GPU: does `later` follow from `earlier`, so that they are one fault?
bool xid_follows(int earlier, int later);
// Of two Xids of one fault, which names it: the higher.
int xid_rank(int code, bool fatal);

}  // namespace mm::agent
