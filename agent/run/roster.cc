// SPDX-License-Identifier: Apache-2.0
#include "agent/run/roster.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/recovery/nodes.h"

namespace mm::run {
namespace {

// A node that was hurt may be called good again after so long, in seconds: agents have judged and drained it by then.
constexpr double before_mended = 30;

bool contains(const std::vector<std::string>& list, const std::string& node) {
  return std::find(list.begin(), list.end(), node) != list.end();
}

}  // namespace

Roster::Roster(std::vector<std::string> allocation, int needed)
    : allocation_(std::move(allocation)), slots_(allocation_.begin(), allocation_.begin() + needed) {}

bool Roster::has(const std::string& node) const {
  return contains(allocation_, node);
}
bool Roster::uses(const std::string& node) const {
  return contains(slots_, node);
}

void Roster::leave_out(const std::string& node, const std::string& why, double now) {
  left_out_[node] = {why, now};
}

std::vector<std::string> Roster::keep(const std::vector<std::string>& nodes) {
  std::vector<std::string> gone;
  for (const std::string& n : allocation_)
    if (!contains(nodes, n)) gone.push_back(n);
  for (const std::string& n : gone) {
    std::erase(allocation_, n);
    left_out_.erase(n);
  }
  return gone;
}

void Roster::shrink(int nodes) {
  std::stable_partition(slots_.begin(), slots_.end(), [&](const std::string& n) { return !left_out_.contains(n); });
  slots_.resize(std::min(slots_.size(), static_cast<size_t>(nodes)));
}

Roster::Choice Roster::choose(const std::optional<AgentLink::Probe>& probe, double now) {
  const auto good = [&](const std::string& node) { return has(node) && (!probe || contains(probe->good, node)); };
  const auto why_bad = [&](const std::string& node) {
    if (probe && probe->doubtful.contains(node)) return probe->doubtful.at(node);
    return probe && probe->why_bad.contains(node) ? probe->why_bad.at(node) : std::string("no answer");
  };
  const auto usable = [&](const std::string& n) { return !left_out_.contains(n) && good(n); };
  // A node whose failure is foretold, only in need.
  auto found = recovery::choose_nodes(slots_, allocation_,
                                      [&](const std::string& n) { return usable(n) && !(probe && probe->doubtful.contains(n)); });
  if (found.nodes.empty()) found = recovery::choose_nodes(slots_, allocation_, usable);
  // In need, a node that was left out and that agents call good: it has been mended and is in service again.
  const auto mended = [&](const LeftOut& l) { return l.seen_bad || now - l.since > before_mended; };
  const auto in_need = [&](const std::string& n) {
    const auto at = left_out_.find(n);
    return good(n) && (at == left_out_.end() || (probe && mended(at->second)));
  };
  if (found.nodes.empty()) found = recovery::choose_nodes(slots_, allocation_, in_need);
  if (probe)
    for (auto& [node, l] : left_out_) l.seen_bad = l.seen_bad || !good(node);
  Choice choice;
  if (found.nodes.empty()) {
    recovery::Shortage& s = choice.shortage;
    for (const std::string& node : found.missing) {
      const auto at = left_out_.find(node);
      const std::string why = at != left_out_.end() ? at->second.why : node + ": " + why_bad(node);
      s.missing += (s.missing.empty() ? "" : "; ") + why;
    }
    for (const std::string& node : allocation_) {
      if (in_need(node)) ++s.good;
      else s.bad.push_back(node);
    }
    s.hopeless = !probe || allocation_.size() - left_out_.size() < slots_.size();
    return choice;
  }
  choice.possible = true;
  choice.mended = std::any_of(found.nodes.begin(), found.nodes.end(), [&](const std::string& n) { return left_out_.contains(n); });
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i] != found.nodes[i] && !left_out_.contains(slots_[i]))
      choice.moves.push_back({slots_[i], why_bad(slots_[i]), found.nodes[i]});
  slots_ = found.nodes;
  spares_.clear();
  for (const std::string& n : allocation_)
    if (!uses(n) && !left_out_.contains(n) && good(n)) spares_.push_back(n);
  return choice;
}

}  // namespace mm::run
