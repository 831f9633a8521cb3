// SPDX-License-Identifier: Apache-2.0
// verify and prune.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/folder.h"
#include "checkpoint/tool/verbs.h"
#include "checkpoint/vds_index.h"

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

int verify(const Target& target, const VerifyOptions& options, bool as_json) {
  const bool quick = options.quick;
  std::vector<StepInfo> steps;
  if (options.all)
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
    if (problems.empty() && options.write_index) write_vds_index(StepReader(s.path, s.step), s.path);
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

int prune(const std::string& run, const PruneOptions& options, bool as_json) {
  const RunFolder folder(run, false);
  const auto say = [&](int64_t step, const char* action, const std::string& text, json more = json::object()) {
    more.update({{"step", step}, {"action", action}});
    if (as_json)
      fmt::print("{}\n", line_of(more));
    else
      fmt::print("{}: {}\n", step_name(step), text);
  };
  for (const auto& [steps, pinned] : {std::pair(options.pin, true), {options.unpin, false}}) {
    for (const int64_t step : steps) {
      set_pinned(choose({run, step}), pinned);
      say(step, pinned ? "pin" : "unpin", pinned ? "pinned" : "no longer pinned");
    }
  }
  if (!options.keep) return exit_status::ok;
  const int keep = *options.keep;
  const char* would = options.dry_run ? "would remove" : "remove";
  int kept = 0;
  std::vector<StepInfo> surplus;
  for (const StepInfo& s : folder.list()) {
    const bool by_number = options.every > 0 && s.step % options.every == 0;
    if (kept == keep) {
      if (s.pinned || by_number)
        say(s.step, "keep", s.pinned ? "kept: pinned" : "kept: by its number");
      else
        surplus.push_back(s);
      continue;
    }
    uint64_t bytes = 0;
    double seconds = 0;
    const std::vector<std::string> problems =
        s.bad ? std::vector<std::string>{"marked bad"} : check(s, false, as_json, bytes, seconds);
    if (problems.empty()) ++kept;
    say(s.step, "keep", problems.empty() ? "kept" : "kept, but does not count: " + problems[0],
        {{"verified", problems.empty()}, {"problems", problems}});
  }
  for (const StepInfo& s : surplus) {
    if (!options.dry_run) remove_step(folder.path(), s);
    say(s.step, would, options.dry_run ? "would be removed" : "removed");
  }
  if (kept == 0) throw NothingFound(folder.path() + ": no step verifies");
  return exit_status::ok;
}

}  // namespace mm::checkpoint::tool
