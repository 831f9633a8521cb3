// SPDX-License-Identifier: Apache-2.0
// To be preloaded: the wall clock of the process is ahead by the seconds in the file that FAKE_CLOCK names (%n is the host's name), which is
// looked at again every 50 ms; no file is no difference. The monotonic clock is left alone, as when an administrator sets the time.
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

const std::string& path() {
  static const std::string name = [] {
    const char* variable = std::getenv("FAKE_CLOCK");
    std::string out = variable == nullptr ? "" : variable;
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    if (const size_t at = out.find("%n"); at != std::string::npos) out.replace(at, 2, host);
    return out;
  }();
  return name;
}

time_t ahead() {
  static std::atomic<long> looked{-1000}, seconds{0};
  timespec now = {};
  ::syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  const long ms = now.tv_sec * 1000 + now.tv_nsec / 1000000;
  if (ms - looked < 50) return seconds;
  looked = ms;
  long value = 0;
  if (std::FILE* file = std::fopen(path().c_str(), "re")) {
    if (std::fscanf(file, "%ld", &value) != 1) value = 0;
    std::fclose(file);
  }
  seconds = value;
  return value;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const int result = static_cast<int>(::syscall(SYS_clock_gettime, clock, out));
  if (result == 0 && clock == CLOCK_REALTIME) out->tv_sec += ahead();
  return result;
}

EXPORT int gettimeofday(timeval* out, void*) noexcept {
  timespec now = {};
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  *out = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

EXPORT time_t time(time_t* out) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}
