// SPDX-License-Identifier: Apache-2.0
// What the end of a rank means. A negative status is an end of which nobody saw how. A status above 128 is what a shell makes
// of a death by signal, and counts as one.
#pragma once

namespace mm::recovery {

struct Ending {
  int status = 0;  // exit status, 0 where a signal ended it
  int signal = 0;
};
Ending ending(int wait_status);
Ending ending_of_shell_status(int status);
int shell_status(int wait_status);
int wait_status_of(const Ending& end);

// User errors are not restarted: the first kind is beyond doubt (a status that says so), the second may still hide a hardware
// fault.
enum class ExitKind { success, user_error, maybe_user_error, internal, requeue, peer_lost, signal, unknown };
ExitKind kind_of(const Ending& end);

// " (lost a peer or a device)" for the statuses that our programs share, "" for others.
const char* meaning(int status);

}  // namespace mm::recovery
