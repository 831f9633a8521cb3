// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/agent.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include <nlohmann/json.hpp>

#include "agent/peers/trusted.h"
#include "common/agent_client.h"
#include "common/error.h"
#include "common/hostlist.h"
#include "common/log.h"
#include "common/memory_keeper.h"

namespace mm::agent {
namespace {

constexpr milliseconds learn_retry{2000};
constexpr milliseconds save_delay{20};

std::string boot_id() {
  std::string text = read_file("/proc/sys/kernel/random/boot_id");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace

Agent::Agent(Loop& loop, const Site& site, const std::string& node)
    : c_{loop,
         site,
         node,
         Slurm(site.slurm_conf, site.dry_run),
         {},
         {},
         Journal(loop, site.state_dir, node),
         Mesh(loop, node,
              {[this](const std::string& from, const KeyValues& m) { told(from, m); },
               [this](const std::string& from, const KeyValues& m, const Mesh::Reply& reply) { asked(from, m, reply); }}),
         {},
         {},
         {},
         [this] {
           neighbours_.registry_changed();
           save_soon();
         }},
      events_(c_, [this](ClientId client, const std::string& packet) { server_.send(client, packet); }),
      ranks_(c_, events_),
      jobs_(c_, events_, ranks_),
      neighbours_(c_, events_, ranks_, jobs_),
      desk_(c_, events_),
      health_(c_, events_, desk_),
      advice_(c_, events_, desk_, [this](ClientId client, const std::string& packet) { server_.send(client, packet); }),
      time_limits_(c_, advice_),
      unattended_(c_, jobs_, [this](const std::string& job) { return events_.is_watched(job); }),
      stragglers_(c_, events_, desk_),
      history_(loop, site.state_dir, node),
      state_path_(fmt::format("{}/agent-{}.json", site.state_dir, node)),
      slurm_cache_path_(fmt::format("{}/slurm-{}.txt", site.state_dir, node)),
      server_(loop, agent_socket_path(site.run_dir, node),
              {[this](ClientId client, const Peer& peer, std::string_view text) { local_message(client, peer, text); },
               [this](ClientId client) {
                 events_.forget(client);
                 advice_.forget(client);
               }}) {}

void Agent::start() {
  c_.mesh.trust(trusted_users(c_.site.peer_users));
  load_state();
  desk_.on_report([this](const Incident& incident) {
    history_.add(incident);
    if (incident.id > 0) ++incident_counts_[incident.kind];
    advice_.incident(incident);
  });
  events_.on_event([this](const KeyValues& event) { unattended_.event(event); });
  jobs_.on_removed([this](const std::string& job) { job_removed(job); });
  advice_.start();
  time_limits_.start();
  stragglers_.start();
  ranks_.resume();
  open_keeper();
  learn_slurm();
  if (!c_.site.kernel_log.empty()) kernel_.emplace(c_, desk_, kernel_position_);
  hardware_.emplace(c_, desk_, history_, kernel_ && kernel_->reads());
  if (c_.site.metrics.empty()) return;
  try {
    metrics_ = std::make_unique<MetricsServer>(c_.loop, c_.site.metrics, TlsFiles{c_.site.metrics_certificate, c_.site.metrics_key},
                                               [this] { return metrics_text(); });
  } catch (const Error& e) {
    if (e.status == exit_status::usage) throw;
    log::warn("{}", e.what());  // such as another agent of this machine that has the port
  }
}

// What jobs may leave on this node for their next launch (checkpoint tiers), where the site allows it.
void Agent::open_keeper() {
  std::string folders = c_.site.node_tier;
  if (const size_t at = folders.find("%n"); at != std::string::npos) folders.replace(at, 2, c_.node);
  if (c_.site.memory_tier_bytes == 0 && folders.empty()) return;
  keeper_.emplace(c_.loop, memory_socket_path(c_.site.run_dir, c_.node), static_cast<uint64_t>(c_.site.memory_tier_bytes), folders,
                  [this](const std::string& job) -> std::optional<uid_t> {
                    const auto at = c_.registry.find(job);
                    return at == c_.registry.end() ? std::nullopt : std::optional(at->second.uid);
                  });
}

void Agent::job_removed(const std::string& job) {
  if (keeper_) keeper_->job_ended(job);
  advice_.job_ended(job);
  unattended_.job_ended(job);
}

void Agent::reload(const Site& site) {
  // What may throw comes first.
  std::set<uid_t> trusted = trusted_users(site.peer_users);
  if (metrics_) metrics_->renew({site.metrics_certificate, site.metrics_key});
  c_.mesh.trust(std::move(trusted));
  c_.site.straggler_s = site.straggler_s;
  c_.site.training_interfaces = site.training_interfaces;
  c_.site.heartbeat_ms = site.heartbeat_ms;
  c_.site.silent_ms = site.silent_ms;
  c_.site.fence_ms = site.fence_ms;
  c_.site.drain_share = site.drain_share;
  c_.site.predict_drain = site.predict_drain;
  c_.site.dry_run = site.dry_run;
  c_.slurm = Slurm(c_.site.slurm_conf, site.dry_run);
  learn_slurm();
}

void Agent::stop() {
  save_now();
}

// Where the nodes are and where slurmctld is. What Slurm said last is kept on disk, for a start while slurmctld is away.
void Agent::learn_slurm() {
  if (learning_) return;
  learning_ = true;
  c_.loop.work(Loop::Pool::slurm, [this]() -> Loop::Action {
    constexpr const char* mark = "\n--- config ---\n";
    try {
      const std::string nodes = c_.slurm.nodes_text(), config = c_.slurm.config_text();
      try {
        write_file_durably(slurm_cache_path_, nodes + mark + config);
      } catch (const Error& e) {
        log::warn("{}", e.what());  // a full disk: only a start while slurmctld is away would need it
      }
      AddressBook book = make_address_book(parse_nodes(nodes), c_.site.port_offset);
      return [this, book = std::move(book), config = parse_config(config)] { slurm_learnt(book, config, false); };
    } catch (const std::exception& e) {
      log::warn("{}", e.what());
    }
    if (c_.mesh.is_open() || ::access(slurm_cache_path_.c_str(), R_OK) != 0) {
      return [this] {
        learning_ = false;
        c_.loop.after(learn_retry, [this] { learn_slurm(); });
      };
    }
    const std::string saved = read_file(slurm_cache_path_);
    const size_t at = saved.find(mark);
    AddressBook book = make_address_book(parse_nodes(saved.substr(0, at)), c_.site.port_offset);
    return [this, book = std::move(book), config = parse_config(at == std::string::npos ? "" : saved.substr(at))] { slurm_learnt(book, config, true); };
  });
}

void Agent::slurm_learnt(const AddressBook& book, const SlurmConfig& config, bool from_cache) {
  learning_ = false;
  const bool first = !c_.mesh.is_open();
  c_.slurm_config = config;
  try {
    c_.mesh.open(book, config.munge_socket);
  } catch (const Error& e) {
    log::error("{}", e.what());
    c_.loop.after(learn_retry, [this] { learn_slurm(); });
    return;
  }
  if (first) {
    log::info("{}: {} nodes known, slurmctld at {}:{}{}", c_.node, book.size(), config.controller, config.controller_port, from_cache ? " (as of an earlier run)" : "");
    health_.slurm_known();
    if (hardware_) hardware_->slurm_known(config.munge_socket);
    desk_.resume();
    jobs_.resume();
    if (keeper_)
      keeper_->sweep([this](const std::string& id) {
        const auto job = c_.slurm.job(id);
        return job && (job->state == "RUNNING" || job->state == "SUSPENDED" || job->state == "COMPLETING");
      });
  }
  if (from_cache) c_.loop.after(learn_retry, [this] { learn_slurm(); });
}

void Agent::load_state() {
  if (::access(state_path_.c_str(), F_OK) != 0) return;
  try {
    const auto state = nlohmann::json::parse(read_file(state_path_));
    if (state.at("boot") != boot_id()) return;  // nothing of it is there any more
    health_.state_from_text(state.at("health"));
    desk_.state_from_text(state.at("desk"));
    kernel_position_ = state.at("kernel_log");
    for (const auto& [id, nodes] : state.at("needed").items()) jobs_.set_needed(id, nodes.get<int>());
    c_.registry = registry_from_json(state.at("jobs").dump());
    if (!c_.registry.empty()) log::info("{} jobs are taken over from the agent before", c_.registry.size());
  } catch (const std::exception& e) {
    log::warn("{}: cannot be read and is put aside: {}", state_path_, e.what());
    ::rename(state_path_.c_str(), (state_path_ + ".bad").c_str());
  }
}

void Agent::save_soon() {
  if (std::exchange(save_pending_, true)) return;
  c_.loop.after(save_delay, [this] { save_now(); });
}

void Agent::save_now() {
  save_pending_ = false;
  const nlohmann::json state = {{"boot", boot_id()},
                                {"health", health_.state_to_text()},
                                {"desk", desk_.state_to_text()},
                                {"kernel_log", kernel_ ? kernel_->position() : kernel_position_},
                                {"needed", jobs_.needed()},
                                {"jobs", nlohmann::json::parse(registry_to_json(c_.registry))}};
  c_.loop.work(Loop::Pool::disk, [path = state_path_, text = state.dump()]() -> Loop::Action {
    write_file_durably(path, text);
    return {};
  });
}

void Agent::told(const std::string& from, const KeyValues& message) {
  neighbours_.heard(from);
  const std::string verb = get(message, "VERB");
  if (verb == "beat") {
    neighbours_.beat_received(from, message);
    clock_heard(from, message);
  }
  else if (verb == "progress") events_.receive(message);
}

void Agent::clock_heard(const std::string& from, const KeyValues& beat) {
  const double sent = std::strtod(get(beat, "TIME").c_str(), nullptr);
  if (sent <= 0 || !c_.may_judge()) return;
  clock_skew_.add(from, wall_time() - sent);
  const auto skew = clock_skew_.skew();
  if (!skew) return desk_.over("clock", "the clock is with its peers again");
  if (desk_.is_open("clock")) return;
  Report r;
  r.part = Part::clock;
  r.code = "clock_skew";
  r.severity = Severity::error;
  r.evidence = {fmt::format("the clock of {} is {:.1f} s {} those of most of its peers", c_.node, std::abs(*skew), *skew > 0 ? "ahead of" : "behind")};
  desk_.report("clock", r);
}

void Agent::asked(const std::string& from, const KeyValues& message, const Mesh::Reply& reply) {
  neighbours_.heard(from);
  const std::string verb = get(message, "VERB"), job = get(message, "JOB"), step = get(message, "STEP");
  const int restarts = static_cast<int>(get_int(message, "RESTARTS", 0));
  try {
    if (verb == "probe") return reply(health_.probe());
    // Drains are counted by the hour: who has a wrong clock leaves it to the next.
    if (verb == "permit" && desk_.is_open("clock")) return;
    if (verb == "permit")
      return desk_.ask_brake(from, [reply](const std::string& refusal) {
        if (refusal.empty()) reply({{"OK", "1"}});
        else reply({{"OK", "0"}, {"ERROR", refusal}});
      });
    if (verb == "heard") return reply(neighbours_.age_of(get(message, "NODE")));
    if (verb == "silent") return neighbours_.report_received(message, reply);
    if (verb == "paces") return reply(stragglers_.paces(job, step));
    if (verb == "ranks") return reply(ranks_.states(job, step));
    if (verb == "killed") return reply({{"OK", "1"}, {"STEPS", fmt::format("{}", fmt::join(ranks_.killed_steps(job), ","))}});
    if (verb == "kill")
      return ranks_.kill_here(job, step, [reply](int killed) { reply({{"OK", "1"}, {"KILLED", std::to_string(killed)}}); });
    if (verb == "jobinfo") {
      const auto at = c_.registry.find(job);
      if (at == c_.registry.end()) return reply({{"OK", "0"}, {"ERROR", fmt::format("job {} is not known", job)}});
      KeyValues answer = message_from_job(at->second);
      answer.emplace("OK", "1");
      return reply(answer);
    }
    if (verb == "event") {
      if (get(message, "EVENT") == "incident") neighbours_.incident_received(incident_from_message(message));
      events_.receive(message);
    } else if (verb == "events") {
      events_.receive(message);
    } else if (verb == "job") {
      for (const std::string& n : expand_hostlist(get(message, "NODES")))
        if (!c_.mesh.book().contains(n)) learn_slurm();
      jobs_.add_from_peer(message);
    } else if (verb == "jobend") {
      if (const int64_t needed = get_int(message, "NEEDED", 0); needed > 0) jobs_.set_needed(job, static_cast<int>(needed));
      jobs_.ended(job, restarts);
    } else if (verb == "advise") {
      advice_.tell_job(message);
    } else if (verb == "left") {
      jobs_.left(job, restarts, from);
    } else if (verb == "teardown") {
      return reply({{"OK", "1"}, {"KILLED", std::to_string(jobs_.tear_down(job, restarts))}});
    } else if (verb == "hang") {
      ranks_.suspect_hang(job, step, expand_hostlist(get(message, "NODES")));
    } else {
      return reply({{"OK", "0"}, {"ERROR", fmt::format("unknown verb '{}'", verb)}});
    }
    reply({{"OK", "1"}});
  } catch (const Error& e) {
    reply({{"OK", "0"}, {"ERROR", e.what()}});
  }
}

}  // namespace mm::agent
