// SPDX-License-Identifier: Apache-2.0
// mm-agent: asks the mm-agentd of this node. See mm-agent(1).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <ctime>
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
constexpr std::chrono::milliseconds for_slurm{60000};

struct Options {
  std::string config, socket, job;
  std::vector<std::string> files;
  std::string device;
  double days = 28;
  int most = 100;
  bool json = false, follow = false, last = false;
  int64_t since = 0;
};

mm::AgentClient connect(const Options& options) {
  const auto environment = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  if (!options.socket.empty()) return mm::AgentClient(options.socket);
  if (options.config.empty())  // a task of a job is told where its agent is
    if (const std::string socket = environment("MM_AGENT_SOCKET"); !socket.empty()) return mm::AgentClient(socket);
  std::string config = options.config.empty() ? environment("MM_TRAIN_CONF") : options.config;
  if (config.empty()) config = mm::Site::default_path;
  return mm::AgentClient(mm::agent_socket_path(mm::load_site(config).run_dir, mm::this_node()));
}

Json document(const mm::KeyValues& answer) {
  if (mm::get(answer, "OK", "1") != "1") throw mm::usage_error("agent: " + mm::get(answer, "ERROR", "refused"));
  return Json::parse(mm::get(answer, "JSON", "null"));
}

std::string local_time(double time) {
  const auto seconds = static_cast<time_t>(time);
  char text[32] = "";
  tm broken = {};
  std::strftime(text, sizeof text, "%F %T", ::localtime_r(&seconds, &broken));
  return text;
}

void print_status(const Json& s) {
  fmt::print("{}: {}, mm-agentd {}{}\n", s["node"].get<std::string>(), s["ok"].get<bool>() ? "fine" : "NOT FIT", s["version"].get<std::string>(),
             s["dry_run"].get<bool>() ? ", dry run" : "");
  for (const Json& p : s["problems"]) fmt::print("  problem: {}\n", p.get<std::string>());
  for (const Json& i : s["incidents"])
    fmt::print("  incident {}: {} {} {} {}, {}: {}\n", i["id"].get<int64_t>(), i["severity"].get<std::string>(), i["class"].get<std::string>(), i["device"].get<std::string>(),
               i["code"].get<std::string>(), i["action"].get<std::string>(), i["evidence"].empty() ? "" : i["evidence"][0].get<std::string>());
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
    fmt::print("{} {} {} {}{}\n", e["event"].get<int64_t>(), local_time(e.value("time", 0.0)), e.value("node", ""), e["kind"].get<std::string>(), text);
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

int check(const Options& options) {
  Json findings = Json::array();
  try {
    findings = document(connect(options).request({{"VERB", "check"}, {"RUN", options.last ? "0" : "1"}}, patience));
  } catch (const mm::Error& e) {
    if (e.status == mm::exit_status::usage) throw;
    findings.push_back({{"severity", "error"}, {"finding", e.what()}});
  }
  for (const Json& f : findings) {
    if (options.json) fmt::print("{}\n", f.dump());
    else fmt::print("{}: {}\n", f["severity"].get<std::string>(), f["finding"].get<std::string>());
  }
  if (findings.empty() && !options.json) fmt::print("fine\n");
  return findings.empty() ? mm::exit_status::ok : mm::exit_status::found;
}

int history(const Options& options) {
  const double since = static_cast<double>(std::time(nullptr)) - options.days * 24 * 3600;
  const Json found = document(connect(options).request(
      {{"VERB", "history"}, {"SINCE", fmt::format("{:.0f}", since)}, {"DEVICE", options.device}, {"MOST", std::to_string(options.most)}}, patience));
  for (const Json& e : found) {
    if (options.json) {
      fmt::print("{}\n", e.dump());
      continue;
    }
    const std::string device = e["device"].get<std::string>();
    fmt::print("{} {:<8} {:<10} {:<8} {:<20} {} {}: {}\n", local_time(e["time"].get<double>()), e["severity"].get<std::string>(), e["action"].get<std::string>(),
               e["class"].get<std::string>(), device.empty() ? "-" : device, e["code"].get<std::string>(), e["count"].get<int64_t>(),
               e["evidence"].empty() ? "" : e["evidence"][0].get<std::string>());
  }
  return mm::exit_status::ok;
}

int clear(const Options& options) {
  const mm::KeyValues answer = connect(options).request({{"VERB", "clear"}}, for_slurm);
  if (mm::get(answer, "OK") != "1") {
    mm::log::error("{}", mm::get(answer, "ERROR", "refused"));
    return mm::exit_status::found;
  }
  const std::string done = mm::get(answer, "DONE");
  fmt::print("{}\n", options.json ? Json{{"done", done}}.dump() : done);
  return mm::exit_status::ok;
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
  CLI::App* history_command = app.add_subcommand("history", "Incidents of this node, from months, newest first");
  CLI::App* clear_command = app.add_subcommand("clear", "The node is repaired: checks it, forgets its faults, and takes the agent's own drain back; root only");
  CLI::App* classify_command = app.add_subcommand("classify", "The incidents in kernel-log files; needs no agent");
  app.add_flag("--json", options.json, "JSON Lines on standard output");
  for (CLI::App* command : {status_command, events_command, check_command, history_command, classify_command})
    command->add_flag("--json", options.json, "JSON Lines on standard output");
  check_command->add_flag("--last", options.last, "Only what the agent knows already; for HealthCheckProgram");
  history_command->add_option("--days", options.days, "So far back; default 28")->check(CLI::Range(0.0, 10000.0));
  history_command->add_option("--device", options.device, "Only this device");
  history_command->add_option("--most", options.most, "At most so many; default 100")->check(CLI::Range(1, 1000));
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
    if (*history_command) return history(options);
    if (*clear_command) return clear(options);
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
