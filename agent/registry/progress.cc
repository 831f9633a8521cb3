// SPDX-License-Identifier: Apache-2.0
#include "agent/registry/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "agent/incidents/robust.h"

namespace mm::agent {
namespace {

constexpr size_t remembered_steps = 64, remembered_paces = 32;
constexpr size_t steps_to_learn = 3;
constexpr double least_learnt_limit = 10;
constexpr double slow_phase_limit = 600;

double seconds_between(TimePoint a, TimePoint b) { return std::chrono::duration<double>(b - a).count(); }

bool training(const Progress& p) { return p.phase.empty() || p.phase == "train"; }

}  // namespace

void update(Progress& p, const KeyValues& message, TimePoint now) {
  const std::string phase = get(message, "PHASE", p.phase).substr(0, 32);
  if (phase != p.phase) {
    p.phase = phase;
    p.last = now;
    p.in_stride = false;
  }
  const int64_t step = get_int(message, "STEP", p.step);
  if (step != p.step) {
    if (training(p) && p.in_stride && step > p.step) {
      p.step_seconds.push_back(seconds_between(p.last_step, now) / static_cast<double>(step - p.step));
      if (p.step_seconds.size() > remembered_steps) p.step_seconds.pop_front();
    }
    if (const double busy = std::strtod(get(message, "BUSY", "-1").c_str(), nullptr); training(p) && busy >= 0 && std::isfinite(busy)) {
      p.busy_seconds.push_back(busy);
      if (p.busy_seconds.size() > remembered_paces) p.busy_seconds.pop_front();
    }
    p.step = step;
    p.last = p.last_step = now;
    p.in_stride = training(p);
  }
  p.group = get(message, "GROUP", p.group).substr(0, 32);
  std::erase_if(p.group, [](char c) { return c <= ' '; });
  p.checkpoint = get_int(message, "CHECKPOINT", p.checkpoint);
  p.loss = get(message, "LOSS", p.loss).substr(0, 64);
}

std::optional<double> hang_limit(const Progress& p, double given) {
  if (!p.reports() || p.phase == "end") return std::nullopt;
  if (!training(p)) return slow_phase_limit;
  if (given > 0) return given;
  if (p.step_seconds.size() < steps_to_learn) return slow_phase_limit;
  return std::max(least_learnt_limit, 10 * median({p.step_seconds.begin(), p.step_seconds.end()}));
}

std::optional<double> stopped_limit(const Progress& p, double given) {
  const auto limit = hang_limit(p, given);
  return limit ? std::optional<double>(std::min(*limit, given > 0 ? given : least_learnt_limit)) : std::nullopt;
}

bool is_stopped(char process_state) { return process_state == 'T' || process_state == 't'; }

std::optional<HangVerdict> judge_hang(const std::vector<RankState>& all) {
  std::vector<const RankState*> ranks;
  for (const RankState& r : all)
    if (r.limit > 0) ranks.push_back(&r);
  const auto stopped = [](const RankState* r) { return is_stopped(r->state); };
  const bool cause_is_plain = std::any_of(ranks.begin(), ranks.end(), [&](const RankState* r) { return stopped(r) && r->idle > r->limit; });
  bool overdue = false;
  for (const RankState* r : ranks) {
    overdue = overdue || r->idle > r->limit;
    const bool slow_phase = !r->phase.empty() && r->phase != "train";
    if (slow_phase && r->idle <= r->limit && !stopped(r) && !cause_is_plain) return std::nullopt;
  }
  if (!overdue) return std::nullopt;

  const auto longest = [](const RankState* a, const RankState* b) { return a->idle < b->idle; };
  const auto verdict = [&](const RankState* r, const std::string& why) {
    return HangVerdict{r->rank, r->node, r->idle, fmt::format("rank {} on {}: no progress for {:.1f} s after step {}; {}", r->rank, r->node, r->idle,
                                                              r->step < 0 ? "none" : std::to_string(r->step), why)};
  };
  std::vector<const RankState*> chosen;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(chosen), stopped);
  if (!chosen.empty()) return verdict(*std::max_element(chosen.begin(), chosen.end(), longest), "its process is stopped (state T)");

  const auto [least, most] =
      std::minmax_element(ranks.begin(), ranks.end(), [](const RankState* a, const RankState* b) { return a->step < b->step; });
  if ((*least)->step < (*most)->step) return verdict(*least, fmt::format("others have finished step {}", (*most)->step));

  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(chosen), [](const RankState* r) { return r->state == 'D'; });
  if (!chosen.empty()) return verdict(*std::max_element(chosen.begin(), chosen.end(), longest), "its process is in uninterruptible sleep (state D)");
  return verdict(*std::max_element(ranks.begin(), ranks.end(), longest), fmt::format("all {} ranks wait at the same step", ranks.size()));
}

}  // namespace mm::agent
