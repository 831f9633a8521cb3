// SPDX-License-Identifier: Apache-2.0
// The recovery policy: what to do about a launch of the job's step, from the evidence gathered so far. A pure function, without
// clock and without input or output, so that a table test and the real run use the same code.
//
// Rules, in order:
// - Exit 0 of all ranks is the end. A rank's own error (2, 3, 4, or another small status without hardware evidence) is the
// user's: it is
//   never restarted, and the status is passed on. 75 asks for a requeue and is passed on.
// - A node with hardware evidence (an incident whose action is restart or drain, of another class than app) is left out, and
// the step
//   starts again on the others. Any other fault (death by signal, 70, 76, a hang) starts it again on the same nodes.
// - One fault costs one restart. 76 says that a peer is gone, which has a cause: it is waited for, briefly. So is hardware
// evidence
//   behind an exit that could be the user's error.
// - A restart without a training step since the last one uses up the budget; a step refills it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mm::recovery {

struct RankExit {
  int rank = -1;
  std::string node;
  int wait_status = 0;  // as from wait(2)
};

struct Incident {
  std::string id;  // unique
  std::string klass, node, device, severity, action, evidence;
  int rank = -1;
};

struct Hang {
  int rank = -1;
  std::string node;
  double seconds = 0;  // without progress
};

// Why srun itself failed, as opposed to a rank of it.
enum class SrunFailure {
  none,
  controller,  // could not reach slurmctld: a matter of waiting
  not_now,     // slurmctld has no room for the step yet, as for some seconds after its own restart
  launch,      // a node did not take the launch
  refused,     // Slurm refused the step: the job is ending, or the request is wrong
};

// What is known of the launch that runs, in the order in which it came.
struct Evidence {
  std::vector<RankExit> exits;
  std::vector<Incident> incidents;
  std::vector<Hang> hangs;
  std::optional<int> srun_status;  // once srun has ended, as a shell gives it
  SrunFailure srun_failure = SrunFailure::none;
  std::string srun_message;             // srun's words for the failure
  std::vector<std::string> unlaunched;  // nodes that did not take the launch
  int waited_ms = 0;                    // since the first symptom

  bool symptom() const { return srun_status.has_value() || !exits.empty() || !incidents.empty() || !hangs.empty(); }
};

struct JobState {
  std::vector<std::string> nodes;  // of the launch
  int ranks = 0;
  bool stopping = false;  // somebody asked the job to end: no restart follows
};

struct Budget {
  int most = 0;
  int used = 0;  // restarts since the last training step
};

struct Action {
  enum class Kind {
    proceed,         // nothing to do
    settle,          // a symptom whose cause may still come: look again with the next evidence, or after wait_ms
    restart,         // stop the step everywhere and start it again without the nodes of `exclude`
    wait_for_slurm,  // start the step again in a while, for wait_ms at most, counted from the first such failure
    give_up,
    finished,  // end with exit_status
    requeue,   // end with exit status 75
  };
  Kind kind = Kind::proceed;
  int wait_ms = 0;
  std::vector<std::string> exclude;
  std::string cause;   // one word for the books: nic, node, gpu, ..., rank, hang, peer, launch
  std::string node;    // where it happened; empty where several or none
  std::string reason;  // a sentence for people, without a full stop
  std::string evidence;
  int exit_status = 0;
};

Action decide(const Evidence& evidence, const JobState& job, const Budget& budget);

// True for evidence against the hardware of a node, which is then left out of later launches.
bool blames_node(const Incident& incident);

}  // namespace mm::recovery
