// SPDX-License-Identifier: Apache-2.0
// The part of Supervisor that finds the nodes of a launch.
#include <fmt/format.h>

#include <algorithm>

#include "agent/run/clock.h"
#include "agent/run/standing.h"
#include "agent/run/supervisor.h"
#include "common/error.h"
#include "common/hostlist.h"

namespace mm::run {
namespace {

constexpr double between_probes = 1;

}  // namespace

std::optional<recovery::Action> Supervisor::choose() {
  const double begun = now().steady;
  bool told = false;
  for (;;) {
    Action end;
    if (stop_signal_ != 0) {
      end.kind = Action::Kind::requeue;
      end.cause = "requeue";
      end.reason = "asked to end between two launches";
      end.exit_status = exit_status::requeue;
      return end;
    }
    const auto probe = agent_.probe(roster_.allocation());
    Roster::Choice choice = roster_.choose(probe, now().steady);
    Standing standing{Standing::Kind::ours, {}};
    if (choice.possible && (told || choice.mended)) standing = ask_standing(plan_.job_id, plan_.requeues);
    if (standing.kind == Standing::Kind::another) {
      ledger_.abandon();
      end_leftovers();
      end.kind = Action::Kind::give_up;
      end.cause = "requeue";
      end.exit_status = exit_status::requeue;
      end.reason = "while this node was cut off, the job has ended or was started again";
      return end;
    }
    if (standing.kind == Standing::Kind::ours && !standing.nodes.empty()) {
      const std::vector<std::string> gone = roster_.keep(standing.nodes);
      if (!gone.empty()) {
        say("gone", fmt::format("{} no longer of the job: in service again, but Slurm starts no step of it there", compress_hostlist(gone)));
        continue;
      }
    }
    if (choice.possible && standing.kind == Standing::Kind::ours) {
      for (const Roster::Move& m : choice.moves)
        say("avoided", fmt::format("{} is avoided ({}); {} takes its ranks", m.from, m.why, m.to));
      return std::nullopt;
    }
    choice.shortage.waited = now().steady - begun;
    const Action action = recovery::decide(choice.shortage, job_state(), headway_.budget());
    if (action.kind != Action::Kind::hold && cut_off(probe)) {
      // The agents on the other side have requeued the job, and it may run there already: its books are theirs.
      ledger_.abandon();
      end_leftovers();
      end.kind = Action::Kind::give_up;
      end.cause = "nodes";
      end.exit_status = exit_status::requeue;
      end.reason = fmt::format("{} is cut off from all other nodes of the job", plan_.node);
      return end;
    }
    if (action.kind == Action::Kind::smaller) {
      shrink(action);
      continue;
    }
    if (action.kind != Action::Kind::hold) return action;
    if (!told) say("waiting", action.reason);
    told = true;
    pass(between_probes);
  }
}

// No other node of the job answers: more likely this one is alone than all others are gone.
bool Supervisor::cut_off(const std::optional<AgentLink::Probe>& probe) const {
  return probe && plan_.allocation.size() > 2 &&
         std::none_of(probe->good.begin(), probe->good.end(), [&](const std::string& n) { return n != plan_.node; });
}

}  // namespace mm::run
