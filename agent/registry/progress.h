// SPDX-License-Identifier: Apache-2.0
// The progress of one rank as it reports it, and how long it may go without any. Time is an argument: nothing here reads a clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/key_values.h"

namespace mm::agent {

using TimePoint = std::chrono::steady_clock::time_point;

struct Progress {
  int64_t step = -1;        // steps finished; -1: none reported
  int64_t checkpoint = -1;  // step of the last committed checkpoint
  std::string phase;        // start, load, train, save, eval, end; empty: never said
  std::string loss;
  TimePoint last;           // of the last change of step or phase
  TimePoint last_step;      // when `step` last grew within this phase; meaningless before
  bool in_stride = false;   // last_step belongs to the present phase
  std::deque<double> step_seconds;  // the most recent ones
  std::deque<double> busy_seconds;  // of them, as far as the rank says (BUSY=): its own work, without waiting for others
  std::string group;                // ranks of the same do the same work (GROUP=)

  bool reports() const { return step >= 0 || !phase.empty(); }
};

void update(Progress& progress, const KeyValues& message, TimePoint now);

// Seconds without progress after which the rank counts as hanging; nothing where it is not judged (it never reported, or has ended its
// work). In PHASE=train: `given` where that is positive, else ten times the median of its own step times and at least 10 s, once it has
// three of them. Otherwise 10 minutes.
std::optional<double> hang_limit(const Progress& progress, double given);
// The same for a rank whose process is stopped (state T), which makes no progress in any phase: `given` where that is positive, else 10 s.
std::optional<double> stopped_limit(const Progress& progress, double given);
bool is_stopped(char process_state);

// A rank at the moment that a hang is suspected.
struct RankState {
  int rank = 0;
  std::string node;
  std::string phase;
  int64_t step = -1;
  double idle = 0;   // seconds without progress
  double limit = 0;  // 0: not judged
  char state = '?';  // of its process, as in /proc
};

struct HangVerdict {
  int rank = 0;
  std::string node;
  double seconds = 0;
  std::string evidence;
};

// Which rank holds the step up. Nothing while any rank is still within its limit: its peers may be waiting for it. A stopped rank that is
// beyond its limit is the cause whatever the others do.
// The cause is, in this order: a stopped rank, the one that has finished fewest steps, one in uninterruptible sleep, the longest idle.
std::optional<HangVerdict> judge_hang(const std::vector<RankState>& ranks);

}  // namespace mm::agent
