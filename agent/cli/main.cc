// SPDX-License-Identifier: Apache-2.0
// mm-agent: asks the mm-agentd of this node. See mm-agent(1).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "agent/cli/classify.h"
#include "common/agent_client.h"
#include "common/error.h"
#include "common/log.h"
#include "common/site.h"
#include "common/version.h"

namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds patience{5000};
constexpr std::chrono::milliseconds for_ever{1000L * 3600 * 24 * 365};
constexpr int enough_unkillable_seconds = 180;

struct Options {
  std::string config = mm::Site::default_path, socket, job;
  std::vector<std::string> files;
  bool json = false, follow = false;
  int64_t since = 0;
};

mm::AgentClient connect(const Options& options) {
  if (!options.socket.empty()) return mm::AgentClient(options.socket);
  return mm::AgentClient(mm::agent_socket_path(mm::load_site(options.config).run_dir, mm::this_node()));
}

Json document(const mm::KeyValues& answer) {
  if (mm::get(answer, "OK", "1") != "1") throw mm::usage_error("agent: " + mm::get(answer, "ERROR", "refused"));
  return Json::parse(mm::get(answer, "JSON", "null"));
}

void print_status(const Json& s) {
  fmt::print("{}: {}, mm-agentd {}{}\n", s["node"].get<std::string>(), s["ok"].get<bool>() ? "fine" : "NOT FIT", s["version"].get<std::string>(),
             s["dry_run"].get<bool>() ? ", dry run" : "");
  for (const Json& p : s["problems"]) fmt::print("  problem: {}\n", p.get<std::string>());
  for (const Json& n : s["nics"])
    fmt::print("  NIC {}: {}\n", n["name"].get<std::string>(),
               !n["present"].get<bool>() ? "absent" : !n["up"].get<bool>() ? "set down" : n["carrier"].get<bool>() ? "carrier" : "no carrier");
  fmt::print("  slurmd port {}: {}; slurmctld {}\n", s["slurmd"]["port"].get<int>(), s["slurmd"]["listening"].get<bool>() ? "open" : "not listening",
             s["slurmctld"].get<std::string>());
  for (const Json& p : s["peers"])
    fmt::print("  peer {}: heard {} ms ago{}\n", p["node"].get<std::string>(), p["heard_ms"].get<int64_t>(), p["silent"].get<bool>() ? ", found silent" : "");
  for (const Json& j : s["jobs"]) {
    fmt::print("  job {} of user {}: nodes {}, batch node {}, restarts {}, spares {}\n", j["job"].get<std::string>(), j["uid"].get<uint64_t>(),
               j["nodes"].get<std::string>(), j["batch_node"].get<std::string>(), j["restarts"].get<int>(), j["spares"].get<int>());
    for (const Json& step : j["steps"]) {
      fmt::print("    step {}: {} tasks on {}{}\n", step["step"].get<std::string>(), step["ntasks"].get<int>(), step["nodes"].get<std::string>(),
                 step["killed"].get<bool>() ? ", killed" : "");
      if (!step.contains("tasks")) continue;
      for (const Json& t : step["tasks"]) {
        std::string line = fmt::format("      rank {}: process {}", t["rank"].get<int>(), t["pid"].get<int>());
        if (t.contains("step"))
          line += fmt::format(", phase {}, step {}, last progress {:.1f} s ago", t["phase"].get<std::string>(), t["step"].get<int64_t>(), t["idle_s"].get<double>());
        fmt::print("{}{}\n", line, t["ended"].get<bool>() ? ", ended" : "");
      }
    }
  }
}

int status(const Options& options) {
  mm::KeyValues request = {{"VERB", "status"}};
  if (!options.job.empty()) request["JOB"] = options.job;
  const Json s = document(connect(options).request(request, patience));
  if (options.json) fmt::print("{}\n", s.dump());
  else print_status(s);
  return mm::exit_status::ok;
}

void print_event(const Json& e, bool json) {
  if (json) {
    fmt::print("{}\n", e.dump());
  } else {
    std::string text;
    for (const auto& [key, value] : e.items()) {
      if (key == "event" || key == "kind" || key == "time" || key == "node" || key == "evidence" || key == "code" || key == "count") continue;
      const std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
      if (!shown.empty()) text += fmt::format(" {}={}", key, shown);
    }
    if (e.contains("evidence"))
      for (const Json& line : e["evidence"]) text += ": " + line.get<std::string>();
    const auto seconds = static_cast<time_t>(e.value("time", 0.0));
    char clock[32] = "";
    tm broken = {};
    std::strftime(clock, sizeof clock, "%F %T", ::localtime_r(&seconds, &broken));
    fmt::print("{} {} {} {}{}\n", e["event"].get<int64_t>(), clock, e.value("node", ""), e["kind"].get<std::string>(), text);
  }
}

