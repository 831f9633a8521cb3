// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/events.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/log.h"

namespace mm::agent {
namespace {

constexpr milliseconds delivery_deadline{10000};
constexpr milliseconds company{100};
constexpr size_t most_together = 200;  // events in a datagram

}  // namespace

Events::Events(Context& context, Send send) : c_(context), send_(std::move(send)), batch_timer_(context.loop) {
  c_.journal.on_event([this](const Journal::Event& event) { follow_event(event); });
}

KeyValues Events::complete(const Job* job, KeyValues event) const {
  if (job != nullptr) event.try_emplace("JOB", job->id);
  event.try_emplace("NODE", c_.node);
  event.try_emplace("TIME", fmt::format("{:.6f}", wall_time()));
  return event;
}

void Events::deliver(const std::string& job, const KeyValues& event) {
  const std::string packet = format_key_values(event);
  const std::map<ClientId, std::string> watchers = watchers_;  // a send may end a client
  for (const auto& [client, watched] : watchers)
    if (watched == job) send_(client, packet);
  if (!job.empty()) heard_(event);
}

void Events::record(const std::string& job, const KeyValues& event) {
  const auto at = c_.registry.find(job);
  // What concerns a node is open to all; what concerns ranks is for the job's owner.
  if (at == c_.registry.end() || get(event, "EVENT") == "incident") c_.journal.add(event);
  else c_.journal.add(event, at->second.uid);
}

void Events::publish(const Job& job, KeyValues event) {
  const KeyValues whole = complete(&job, std::move(event));
  record(job.id, whole);
  deliver(job.id, whole);
}

void Events::publish_to_batch(const Job& job, KeyValues event, bool urgent) {
  KeyValues whole = complete(&job, std::move(event));
  publish(job, whole);
  if (job.batch_node.empty() || job.batch_node == c_.node) return;
  for_batch_[job.batch_node].push_back(std::move(whole));
  if (urgent && Clock::now() - batch_sent_ >= company) return send_to_batch();
  if (std::exchange(batch_waits_, true)) return;
  batch_timer_.start(company, [this] { send_to_batch(); });
}

void Events::send_to_batch() {
  batch_timer_.cancel();
  batch_waits_ = false;
  batch_sent_ = Clock::now();
  for (const auto& [node, events] : std::exchange(for_batch_, {}))
    for (size_t first = 0; first < events.size(); first += most_together) {
      const size_t end = std::min(events.size(), first + most_together);
      KeyValues message = events[first];
      message["VERB"] = "event";
      if (end - first > 1) {
        std::string together;
        for (size_t i = first; i < end; ++i) together += format_key_values(events[i]) + "\n";
        message = {{"VERB", "events"}, {"EVENTS", std::move(together)}};
      }
      c_.mesh.ask(node, std::move(message), delivery_deadline, [](const std::optional<KeyValues>&) {});
    }
}

void Events::progress(const Job& job, KeyValues event) {
  KeyValues whole = complete(&job, std::move(event));
  deliver(job.id, whole);
  if (job.batch_node.empty() || job.batch_node == c_.node) return;
  whole["VERB"] = "progress";
  c_.mesh.tell(job.batch_node, std::move(whole));
}

void Events::note(KeyValues event) { c_.journal.add(complete(nullptr, std::move(event))); }

void Events::raise(const Incident& incident) {
  bool told = false;
  for (const auto& [id, job] : c_.registry) {
    if (!job.has_node(incident.node)) continue;
    told = true;
    Incident of_job = incident;
    of_job.job = id;
    if (incident.kind == "node" && job.batch_node == incident.node) of_job.action = "requeue";
    raise_for_job(job, of_job);
  }
  if (told) return;
  log::warn("incident {}: {}", incident.id, fmt::format("{}", fmt::join(incident.evidence, "; ")));
  note(message_from_incident(incident));
}

void Events::raise_for_job(const Job& job, const Incident& incident) {
  log::warn("incident {} (job {}): {}", incident.id, job.id, fmt::format("{}", fmt::join(incident.evidence, "; ")));
  KeyValues event = message_from_incident(incident);
  event["JOB"] = job.id;
  publish(job, event);
  event["VERB"] = "event";
  for (const std::string& n : job.nodes)
    if (n != c_.node && n != incident.node) c_.mesh.ask(n, event, delivery_deadline, [](const std::optional<KeyValues>&) {});
  // The node itself last: it is the one that may not answer.
  if (incident.node != c_.node) c_.mesh.ask(incident.node, event, delivery_deadline, [](const std::optional<KeyValues>&) {});
}

void Events::receive(const KeyValues& message) {
  if (const std::string together = get(message, "EVENTS"); !together.empty()) {
    // An empty line ends each: a value has none.
    for (size_t begin = 0, end; (end = together.find("\n\n", begin)) != std::string::npos; begin = end + 2)
      if (const KeyValues one = parse_key_values(std::string_view(together).substr(begin, end + 1 - begin)); !one.contains("EVENTS")) receive(one);
    return;
  }
  KeyValues event;
  for (const auto& [key, value] : message)
    if (key != "VERB" && key[0] >= 'A' && key[0] <= 'Z') event[key] = value;  // lower case: the mesh's own
  const std::string job = get(event, "JOB");
  if (get(event, "EVENT") != "progress") record(job, event);
  deliver(job, event);
}

void Events::watch(ClientId client, const std::string& job) { watchers_[client] = job; }
bool Events::is_watched(const std::string& job) const {
  return std::any_of(watchers_.begin(), watchers_.end(), [&](const auto& w) { return w.second == job; });
}
void Events::follow(ClientId client, const Peer& peer) { followers_[client] = peer; }
void Events::forget(ClientId client) {
  watchers_.erase(client);
  followers_.erase(client);
}

void Events::follow_event(const Journal::Event& event) {
  const std::map<ClientId, Peer> followers = followers_;
  for (const auto& [client, peer] : followers)
    if (event.open || peer.may_act_for(event.owner)) send_(client, format_key_values({{"JSON", "[" + event.json + "]"}}));
}

}  // namespace mm::agent
