// SPDX-License-Identifier: Apache-2.0
// What the node's part of the cluster lives on besides slurmd: munged, and a clock that somebody keeps right.
#include <fmt/format.h>
#include <sys/timex.h>
#include <unistd.h>

#include "agent/peers/credential.h"
#include "agent/probes/host.h"
#include "common/error.h"

namespace mm::agent {
namespace {

constexpr milliseconds munge_period{10000}, munge_deadline{10000};
constexpr int misses_to_report = 2;  // a restart is no news
constexpr milliseconds clock_period{60000}, clock_deadline{5000};
constexpr int looks_unsynchronised = 3;

}  // namespace

Probe munge_probe(std::function<void()> make_credential) {
  Probe p;
  p.name = "munge";
  p.period = munge_period;
  p.deadline = munge_deadline;
  p.run = [make_credential = std::move(make_credential), misses = std::make_shared<int>(0)] {
    ProbeResult out;
    std::string why;
    try {
      make_credential();
      *misses = 0;
    } catch (const Error& e) {
      why = e.what();
      ++*misses;
    }
    out.metrics["mm_munge_answers"] = why.empty();
    if (*misses >= misses_to_report) {
      Report r;
      r.part = Part::slurm;
      r.code = "munge_down";
      r.severity = Severity::error;
      r.evidence = {fmt::format("munged does not answer: {}", why)};
      out.reports["down"] = r;
    }
    return out;
  };
  return p;
}

Probe munge_probe(const std::string& socket) {
  return munge_probe([socket] { encode_credential("mm-agent", socket, ::geteuid()); });
}

ClockState kernel_clock() {
  timex t = {};
  const int state = ::adjtimex(&t);
  return {state >= 0 && state != TIME_ERROR && (t.status & STA_UNSYNC) == 0, 1e-6 * static_cast<double>(t.maxerror)};
}

Probe clock_probe(std::function<ClockState()> read) {
  Probe p;
  p.name = "clock";
  p.period = clock_period;
  p.deadline = clock_deadline;
  struct Memory {
    bool was_synchronised = false;
    int looks = 0;
  };
  p.run = [read = std::move(read), memory = std::make_shared<Memory>()] {
    ProbeResult out;
    const ClockState now = read();
    memory->was_synchronised |= now.synchronised;
    memory->looks = now.synchronised ? 0 : memory->looks + 1;
    out.metrics["mm_clock_synchronised"] = now.synchronised;
    out.metrics["mm_clock_max_error_seconds"] = now.max_error;
    if (memory->was_synchronised && memory->looks >= looks_unsynchronised) {
      Report r;
      r.part = Part::clock;
      r.code = "ntp_lost";
      r.evidence = {fmt::format("nobody keeps the clock right any more (NTP): the kernel takes it to be off by up to {:.3g} s", now.max_error)};
      out.reports["ntp"] = r;
    }
    return out;
  };
  return p;
}

}  // namespace mm::agent
