// SPDX-License-Identifier: Apache-2.0
// How a step is chosen and loaded. Rank 0 lists the committed steps and all ranks use its list, for on a network file system
// another rank may not see the same one. Steps that a later writer gave up (checkpoint/epochs.h) are no candidates: they are
// beyond the point from which it continued. From the newest that is not marked bad on: each rank verifies the manifest, the
// indexes and the structure of the files that it reads, and every block; the files that a rank does not read are shared out, so
// that each one's structure is checked by somebody. Then the ranks vote, and go on only with what all of them hold good. Wrong
// content marks the step, so that no later load tries it; an error of the disk or network skips it this time and leaves no
// mark; a tensor that is not there as asked for is a mistake of the caller and ends the load, for older steps would not have it
// either.
#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/commit.h"
#include "checkpoint/epochs.h"
#include "checkpoint/folder.h"
#include "checkpoint/step_reader.h"

namespace mm::checkpoint {
namespace {

// A vote: one letter and the reason.
constexpr char good = 'g', bad = 'b', unreadable = 'u', mistaken = 'm';

struct Attempt {
  Facts facts;
  std::string vote;
};

Attempt try_step(const Group& group, const StepInfo& info,
                 const std::function<std::vector<View>(int64_t, const Facts&)>& views_of) {
  Attempt a;
  try {
    StepReader reader(info.path, info.step);
    a.facts = reader.manifest().facts;
    for (size_t file = static_cast<size_t>(group.rank()); file < reader.files(); file += static_cast<size_t>(group.size())) {
      reader.check_structure(file);
    }
    reader.read(views_of(info.step, a.facts));
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

std::string first_of(const std::vector<std::string>& votes, char kind) {
  for (const std::string& v : votes) {
    if (!v.empty() && v[0] == kind) return v.substr(1);
  }
  return "";
}

// A step as rank 0 sees it, and why it is no candidate; empty where it is one.
struct Candidate {
  StepInfo info;
  std::string refused;
};

// A manifest that cannot be read is no reason here: the load itself finds and marks it.
std::optional<Claim> claim_against(const std::vector<Claim>& claims, const StepInfo& s) {
  if (claims.empty()) return std::nullopt;
  try {
    return given_up(claims, read_manifest(s.path, s.step).epoch, s.step);
  } catch (const BadStep&) {
  } catch (const Error&) {
  }
  return std::nullopt;
}

std::string list_candidates(const std::string& checkpoints) {
  std::string out;
  const std::vector<Claim> claims = list_claims(checkpoints);
  for (const StepInfo& s : list_steps(checkpoints)) {
    std::string refused = s.bad ? "marked bad by an earlier load" : "";
    const auto claim = s.bad ? std::nullopt : claim_against(claims, s);
    if (claim) {
      refused = fmt::format("given up by the writer of epoch {} ({}), which continued from step {}", claim->epoch, claim->who,
                            *claim->resumed_from);
      std::replace(refused.begin(), refused.end(), '\n', ' ');
    }
    out += fmt::format("{} {}\n", s.step, refused);
  }
  return out;
}

std::vector<Candidate> parse_candidates(const std::string& text, const std::string& checkpoints) {
  std::vector<Candidate> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    const size_t space = line.find(' ');
    const int64_t step = std::stoll(line.substr(0, space));
    out.push_back({{step, checkpoints + "/" + step_name(step)}, line.substr(space + 1)});
    at = end + 1;
  }
  return out;
}

}  // namespace

std::optional<RunFolder::Loaded> RunFolder::load_newest(
    Group& group, const std::function<std::vector<View>(int64_t, const Facts&)>& views_of) {
  std::string mine;
  if (group.rank() == 0) {
    try {
      mine = "+" + list_candidates(checkpoints_);
    } catch (const Error& e) {
      mine = std::string("-") + e.what();
    }
  }
  const std::string listed = group.broadcast(mine);
  if (listed.empty() || listed[0] != '+')
    throw data_error(listed.empty() ? "checkpoint: rank 0 listed nothing" : listed.substr(1));
  const std::vector<Candidate> candidates = parse_candidates(listed.substr(1), checkpoints_);
  writer_->resumed_from = 0;
  if (candidates.empty()) return std::nullopt;

  Loaded loaded;
  for (const Candidate& c : candidates) {
    const StepInfo& info = c.info;
    const std::string name = step_name(info.step);
    if (!c.refused.empty()) {
      loaded.skipped.push_back(name + ": " + c.refused);
      continue;
    }
    Attempt attempt = try_step(group, info, views_of);
    const std::vector<std::string> votes = group.all_gather(attempt.vote);
    std::string reason = first_of(votes, bad);
    if (!reason.empty()) {
      if (group.rank() == 0) {
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
