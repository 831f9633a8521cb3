// SPDX-License-Identifier: Apache-2.0
#include "agent/recovery/exits.h"

#include <sys/wait.h>

#include "common/error.h"

namespace mm::recovery {

Ending ending_of_shell_status(int status) {
  // 128 + 64 is the highest signal; above lie statuses such as 255 that programs use themselves.
  if (status > 128 && status <= 128 + 64) return {0, status - 128};
  return {status, 0};
}

Ending ending(int wait_status) {
  if (wait_status < 0) return {-1, 0};
  if (WIFSIGNALED(wait_status)) return {0, WTERMSIG(wait_status)};
  return ending_of_shell_status(WEXITSTATUS(wait_status));
}

int shell_status(int wait_status) {
  const Ending end = ending(wait_status);
  if (end.status < 0) return exit_status::internal;
  return end.signal != 0 ? 128 + end.signal : end.status;
}

int wait_status_of(const Ending& end) {
  return end.signal != 0 ? end.signal : end.status << 8;
}

ExitKind kind_of(const Ending& end) {
  if (end.signal != 0) return ExitKind::signal;
  if (end.status < 0) return ExitKind::unknown;
  switch (end.status) {
    case exit_status::ok:
      return ExitKind::success;
    case exit_status::usage:
    case exit_status::data:
    case exit_status::numeric:
      return ExitKind::user_error;
    case exit_status::internal:
      return ExitKind::internal;
    case exit_status::requeue:
      return ExitKind::requeue;
    case exit_status::peer_lost:
      return ExitKind::peer_lost;
    default:
      return ExitKind::maybe_user_error;
  }
}

const char* meaning(int status) {
  switch (status) {
    case exit_status::usage:
      return " (wrong use or configuration)";
    case exit_status::data:
      return " (data, or no checkpoint that loads)";
    case exit_status::numeric:
      return " (loss is not finite)";
    case exit_status::internal:
      return " (internal error)";
    case exit_status::requeue:
      return " (saved, asks for requeue)";
    case exit_status::peer_lost:
      return " (lost a peer or a device)";
    default:
      return "";
  }
}

}  // namespace mm::recovery
