// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/stop.h"

#include <signal.h>

#include <cerrno>

#include "common/error.h"

namespace mm::loop {
namespace {

volatile sig_atomic_t requested = 0;

}  // namespace

void watch_for_stop() {
  struct sigaction action = {};
  action.sa_handler = [](int) { requested = 1; };
  action.sa_flags = SA_RESTART;
  if (::sigaction(SIGTERM, &action, nullptr) != 0) throw system_error("sigaction SIGTERM", errno);
}

bool stop_requested() {
  return requested != 0;
}

}  // namespace mm::loop