int events(const Options& options) {
  mm::AgentClient agent = connect(options);
  int64_t since = options.since;
  for (bool more = true; more;) {
    mm::KeyValues request = {{"VERB", "events"}, {"SINCE", std::to_string(since)}};
    if (options.follow) request["FOLLOW"] = "1";
    const mm::KeyValues answer = agent.request(request, patience);
    for (const Json& e : document(answer)) {
      print_event(e, options.json);
      since = e["event"].get<int64_t>();
    }
    more = mm::get(answer, "MORE") == "1";
  }
  std::fflush(stdout);
  while (options.follow) {
    for (const Json& e : document(agent.receive(for_ever))) print_event(e, options.json);
    std::fflush(stdout);
  }
  return mm::exit_status::ok;
}

struct Finding {
  std::string severity, text;
};

int check(const Options& options) {
  std::vector<Finding> findings;
  try {
    const Json s = document(connect(options).request({{"VERB", "status"}}, patience));
    for (const Json& p : s["problems"]) findings.push_back({"error", p.get<std::string>()});
    const int unkillable = s["unkillable_step_timeout"].get<int>();
    if (unkillable > 0 && unkillable < enough_unkillable_seconds)
      findings.push_back({"warning", fmt::format("slurm.conf: UnkillableStepTimeout is {} s: below {} s Slurm itself drains healthy nodes after one has died",
                                                 unkillable, enough_unkillable_seconds)});
  } catch (const mm::Error& e) {
    if (e.status == mm::exit_status::usage) throw;
    findings.push_back({"error", e.what()});
  }
  for (const Finding& f : findings) {
    if (options.json) fmt::print("{}\n", Json({{"severity", f.severity}, {"finding", f.text}}).dump());
    else fmt::print("{}: {}\n", f.severity, f.text);
  }
  if (findings.empty() && !options.json) fmt::print("fine\n");
  return findings.empty() ? mm::exit_status::ok : mm::exit_status::found;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Asks the agent of this node.", "mm-agent");
  app.set_version_flag("--version", mm::version_line("mm-agent"));
  app.add_option("--config", options.config, "The site's configuration, see mm-train.conf(5)");
  app.add_option("--socket", options.socket, "The agent's socket, instead of this node's");
  app.require_subcommand(1);
  app.fallthrough();
  CLI::App* status_command = app.add_subcommand("status", "What the agent knows: the node, its jobs and their ranks");
  CLI::App* events_command = app.add_subcommand("events", "Events since the agent started, oldest first");
  CLI::App* check_command = app.add_subcommand("check", "Is this node fit for a job? A line for each finding; exit status 1 if there is one");
  CLI::App* classify_command = app.add_subcommand("classify", "The incidents in kernel-log files; needs no agent");
  app.add_flag("--json", options.json, "JSON Lines on standard output");
  for (CLI::App* command : {status_command, events_command, check_command, classify_command})
    command->add_flag("--json", options.json, "JSON Lines on standard output");
  classify_command->add_option("FILE", options.files, "Kernel logs: dmesg, syslog, journalctl, /dev/kmsg records; - is standard input")->required();
  status_command->add_option("--job", options.job, "Only this job");
  events_command->add_option("--since", options.since, "Only events with a higher number");
  events_command->add_flag("--follow", options.follow, "Go on with what happens");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? mm::exit_status::ok : mm::exit_status::usage;
  }
  mm::log::init("mm-agent");
  try {
    if (*status_command) return status(options);
    if (*events_command) return events(options);
    if (*classify_command) return mm::agent::classify(options.files, options.json);
    return check(options);
  } catch (const mm::Error& e) {
    mm::log::error("{}", e.what());
    // That no agent answers is a finding; the rest is as the error says.
    return e.status == mm::exit_status::usage ? mm::exit_status::usage : mm::exit_status::found;
  } catch (const std::exception& e) {
    mm::log::error("{}", e.what());
    return mm::exit_status::internal;
  }
}
