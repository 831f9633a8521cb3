// SPDX-License-Identifier: Apache-2.0
// How a step is chosen and loaded. Rank 0 lists the committed steps and all ranks use its list, for on a network file system
// another rank may not see the same one. Steps that a later writer gave up (checkpoint/epochs.h) are no candidates: they are
// beyond the point from which it continued. From the newest that is not marked bad on: each rank verifies the manifest, the
// indexes and the structure of the files that it reads, and every block; the files that a rank does not read are shared out, so
// that each one's structure is checked by somebody. Then the ranks vote, and go on only with what all of them hold good. Wrong
// content marks the step, so that no later load tries it; an error of the disk or network skips it this time and leaves no
// mark; a tensor that is not there as asked for is a mistake of the caller and ends the load, for older steps would not have it
// either.
//
// Where there are nearer tiers (checkpoint/tiers.h), the ranks first tell each other which files of which steps they have. A
// step of which every file is somewhere is a candidate, whether or not the shared file system has it. Of each file the copies
// are tried in the order own memory, own disk, shared file system, other nodes, block by block: one that does not verify costs
// nothing but the next copy.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "checkpoint/commit.h"
#include "checkpoint/epochs.h"
#include "checkpoint/folder.h"
#include "checkpoint/step_reader.h"
#include "checkpoint/tiers.h"

namespace mm::checkpoint {
namespace {

// A vote: one letter and the reason.
constexpr char good = 'g', bad = 'b', unreadable = 'u', mistaken = 'm';

struct Attempt {
  Facts facts;
  std::string vote;
};

Attempt try_step(const Group& group, int64_t step, const std::function<std::unique_ptr<StepReader>()>& open,
                 const std::function<std::vector<View>(int64_t, const Facts&)>& views_of) {
  Attempt a;
  try {
    const std::unique_ptr<StepReader> reader = open();
    a.facts = reader->manifest().facts;
    for (size_t file = static_cast<size_t>(group.rank()); file < reader->files(); file += static_cast<size_t>(group.size())) {
      reader->check_structure(file);
    }
    reader->read(views_of(step, a.facts));
    a.vote = good;
  } catch (const BadStep& e) {
    a.vote = bad + std::string(e.what());
  } catch (const io::Failure& e) {
    a.vote = unreadable + std::string(e.what());
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    a.vote = fmt::format("{}{} {}", mistaken, error != nullptr ? error->status : exit_status::internal, e.what());
  }
  return a;
}

// Throws what the first mistaken rank met, the same on all ranks.
void throw_mistake(const std::vector<std::string>& votes) {
  for (const std::string& v : votes) {
    if (v.empty() || v[0] != mistaken) continue;
    const size_t space = v.find(' ');
    throw Error(std::stoi(v.substr(1, space - 1)), v.substr(space + 1));
  }
}

bool all_good(const std::vector<std::string>& votes) {
  return std::all_of(votes.begin(), votes.end(), [](const std::string& v) { return !v.empty() && v[0] == good; });
}

std::string first_of(const std::vector<std::string>& votes, char kind) {
  for (const std::string& v : votes) {
    if (!v.empty() && v[0] == kind) return v.substr(1);
  }
  return "";
}

// A step that somebody has, and why it is no candidate; empty where it is one.
struct Candidate {
  int64_t step = 0, epoch = 0;
  std::string name;     // of its save; empty where the manifest of the shared one cannot be read
  bool shared = false;  // the shared file system has it
  std::string refused;
  const NearCopies::Step* near = nullptr;  // what the nearer tiers have of it
};

std::string refusal(const std::vector<Claim>& claims, int64_t epoch, int64_t step) {
  const auto claim = given_up(claims, epoch, step);
  if (!claim) return "";
  std::string out = fmt::format("given up by the writer of epoch {} ({}), which continued from step {}", claim->epoch,
                                claim->who, *claim->resumed_from);
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

// On rank 0: a line for each step, newest first.
std::string list_candidates(const std::string& checkpoints, const std::vector<NearCopies::Step>& near) {
  const std::vector<Claim> claims = list_claims(checkpoints);
  std::vector<Candidate> all;
  for (const StepInfo& s : list_steps(checkpoints)) {
    Candidate c{s.step, 0, "", true, s.bad ? "marked bad by an earlier load" : ""};
    try {
      const Manifest m = read_manifest(s.path, s.step);
      c.name = m.writer;
      c.epoch = m.epoch;
      if (c.refused.empty()) c.refused = refusal(claims, m.epoch, s.step);
    } catch (const std::exception&) {
      // The load itself finds and marks it.
    }
    all.push_back(std::move(c));
  }
  for (const NearCopies::Step& s : near) {
    const bool known =
        std::any_of(all.begin(), all.end(), [&](const Candidate& c) { return c.step == s.step && c.name == s.name; });
    if (!known && s.complete()) all.push_back({s.step, s.epoch, s.name, false, refusal(claims, s.epoch, s.step)});
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(b.step, b.epoch) < std::pair(a.step, a.epoch);
  });
  std::string out;
  for (const Candidate& c : all)
    out += fmt::format("{} {} {} {}\n", c.step, c.shared ? 1 : 0, c.name.empty() ? "-" : c.name, c.refused);
  return out;
}

std::vector<Candidate> parse_candidates(const std::string& text, const std::vector<NearCopies::Step>& near) {
  std::vector<Candidate> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream in(line);
    Candidate c;
    int shared = 0;
    in >> c.step >> shared >> c.name;
    in.ignore(1);
    std::getline(in, c.refused);
    c.shared = shared == 1;
    for (const NearCopies::Step& s : near) {
      if (s.step == c.step && s.name == c.name) c.near = &s;
    }
    out.push_back(std::move(c));
  }
  return out;
}

}  // namespace

