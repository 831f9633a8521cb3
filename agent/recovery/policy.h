// SPDX-License-Identifier: Apache-2.0
// The recovery policy: what to do about a launch of the job's step, or about the lack of one, from the evidence gathered so far. A pure
// function, without clock, chance, input or output, so that a table test, a simulation and the real run use the same code.
//
// Rules, in order:
// - Where somebody asked the job to end, nothing is restarted.
// - Exit 0 of all ranks is the end. A rank's own error (2, 3, 4, or another small status without hardware evidence) is the user's: it is
//   never restarted, and the status is passed on. 75 asks for a requeue, which follows where the job file allows it.
// - A node with hardware evidence (an incident whose action is restart or drain, of another class than app) is left out, and the step starts
//   again without it: on a spare, or where there is none, smaller, if the job file names a layout that fits, or else the job is requeued
//   elsewhere. Any other fault (death by signal, 70, 76, a hang) starts it again on the same nodes.
// - A node that is only slow is left at the next checkpoint, where a spare is free: the ranks are asked to save at once. So they are where a
//   failure is foretold, which leaves the node to the next launch.
// - One fault costs one restart. 76 says that a peer is gone, which has a cause: it is waited for, briefly. So is hardware evidence behind an
//   exit that could be the user's error.
// - A restart without a training step since the last one uses up the budget; a step refills it. From the third such restart on there is a
//   pause before it, twice as long each time, with jitter.
// - A rank that ends by itself in the same way at the same step for the third time, without a step in between and without hardware evidence,
//   is the user's error: no restart will help. Signals that only others send (SIGKILL, SIGTERM ...) say nothing about the program.
// - Too few good nodes for a launch: they are waited for, unless their hardware is bad; then smaller, or requeued elsewhere.
// - What would be requeued without a training step since the last requeues (they use up the budget as restarts do) fails instead.
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
  std::string code = {};
  int64_t checkpoint = -1;  // the newest one when this was told
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

// What a launch has to run on, where that is too little.
struct Shortage {
  int good = 0;           // nodes that would do
  bool hopeless = false;  // waiting does not help: the hardware of the others is bad
  std::string missing;    // which cannot be used, and why
  std::vector<std::string> bad;
  double waited = 0;  // seconds
};

struct JobState {
  std::vector<std::string> nodes;  // of the launch
  int ranks = 0;
  bool stopping = false;       // somebody asked the job to end: no restart follows
  int spares = 1 << 16;        // good nodes beside those of the launch
  std::vector<int> fits = {};  // fewer nodes on which a layout of the job file fits, in order of preference
  bool requeues = false;       // the job file allows it, and Slurm does
  int64_t step = -1;           // training steps finished, of the run
  int64_t checkpoint = -1;     // step of the newest one
  bool asked_to_save = false;  // since that checkpoint
};

struct Budget {
  int most = 0;
  int used = 0;       // restarts and requeues since the last training step
  uint64_t seed = 0;  // of the jitter
};

// How launches ended since the last training step, and after how many steps of the run.
struct End {
  int wait_status = 0;
  int64_t step = -1;
};
using History = std::vector<End>;

struct Action {
  enum class Kind {
    proceed,     // nothing to do
    settle,      // a symptom whose cause may still come: look again with the next evidence, or after wait_ms
    checkpoint,  // ask the ranks to save now
    restart,     // stop the step everywhere and start it again, after wait_ms, without the nodes of `exclude`: in place, or on spares
    smaller,     // the same on `nodes` nodes
    hold,        // try again in a while, for wait_ms at most, counted from the first time: Slurm or nodes may come back
    give_up,
    finished,  // end with exit_status
    requeue,   // end with exit status 75; without the nodes of `exclude` where Slurm can be asked for that
  };
  Kind kind = Kind::proceed;
  int wait_ms = 0;
  int nodes = 0;
  std::vector<std::string> exclude;
  std::string cause;   // one word for the books: nic, node, gpu, ..., rank, hang, peer, launch
  std::string node;    // where it happened; empty where several or none
  std::string reason;  // a sentence for people, without a full stop
  std::string evidence;
  int exit_status = 0;
};

Action decide(const Evidence& evidence, const JobState& job, const Budget& budget, const History& history = {});
// Before a launch that has too few nodes.
Action decide(const Shortage& shortage, const JobState& job, const Budget& budget);

// True for evidence against the hardware of a node, which is then left out of later launches.
bool blames_node(const Incident& incident);
// The node is slow, not broken.
bool is_straggler(const Incident& incident);

// How this launch ended, for the history of the next; nothing where no rank's end tells, or hardware does.
std::optional<End> end_of(const Evidence& evidence, std::optional<int64_t> step);

}  // namespace mm::recovery
