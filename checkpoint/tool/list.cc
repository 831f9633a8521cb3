// SPDX-License-Identifier: Apache-2.0
// ls and info.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "checkpoint/box.h"
#include "checkpoint/epochs.h"
#include "checkpoint/tool/verbs.h"

namespace mm::checkpoint::tool {
namespace {

using nlohmann::json;

std::string age_of(int64_t seconds) {
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 7200) return fmt::format("{} min", seconds / 60);
  if (seconds < 2 * 86400) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} d", seconds / 86400);
}

std::string line_of(const json& j) {
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

// A fact's value is a JSON text; one that is none is shown as it is.
json value_of(const std::string& fact) {
  json j = json::parse(fact, nullptr, false);
  return j.is_discarded() ? json(fact) : j;
}

struct Sum {
  size_t tensors = 0;
  uint64_t bytes = 0;
};

}  // namespace

int ls(const std::string& run, bool as_json) {
  const RunFolder folder(run, false);
  const std::vector<StepInfo> steps = folder.list();
  const std::vector<Claim> claims = list_claims(folder.path());
  if (!as_json && !steps.empty()) fmt::print("{:>10}  {:>8}  {:>10}  {:>5}  {:<24}  {}\n", "STEP", "AGE", "SIZE", "FILES", "TIERS", "STATE");
  for (const StepInfo& s : steps) {
    Manifest m;
    std::vector<std::string> problems = verify_step(s.path, s.step, true, [](uint64_t) {});
    try {
      m = read_manifest(s.path, s.step);
    } catch (const std::exception&) {
      // It is among the problems.
    }
    const bool is_given_up = given_up(claims, m.epoch, s.step).has_value();
    const bool readable = m.step == s.step && !m.writer.empty();
    const std::string state = s.bad ? "bad" : !problems.empty() ? "damaged" : is_given_up ? "given up" : "committed";
    const std::string tiers = m.tiers.empty() ? "shared" : m.tiers;
    const int64_t age = readable ? std::max<int64_t>(0, std::time(nullptr) - m.saved_at) : -1;
    if (as_json) {
      json j = {{"step", s.step}, {"path", s.path}, {"state", state}, {"pinned", s.pinned}, {"structure_ok", problems.empty()}};
      if (readable) j.update({{"age_s", age}, {"bytes", m.payload()}, {"stored", m.stored()}, {"files", m.files.size()}, {"tiers", tiers}, {"save_s", m.seconds}});
      if (!problems.empty()) j["reason"] = problems[0];
      fmt::print("{}\n", line_of(j));
      continue;
    }
    const std::string text = state + (s.pinned ? ", pinned" : "") + (problems.empty() ? "" : ": " + problems[0]);
    if (readable)
      fmt::print("{:>10}  {:>8}  {:>10}  {:>5}  {:<24}  {}\n", s.step, age_of(age), text_of_bytes(m.payload()), m.files.size(), tiers, text);
    else
      fmt::print("{:>10}  {:>8}  {:>10}  {:>5}  {:<24}  {}\n", s.step, "-", "-", "-", "-", text);
  }
  if (steps.empty()) fmt::print(stderr, "mm-ckpt: {}: no committed step\n", folder.path());
  return exit_status::ok;
}

int info(const Target& target, bool tensors, bool as_json) {
  const StepInfo s = choose(target);
  const StepReader reader(s.path, s.step);
  const Manifest& m = reader.manifest();
  std::map<std::string, Sum> roles;
  for (const auto& [key, t] : reader.tensors()) {
    Sum& sum = roles[key.second];
    ++sum.tensors;
    sum.bytes += static_cast<uint64_t>(elements(t.global_shape)) * size_of(t.dtype);
  }
  if (as_json) {
    json j = {{"step", s.step},          {"path", s.path},         {"bad", s.bad},         {"saved_at", m.saved_at},
              {"program", m.program},    {"writer", m.writer},     {"bytes", m.payload()}, {"stored", m.stored()},  {"files", m.files.size()},
              {"facts", json::object()}, {"roles", json::object()}};
    for (const auto& [name, value] : m.facts) j["facts"][name] = value_of(value);
    for (const auto& [role, sum] : roles) j["roles"][role] = {{"tensors", sum.tensors}, {"bytes", sum.bytes}};
    if (tensors) {
      for (const auto& [key, t] : reader.tensors()) {
        j["tensors"].push_back({{"name", key.first},
                                {"role", key.second},
                                {"dtype", name_of(t.dtype)},
                                {"shape", t.global_shape},
                                {"parts", t.parts.size()}});
      }
    }
    fmt::print("{}\n", line_of(j));
    return exit_status::ok;
  }
  fmt::print("step     {}{}\npath     {}\nsaved    {:%Y-%m-%d %H:%M:%S} by {}, writer {}\nsize     {} in {} files\n", s.step,
             s.bad ? " (marked bad)" : "", s.path, fmt::localtime(static_cast<std::time_t>(m.saved_at)), m.program, m.writer,
             text_of_bytes(m.payload()), m.files.size());
  if (m.stored() != m.payload()) {
    fmt::print("stored   compressed to {}, {:.1f} % of it\n", text_of_bytes(m.stored()),
               100 * static_cast<double>(m.stored()) / static_cast<double>(m.payload()));
  }
  for (const auto& [role, sum] : roles)
    fmt::print("role     {}: {} tensors, {}\n", role, sum.tensors, text_of_bytes(sum.bytes));
  for (const auto& [name, value] : m.facts) fmt::print("fact     {}: {}\n", name, value);
  if (tensors) {
    for (const auto& [key, t] : reader.tensors()) {
      fmt::print("tensor   {} ({}) {} {} in {} parts\n", key.first, key.second, name_of(t.dtype),
                 mm::checkpoint::text_of(t.global_shape), t.parts.size());
    }
  }
  return exit_status::ok;
}

}  // namespace mm::checkpoint::tool
