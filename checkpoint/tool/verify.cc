// SPDX-License-Identifier: Apache-2.0
// verify and prune.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/folder.h"
#include "checkpoint/tool/verbs.h"

namespace mm::checkpoint::tool {
namespace {

using nlohmann::json;

std::string line_of(const json& j) {
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

uint64_t payload_of(const StepInfo& s) {
  try {
    return read_manifest(s.path, s.step).payload();
  } catch (const std::exception&) {
    return 0;  // the verification says what is wrong
  }
}

std::vector<std::string> check(const StepInfo& s, bool quick, bool as_json, uint64_t& bytes, double& seconds) {
  Progress progress(step_name(s.step), quick ? 0 : payload_of(s), as_json);
  std::vector<std::string> problems = verify_step(s.path, s.step, quick, [&](uint64_t n) {
    bytes += n;
    progress.add(n);
  });
  seconds = progress.seconds();
  return problems;
}

}  // namespace

int verify(const Target& target, bool all, bool quick, bool as_json) {
  std::vector<StepInfo> steps;
  if (all)
    steps = RunFolder(target.run, false).list();
  else
    steps.push_back(choose(target));
  if (steps.empty()) throw NothingFound(target.run + ": no committed step");
  int status = exit_status::ok;
  for (const StepInfo& s : steps) {
    uint64_t bytes = 0;
    double seconds = 0;
    const std::vector<std::string> problems = check(s, quick, as_json, bytes, seconds);
    if (!problems.empty()) status = exit_status::found;
    if (as_json) {
      fmt::print("{}\n", line_of({{"step", s.step},
                                  {"path", s.path},
                                  {"ok", problems.empty()},
                                  {"marked_bad", s.bad},
                                  {"quick", quick},
                                  {"bytes", bytes},
                                  {"seconds", seconds},
                                  {"problems", problems}}));
      continue;
    }
    const char* marked = s.bad ? ", though marked bad" : "";
    if (!problems.empty())
      fmt::print("{}: does not verify\n", step_name(s.step));
    else if (quick)
      fmt::print("{}: structure ok{}\n", step_name(s.step), marked);
    else {
      const auto rate = static_cast<uint64_t>(static_cast<double>(bytes) / std::max(seconds, 1e-9));
      fmt::print("{}: ok{}, {} at {}/s\n", step_name(s.step), marked, text_of_bytes(bytes), text_of_bytes(rate));
    }
    for (const std::string& p : problems) fmt::print("  {}\n", p);
  }
  return status;
}

int prune(const std::string& run, int keep, bool dry_run, bool as_json) {
  if (keep < 1) throw usage_error("prune: --keep must be at least 1");
  const RunFolder folder(run, false);
  std::vector<StepInfo> surplus;
  int kept = 0;
  for (const StepInfo& s : folder.list()) {
    if (kept == keep) {
      surplus.push_back(s);
      continue;
    }
    uint64_t bytes = 0;
    double seconds = 0;
    const std::vector<std::string> problems =
        s.bad ? std::vector<std::string>{"marked bad"} : check(s, false, as_json, bytes, seconds);
    if (problems.empty()) ++kept;
    if (as_json)
      fmt::print("{}\n",
                 line_of({{"step", s.step}, {"action", "keep"}, {"verified", problems.empty()}, {"problems", problems}}));
    else if (problems.empty())
      fmt::print("{}: kept\n", step_name(s.step));
    else
      fmt::print("{}: kept, but does not count: {}\n", step_name(s.step), problems[0]);
  }
  for (const StepInfo& s : surplus) {
    if (!dry_run) remove_step(folder.path(), s);
    if (as_json)
      fmt::print("{}\n", line_of({{"step", s.step}, {"action", dry_run ? "would remove" : "remove"}}));
    else
      fmt::print("{}: {}\n", step_name(s.step), dry_run ? "would be removed" : "removed");
  }
  if (kept == 0) throw NothingFound(folder.path() + ": no step verifies");
  return exit_status::ok;
}

}  // namespace mm::checkpoint::tool
