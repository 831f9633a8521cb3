// SPDX-License-Identifier: Apache-2.0
#include "agent/simulate/simulation.h"

#include <signal.h>

#include <algorithm>
#include <cmath>

#include "agent/recovery/policy.h"
#include "checkpoint/interval.h"

namespace mm::simulate {
namespace {

struct Down {
  double seconds = 0;  // until the next launch begins
  bool requeued = false, by_hand = false;
};

// What is read and decided between a fault and the next launch, in the three ways.
class Responder {
 public:
  Responder(const Machine& machine, const Costs& costs, Way way)
      : machine_(machine), costs_(costs), way_(way), spares_(machine.spares) {}

  Down respond(const Fault& fault) {
    if (way_ == Way::ours) return by_policy(fault);
    const bool ends_by_itself = fault.cause->sign == Sign::crash;
    double seconds = fault.cause->sign == Sign::hang ? costs_.collective_timeout : 0;
    if (way_ == Way::scripted) return {seconds + costs_.sleep, false, false};
    if (!ends_by_itself && fault.cause->sign != Sign::hang) seconds += costs_.health_check;
    return {seconds + costs_.hold, true, false};
  }

  void trains_again() { budget_.used = 0; }

 private:
  // The evidence that mm-run would have, handed to the policy as mm-run does.
  Down by_policy(const Fault& fault) {
    const std::string node = "node" + std::to_string(fault.node);
    const recovery::JobState job{{node}, machine_.nodes * gpus_per_node, false};
    recovery::Evidence evidence;
    double seconds = 0;
    switch (fault.cause->sign) {
      case Sign::incident:
        seconds = costs_.carrier;
        evidence.incidents.push_back({"1", fault.cause->klass, node, "", "fatal", "drain", fault.cause->name});
        break;
      case Sign::silence:
        seconds = costs_.silence;
        evidence.incidents.push_back({"1", fault.cause->klass, node, "", "fatal", "drain", fault.cause->name});
        break;
      case Sign::crash:
        seconds = costs_.death;
        evidence.exits.push_back({0, node, SIGSEGV});
        break;
      case Sign::hang:
        seconds = costs_.hang;
        evidence.hangs.push_back({0, node, costs_.hang});
        break;
    }
    recovery::Action action = recovery::decide(evidence, job, budget_);
    while (action.kind == recovery::Action::Kind::settle) {
      seconds += action.wait_ms * 1e-3;
      evidence.waited_ms += action.wait_ms;
      action = recovery::decide(evidence, job, budget_);
    }
    seconds += costs_.stop;
    if (action.kind != recovery::Action::Kind::restart) return {seconds + costs_.hold, true, true};
    seconds += action.wait_ms * 1e-3;
    ++budget_.used;
    const int left_out = static_cast<int>(action.exclude.size());
    if (left_out <= spares_) {
      spares_ -= left_out;
      return {seconds, false, false};
    }
    spares_ = machine_.spares;  // of the new allocation
    return {seconds + costs_.requeue, true, false};
  }

  const Machine& machine_;
  const Costs& costs_;
  const Way way_;
  int spares_;
  recovery::Budget budget_{10, 0};
};

}  // namespace

const char* name_of(Way way) {
  switch (way) {
    case Way::requeue:
      return "requeue";
    case Way::scripted:
      return "scripted";
    case Way::ours:
      break;
  }
  return "mm-train";
}

Outcome simulate(const Machine& machine, const Costs& costs, Way way, double days, uint64_t seed) {
  const double mtbf = machine.node_mtbf / machine.nodes;
  const double start = costs.launch + costs.load + costs.first_step;
  const bool blocking = way == Way::requeue;
  const double stall = blocking ? costs.blocking_save : costs.stall, flush = blocking ? 0 : costs.flush;
  Outcome out;
  out.interval = checkpoint::best_interval({stall, flush, start, mtbf}).seconds;

  std::mt19937_64 random(seed);
  std::exponential_distribution<double> until_fault(1 / mtbf);
  Responder responder(machine, costs, way);
  const double end = days * 86400, cycle = out.interval + stall;
  double work = 0;
  std::vector<double> recoveries;
  double t = start;
  out.down = std::min(start, end);
  while (t < end) {
    // A launch trains from t on, until a fault or the end.
    double fault_at = t + until_fault(random);
    const bool faulty = fault_at < end;
    const double ran = std::min(fault_at, end) - t;
    const double saves = std::floor(ran / cycle), rest = ran - saves * cycle;
    const double trained = saves * out.interval + std::min(rest, out.interval);
    out.saving += ran - trained;
    if (!faulty) {
      work += trained;
      break;
    }
    // Save k is taken at the end of cycle k.
    const double kept = std::max(0.0, std::floor((ran - flush) / cycle)) * out.interval;
    work += kept;
    out.again += trained - kept;
    double training_at = 0;
    for (const double first = fault_at;;) {
      ++out.faults;
      const Down down = responder.respond(draw(random, machine.nodes));
      out.unattended += !down.by_hand;
      out.requeues += down.requeued;
      training_at = fault_at + down.seconds + start;
      const double next = fault_at + until_fault(random);
      if (next >= training_at || next >= end) {
        if (training_at < end) recoveries.push_back(training_at - first);
        break;
      }
      fault_at = next;
    }
    out.down += std::min(training_at, end) - (t + ran);
    t = training_at;
    responder.trains_again();
  }
  out.trained = work / end;
  out.saving /= end;
  out.again /= end;
  out.down /= end;
  if (!recoveries.empty()) {
    std::ranges::sort(recoveries);
    out.recovery_median = recoveries[recoveries.size() / 2];
    out.recovery_p99 = recoveries[std::min(recoveries.size() - 1, recoveries.size() * 99 / 100)];
  }
  return out;
}

}  // namespace mm::simulate
