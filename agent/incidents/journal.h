// SPDX-License-Identifier: Apache-2.0
// The agent's events: the last few thousand in memory, all of them appended to STATE_DIR/events-NODE.jsonl (kept below a size limit by
// one rename to .1). Event numbers and incident numbers never repeat, also across a crash, and grow: numbers are reserved on disk in blocks
// before they are given out. Where the disk takes no reservation they come from the clock, in milliseconds, until it does.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "agent/loop.h"
#include "common/key_values.h"

namespace mm::agent {

class Journal {
 public:
  struct Event {
    int64_t number = 0;
    std::string json;  // one line
    uid_t owner = 0;   // whom it concerns besides root; meaningless where `open`
    bool open = true;  // concerns the node: everybody may read it
  };

  // Throws an Error where state_dir cannot be made or written.
  Journal(Loop& loop, const std::string& state_dir, const std::string& node);

  int64_t next_incident();
  // Adds an event: KEY=VALUE as on a watch; keys become lower case, EVIDENCE a list, numbers numbers.
  void add(const KeyValues& event);
  void add(const KeyValues& event, uid_t owner);
  // Events after number `since`, oldest first.
  const std::deque<Event>& events() const { return events_; }
  void on_event(std::function<void(const Event&)> handler) { handler_ = std::move(handler); }

 private:
  void add(const KeyValues& values, uid_t owner, bool open);
  int64_t reserve(int64_t& next, int64_t& limit);
  void append(const std::string& line);

  Loop& loop_;
  std::string path_, numbers_path_;
  int64_t next_event_ = 1, event_limit_ = 1, next_incident_ = 1, incident_limit_ = 1;
  bool complained_ = false;
  std::deque<Event> events_;
  std::function<void(const Event&)> handler_;
};

}  // namespace mm::agent
