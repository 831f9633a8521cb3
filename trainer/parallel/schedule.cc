// SPDX-License-Identifier: Apache-2.0
#include "trainer/parallel/schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/error.h"

namespace mm::parallel {
namespace {

// The order in which chunks and micro-batches take turns: groups of pp micro-batches go through chunk after chunk. The last
// group is as long as the others: a schedule for full groups has no deadlock, and passes that are left out of it bring none,
// since passes need only others of the same micro-batch.
struct Turn {
  int chunk, micro_batch;
};
std::vector<Turn> turns(int pp, int chunks, int micro_batches) {
  std::vector<Turn> all;
  for (int first = 0; first < micro_batches; first += pp)
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int m = first; m < first + pp; ++m) all.push_back({chunk, m});
  return all;
}

// Forward passes that stage r does before its first backward one.
int ahead(ScheduleKind kind, int pp, int r, int chunks, int passes) {
  switch (kind) {
    case ScheduleKind::gpipe:
      return passes;
    case ScheduleKind::one_f_one_b:
      return std::min(passes, pp - r);
    case ScheduleKind::interleaved:
      return std::min(passes, 2 * (pp - r - 1) + (chunks - 1) * pp + 1);
  }
  return passes;
}

}  // namespace

Schedule generate(ScheduleKind kind, int pp, int virtual_stages, int micro_batches) {
  if (kind == ScheduleKind::one_f_one_b && virtual_stages != 1)
    throw usage_error(fmt::format("schedule: 1f1b has one chunk a stage, not {}: use interleaved", virtual_stages));
  const std::vector<Turn> order = turns(pp, virtual_stages, micro_batches);
  const int passes = static_cast<int>(order.size());
  Schedule schedule(static_cast<size_t>(pp));
  for (int r = 0; r < pp; ++r) {
    std::vector<Pass>& list = schedule[static_cast<size_t>(r)];
    const int lead = ahead(kind, pp, r, virtual_stages, passes);
    const auto add = [&](Pass::Direction direction, int chunk, int micro_batch) {
      if (micro_batch < micro_batches) list.push_back({direction, chunk, micro_batch});
    };
    for (int k = 0; k < passes + lead - 1; ++k) {
      if (k < passes) {
        const Turn& t = order[static_cast<size_t>(k)];
        add(Pass::Direction::forward, t.chunk, t.micro_batch);
      }
      if (k >= lead - 1) {
        const Turn& t = order[static_cast<size_t>(k - lead + 1)];
        add(Pass::Direction::backward, virtual_stages - 1 - t.chunk, t.micro_batch);
      }
    }
  }
  return schedule;
}

std::vector<EncoderAction> encoder_actions(const std::vector<Pass>& first_stage) {
  using What = EncoderAction::What;
  std::vector<Pass> passes;  // of the chunk that begins the model
  std::vector<int> forward;  // micro-batches in their order
  for (const Pass& pass : first_stage) {
    if (pass.chunk != 0) continue;
    passes.push_back(pass);
    if (pass.direction == Pass::Direction::forward) forward.push_back(pass.micro_batch);
  }
  std::vector<EncoderAction> actions;
  std::vector<int> slots;  // the micro-batch that each holds, or -1
  const auto slot_of = [&](int held) { return std::ranges::find(slots, held) - slots.begin(); };
  const auto add = [&](What what, int micro_batch) {
    actions.push_back({what, micro_batch, static_cast<int>(slot_of(micro_batch))});
  };
  size_t made = 0, sent = 0, seen = 0;  // forward passes
  const auto make = [&] {
    if (made == forward.size()) return;
    const auto free = static_cast<size_t>(slot_of(-1));
    if (free == slots.size()) slots.push_back(-1);
    slots[free] = forward[made];
    add(What::make, forward[made++]);
  };
  for (size_t i = 0; i < passes.size(); ++i) {
    const int micro_batch = passes[i].micro_batch;
    if (passes[i].direction == Pass::Direction::forward) {
      if (made == 0) make();
      if (sent == seen++) add(What::send, forward[sent++]);
      make();
      continue;
    }
    add(What::take, micro_batch);
    // What the first stage does next waits for no gradient.
    if (i + 1 < passes.size() && passes[i + 1].direction == Pass::Direction::forward) add(What::send, forward[sent++]);
    add(What::backward, micro_batch);
    slots[static_cast<size_t>(slot_of(micro_batch))] = -1;
  }
  return actions;
}

Simulation simulate(const Schedule& schedule, double forward_time, double backward_time) {
  const int pp = static_cast<int>(schedule.size());
  int chunks = 0, micro_batches = 0;
  for (const Pass& pass : schedule.front()) {
    chunks = std::max(chunks, pass.chunk + 1);
    micro_batches = std::max(micro_batches, pass.micro_batch + 1);
  }
  const int depth = pp * chunks;  // chunks of the model
  // When a pass ends, by direction, position in the model and micro-batch; < 0: not yet.
  std::vector<double> ends(static_cast<size_t>(2 * depth * micro_batches), -1);
  const auto end_of = [&](Pass::Direction direction, int position, int micro_batch) -> double& {
    return ends[static_cast<size_t>(((direction == Pass::Direction::forward ? 0 : depth) + position) * micro_batches +
                                    micro_batch)];
  };
  // When what the pass needs is there.
  const auto ready = [&](const Pass& pass, int position) {
    if (pass.direction == Pass::Direction::forward)
      return position == 0 ? 0.0 : end_of(Pass::Direction::forward, position - 1, pass.micro_batch);
    return position == depth - 1 ? end_of(Pass::Direction::forward, position, pass.micro_batch)
                                 : end_of(Pass::Direction::backward, position + 1, pass.micro_batch);
  };

  Simulation result;
  std::vector<size_t> next(schedule.size());
  std::vector<double> clock(schedule.size());
  double busy = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < schedule.size(); ++r)
      for (; next[r] < schedule[r].size(); ++next[r]) {
        const Pass& pass = schedule[r][next[r]];
        const int position = pass.chunk * pp + static_cast<int>(r);
        const double begin = ready(pass, position);
        if (begin < 0) break;
        const double takes = pass.direction == Pass::Direction::forward ? forward_time : backward_time;
        clock[r] = end_of(pass.direction, position, pass.micro_batch) = std::max(clock[r], begin) + takes;
        busy += takes;
        moved = true;
      }
  }
  for (size_t r = 0; r < schedule.size(); ++r) {
    result.time = std::max(result.time, clock[r]);
    if (next[r] < schedule[r].size()) {
      const Pass& pass = schedule[r][next[r]];
      result.deadlock +=
          fmt::format("{}stage {} waits for {} of chunk {}, micro-batch {}", result.deadlock.empty() ? "" : "; ", r,
                      pass.direction == Pass::Direction::forward ? "forward" : "backward", pass.chunk, pass.micro_batch);
    }
    int in_flight = 0, most = 0;
    for (const Pass& pass : schedule[r]) {
      in_flight += pass.direction == Pass::Direction::forward ? 1 : -1;
      most = std::max(most, in_flight);
    }
    result.most_in_flight.push_back(most);
  }
  result.bubble = 1 - busy / (static_cast<double>(pp) * result.time);
  return result;
}

}  // namespace mm::parallel
