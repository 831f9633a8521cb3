// SPDX-License-Identifier: Apache-2.0
// The local side of the agent's protocol: what plugin, ranks, mm-run and mm-agent say to the mm-agentd of their node.
//
// The socket is AF_UNIX SOCK_SEQPACKET, RUN_DIR/agent-NODE.sock, mode 0666; the agent knows its peer by SO_PEERCRED. One message is one
// packet of KEY=VALUE lines (common/key_values.h).
//
// A message without VERB is progress of a rank and has no answer: any of STEP= (steps finished), CHECKPOINT= (step of the last committed
// checkpoint), PHASE= (start, load, train, save, eval, end), LOSS=, BUSY= (seconds of own work in the last step, without waiting for others),
// GROUP= (ranks with the same do the same work). The rank is found by the peer's process id or one of its ancestors. With LISTEN=1 the
// connection is sent ADVICE packets from then on, see agent/daemon/advice.h.
//
// With VERB= it is a request; the answer is one packet, `OK=1` or `OK=0` and `ERROR=text`, and more keys:
//
//   VERB      who            keys                                                          answer
//   job       root           JOB UID NODES (host list of the allocation, in order)         OK; the agent tells the agents of NODES
//                            BATCH_NODE BATCH_PID RESTARTS SPARES REQUEUE (auto|off)
//   task      root           JOB STEP UID NODES (of the step) NTASKS HANG_TIMEOUT          OK
//                            (seconds, 0 is learnt) RANK LOCAL_RANK PID (of each task, as
//                            0,1,2: all that start together on this node)
//   exit      root           JOB STEP RANK PID STATUS (as from wait(2))                    OK
//             job, task and exit with QUIET=1 are answered only where they are refused
//   watch     owner, root    JOB                                                           OK, then EVENT packets until either side closes
//   kill      owner, root    JOB STEP                                                      OK when every reachable node of the step has killed
//                                                                                          its ranks (SIGKILL, the agents are the only
//                                                                                          killers); KILLED= count, LATE= nodes without answer
//   save      owner, root    JOB WHY                                                       OK; ranks that listen are sent ADVICE=save
//   requeue   owner, root    JOB EXCLUDE (host list) WHY                                   OK; the job runs again, without these nodes
//   probe     anyone         NODES                                                         GOOD= host list whose agent and slurmd answered within
//                                                                                          300 ms and whose training NICs have carrier and that
//                                                                                          are not drained, BAD= the rest, DOUBTFUL= those of GOOD whose
//                                                                                          failure is foretold, WHY_<node>= reason each
//   status    anyone         [JOB]                                                         JSON= one document
//   events    anyone         [SINCE= event number]                                         JSON= array of event objects
//
// EVENT packets on a watch: EVENT=kind, JOB=, NODE=, TIME= (seconds since 1970, fractional), and by kind:
//   incident  ID CLASS DEVICE SEVERITY ACTION (ignore|alert|restart|requeue|drain) EVIDENCE STEP RANK
//   exit      STEP RANK STATUS            a rank ended (status as from wait(2))
//   progress  STEP_ID RANK STEP LOSS PHASE CHECKPOINT   of rank 0, at most a few a second
//   hang      STEP_ID RANK SECONDS        is followed by an incident of class app
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "common/files.h"
#include "common/key_values.h"

namespace mm {

inline constexpr size_t agent_message_limit = 128 * 1024;

std::string agent_socket_path(const std::string& run_dir, const std::string& node);

class AgentClient {
 public:
  // Throws an Error that names the socket where no agent answers.
  explicit AgentClient(const std::string& socket_path);

  void send(const KeyValues& message, std::chrono::milliseconds deadline);
  // Sends where it can at once; false where the agent is behind or gone. For progress, which must never hold a rank up.
  bool try_send(const KeyValues& message) noexcept;
  // What has arrived, without waiting; nothing where nothing has, or the agent is gone.
  std::optional<KeyValues> try_receive();
  // Next packet; throws at the deadline and where the agent has closed (message says which).
  KeyValues receive(std::chrono::milliseconds deadline);
  KeyValues request(const KeyValues& message, std::chrono::milliseconds deadline);
  int fd() const { return fd_.get(); }

 private:
  std::string path_;
  UniqueFd fd_;
};

}  // namespace mm