std::optional<RunFolder::Loaded> RunFolder::load_newest(
    Group& group, const std::function<std::vector<View>(int64_t, const Facts&)>& views_of) {
  const std::vector<NearCopies::Step> near = near_ ? near_->list(group) : std::vector<NearCopies::Step>{};
  std::string mine;
  if (group.rank() == 0) {
    try {
      mine = "+" + list_candidates(checkpoints_, near);
    } catch (const Error& e) {
      mine = std::string("-") + e.what();
    }
  }
  const std::string listed = group.broadcast(mine);
  if (listed.empty() || listed[0] != '+')
    throw data_error(listed.empty() ? "checkpoint: rank 0 listed nothing" : listed.substr(1));
  const std::vector<Candidate> candidates = parse_candidates(listed.substr(1), near);
  writer_->resumed_from = 0;
  if (candidates.empty()) return std::nullopt;

  Loaded loaded;
  for (const Candidate& c : candidates) {
    const std::string name = step_name(c.step);
    const StepInfo info{c.step, checkpoints_ + "/" + name};
    if (!c.refused.empty()) {
      loaded.skipped.push_back(name + ": " + c.refused);
      continue;
    }
    const std::string near_manifest = c.near != nullptr ? near_->manifest(group, *c.near) : "";
    const auto open = [&] {
      if (c.near == nullptr) return std::make_unique<StepReader>(info.path, c.step);
      Manifest m = near_manifest.empty() && c.shared ? read_manifest(info.path, c.step)
                                                     : parse_manifest(near_manifest, name + "'s manifest on another node");
      const std::vector<FileRecord> files = m.files;
      return std::make_unique<StepReader>(name, std::move(m), [&](int rank) {
        const uint64_t size = files.at(static_cast<size_t>(rank)).size;
        std::vector<Place> places = near_->places(*c.near, rank, size, false);
        if (c.shared) places.push_back(place_of_file(info.path + "/" + rank_file_name(rank)));
        for (Place& p : near_->places(*c.near, rank, size, true)) places.push_back(std::move(p));
        if (places.empty()) throw BadStep("checkpoint: " + name + ": no copy of " + rank_file_name(rank));
        return places;
      });
    };
    Attempt attempt = try_step(group, c.step, open, views_of);
    const std::vector<std::string> votes = group.all_gather(attempt.vote);
    const bool is_mistaken = !first_of(votes, mistaken).empty(), loads = all_good(votes);
    if (near_ && (is_mistaken || loads || &c == &candidates.back())) near_->end_of_load();
    std::string reason = first_of(votes, bad);
    if (!reason.empty()) {
      if (group.rank() == 0 && c.shared) {
        const std::string unmarked = mark_bad(info, reason);
        if (!unmarked.empty()) reason += "; not marked: " + unmarked;
      }
      loaded.skipped.push_back(name + ": " + reason);
      continue;
    }
    throw_mistake(votes);
    reason = first_of(votes, unreadable);
    if (!reason.empty()) {
      loaded.skipped.push_back(name + ": " + reason);
      continue;
    }
    loaded.step = info.step;
    writer_->resumed_from = info.step;
    loaded.facts = std::move(attempt.facts);
    return loaded;
  }
  std::string message = fmt::format("checkpoint: {}: none of {} committed steps loads", checkpoints_, candidates.size());
  for (const std::string& s : loaded.skipped) message += "; " + s;
  throw data_error(message);
}

}  // namespace mm::checkpoint
