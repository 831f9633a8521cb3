// SPDX-License-Identifier: Apache-2.0
#include "common/plan/search.h"

#include <algorithm>
#include <vector>

#include "common/plan/parameters.h"

namespace mm::plan {
namespace {

std::vector<int> divisors(int n) {
  std::vector<int> out;
  for (int d = 1; d <= n; ++d)
    if (n % d == 0) out.push_back(d);
  return out;
}

// Of the bounds on micro-batch sizes those that give different numbers of micro-batches, smallest first; above 64 only doublings.
std::vector<int64_t> micro_batch_sizes(int64_t share) {
  std::vector<int64_t> out;
  for (int64_t size = 1; size <= share; size = size < 64 ? size + 1 : std::max(size + 1, std::min(2 * size, share)))
    if (out.empty() || largest_part(share, size) != largest_part(share, out.back())) out.push_back(size);
  return out;
}

class Searcher {
 public:
  Searcher(const Model& model, const Batch& batch, const Numbers& numbers, const Machine& machine)
      : model_(model), batch_(batch), numbers_(numbers), machine_(machine) {}

  Search result;

  void look_at_mesh(Parallelism p) {
    const int most_chunks = p.mesh.pp == 1 ? 1 : static_cast<int>(std::clamp<int64_t>(model_.text.count / p.mesh.pp, 1, 12));
    for (p.chunks = 1; p.chunks <= most_chunks; ++p.chunks) {
      p.schedule = p.chunks > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
      if (!why_impossible(model_, batch_, p).empty()) return;
      for (const int64_t size : micro_batch_sizes(batch_.samples / p.mesh.dp)) {
        p.micro_batch = size;
        look_at_memory(p);
      }
    }
  }

 private:
  // ZeRO and recomputation change the time of parameters and add a second pass: where the rest alone is too long, nothing helps.
  void look_at_memory(Parallelism p) {
    p.zero = 1;
    p.recompute = false;
    if (result.fits) {
      const Plan quickest = plan(p);
      if (quickest.step_seconds - quickest.exposed_data_seconds - quickest.optimizer_seconds >= result.best->plan.step_seconds) return;
    }
    for (const bool recompute : {false, true})
      for (const int zero : {0, 1, 2, 3}) {
        p.zero = zero;
        p.recompute = recompute;
        offer(p);
      }
  }

  Plan plan(const Parallelism& p) {
    ++result.looked_at;
    return make_plan(model_, batch_, p, numbers_, machine_);
  }

  void offer(const Parallelism& p) {
    const int64_t memory = memory_needed(model_, batch_, p, numbers_);
    const bool fits = static_cast<double>(memory) + machine_.reserved <= machine_.memory;
    if (!fits) {
      if (!result.fits && (!result.best || memory < memory_)) take(p, plan(p), memory);
      return;
    }
    Plan candidate = plan(p);
    if (result.fits) {
      const double best = result.best->plan.step_seconds;
      if (candidate.step_seconds > best || (candidate.step_seconds == best && memory >= memory_)) return;
    }
    result.fits = true;
    take(p, std::move(candidate), memory);
  }

  void take(const Parallelism& p, Plan candidate, int64_t memory) {
    result.best = {p, std::move(candidate)};
    memory_ = memory;
  }

  int64_t memory_ = 0;  // of the best
  const Model& model_;
  const Batch& batch_;
  const Numbers& numbers_;
  const Machine& machine_;
};

}  // namespace

Search suggest(const Model& model, const Batch& batch, int ranks, const Numbers& numbers, const Machine& machine) {
  Searcher searcher(model, batch, numbers, machine);
  for (const int tp : divisors(ranks)) {
    if (tp > machine.ranks_of_node) break;
    for (const int cp : divisors(ranks / tp)) {
      if (2 * cp > batch.length && cp > 1) break;  // a chunk has a position
      for (const int pp : divisors(ranks / tp / cp)) {
        Parallelism p;
        p.mesh = {tp, cp, ranks / tp / cp / pp, pp};
        searcher.look_at_mesh(p);
      }
    }
  }
  return searcher.result;
}

}  // namespace mm::plan
