// SPDX-License-Identifier: Apache-2.0
// How a step is chosen and loaded. Rank 0 lists the committed steps and all ranks use its list, for on a network file system
// another rank may not see the same one. From the newest that is not marked bad on: each rank verifies the manifest, the
// indexes and the structure of the files that it reads, and every block; the files that a rank does not read are shared out, so
// that each one's structure is checked by somebody. Then the ranks vote, and go on only with what all of them hold good. Wrong
// content marks the step, so that no later load tries it; an error of the disk or network skips it this time and leaves no
// mark; a tensor that is not there as asked for is a mistake of the caller and ends the load, for older steps would not have it
// either.
#include <fmt/format.h>

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

std::string text_of(const std::vector<StepInfo>& steps) {
  std::string out;
  for (const StepInfo& s : steps) out += fmt::format("{} {} {}\n", s.step, s.bad ? 1 : 0, step_name(s.step));
  return out;
}

std::vector<StepInfo> parse_steps(const std::string& text, const std::string& checkpoints) {
  std::vector<StepInfo> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    const size_t a = line.find(' '), b = line.find(' ', a + 1);
    out.push_back({std::stoll(line.substr(0, a)), checkpoints + "/" + line.substr(b + 1), line[a + 1] == '1'});
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
      mine = "+" + text_of(list_steps(checkpoints_));
    } catch (const io::Failure& e) {
      mine = std::string("-") + e.what();
    }
  }
  const std::string listed = group.all_gather(mine)[0];
  if (listed.empty() || listed[0] != '+')
    throw data_error(listed.empty() ? "checkpoint: rank 0 listed nothing" : listed.substr(1));
  const std::vector<StepInfo> steps = parse_steps(listed.substr(1), checkpoints_);
  if (steps.empty()) return std::nullopt;

  Loaded loaded;
  for (const StepInfo& info : steps) {
    const std::string name = step_name(info.step);
    if (info.bad) {
      loaded.skipped.push_back(name + ": marked bad by an earlier load");
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
    loaded.facts = std::move(attempt.facts);
    return loaded;
  }
  std::string message = fmt::format("checkpoint: {}: none of {} committed steps loads", checkpoints_, steps.size());
  for (const std::string& s : loaded.skipped) message += "; " + s;
  throw data_error(message);
}

}  // namespace mm::checkpoint
