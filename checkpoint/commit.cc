// SPDX-License-Identifier: Apache-2.0
// How a step is saved.
//
//  1. Rank 0 claims an epoch, if this is the first save of its writer (checkpoint/epochs.h), names the save (64 random bits),
//     removes the private folders that dead writers left, and makes .step-NNNNNNN.NAME. A stale writer thus loses its folder:
//     it cannot collide with us, and its own rename fails.
//  2. The ranks have agreed which of them writes a box that several of them show (checkpoint/owners.h). Each rank takes the
//  HDF5
//     structure of its file from the save before, or builds it in memory, creates the file and reserves its space (a full disk
//     shows here), streams the payload block by block (hash, write), writes hashes, index and structure, then fsync and close,
//     then fsync of the private folder. A rank that compresses (checkpoint/compression_choice.h) writes the structure behind
//     the payload, for only then it knows how long that is.
//     Where there are nearer tiers (checkpoint/tiers.h), each rank first puts the same file there, and they become whole: rank
//     0 hears from all, sends all the manifest, and each node publishes it. A failure there is told and fails nothing else.
//  3. The ranks tell rank 0 their record (size and hashes) or their error. One error and the save has failed.
//  4. Rank 0 reads the indexes of all files back, checks that the boxes tile every tensor, writes the manifest beside its name,
//     fsyncs it, renames it and fsyncs the private folder. All of the step is now durable under a name that no load looks at.
//  5. Rank 0 makes sure that no newer epoch has been claimed, renames the folder to step-NNNNNNN and fsyncs the folder above
//  it:
//     the commit. Before the rename a crash leaves the step before as the newest; after it, this one. Where that name exists
//     already (a step saved again after a restart), the two are exchanged in one operation; a file system that cannot do so
//     gets two renames, and a crash between them leaves the step before as the newest.
//  6. Rank 0 replaces LATEST, a hint that a failure does not matter to, and tells the others the outcome.
//
// A failure of anything up to and in 5 fails the save: the rename is taken back, the private folder removed, all ranks return
// the first error. An fsync that failed is never repeated: what it left in the page cache is unknown, so the next save writes
// new files.
#include "checkpoint/commit.h"

#include <fmt/format.h>

#include <chrono>

#include "checkpoint/epochs.h"
#include "checkpoint/folder.h"
#include "checkpoint/step_reader.h"
#include "checkpoint/tiers.h"
#include "common/version.h"

namespace mm::checkpoint {
namespace {

// A message between ranks: "+" and a result, or "-" and an error.
template <class F>
std::string report_of(F&& f) {
  try {
    return "+" + f();
  } catch (const std::exception& e) {
    return std::string("-") + e.what();
  }
}

// The first error among the messages; empty where there is none.
std::string first_error(const std::vector<std::string>& reports) {
  for (const std::string& r : reports) {
    if (r.empty()) return "checkpoint: a rank reported nothing";
    if (r[0] == '-') return r.substr(1);
  }
  return "";
}

// Step 5.
void publish(const std::string& checkpoints, const std::string& private_folder, const std::string& final_folder) {
  const bool again = io::exists(final_folder);
  bool exchanged = false;
  std::string aside;
  if (again) {
    exchanged = io::exchange(private_folder, final_folder);
    if (!exchanged) {
      aside = checkpoints + "/.trash-" + new_writer();
      io::rename(final_folder, aside);
    }
  }
  try {
    if (!exchanged) io::rename(private_folder, final_folder);
    try {
      io::sync_folder(checkpoints);
    } catch (const Error&) {
      // It may or may not be durable: take it back, so that what the save says is what a load finds.
      if (exchanged)
        io::exchange(private_folder, final_folder);
      else
        io::rename(final_folder, private_folder);
      throw;
    }
  } catch (const Error&) {
    if (!aside.empty()) io::rename(aside, final_folder);
    throw;
  }
}

void replace_latest(const std::string& checkpoints, const std::string& name) {
  try {
    const std::string temporary = checkpoints + "/.LATEST.tmp";
    io::remove_tree(temporary);
    io::write_file(temporary, name + "\n");
    io::rename(temporary, checkpoints + "/LATEST");
  } catch (const io::Failure&) {
    // A hint: loads look at the folders themselves.
  }
}

// Steps 4 to 6, on rank 0. Returns the bytes of payload.
std::string commit(const std::string& checkpoints, const std::string& private_folder, Manifest manifest,
                   const std::vector<std::string>& reports) {
  if (const std::string error = first_error(reports); !error.empty()) throw Error(exit_status::data, error);
  for (const std::string& r : reports) manifest.files.push_back(parse_file_record(r.substr(1)));
  commit_files(checkpoints, private_folder, manifest);
  return std::to_string(manifest.payload());
}

std::string name_of_tiers(const std::string& letters) {
  std::string out;
  for (const auto& [letter, name] : {std::pair('m', "memory"), {'n', "node"}, {'p', "peer"}}) {
    if (letters.find(letter) != std::string::npos) out += std::string(out.empty() ? "" : " ") + name;
  }
  return out;
}

// What is in all of them.
std::string common_letters(std::string a, const std::string& b) {
  std::erase_if(a, [&](char c) { return b.find(c) == std::string::npos; });
  return a;
}

// Steps 4 of the nearer tiers, on rank 0: the tiers that all ranks have filled, and the manifest.
std::pair<std::string, Manifest> whole_tiers(const std::vector<std::string>& reports, Manifest manifest) {
  std::string letters = "mnp";
  for (const std::string& r : reports) {
    if (r.empty() || r[0] != '+') return {"", manifest};
    const size_t space = r.find(' ');
    letters = common_letters(letters, r.substr(1, space - 1));
    if (letters.empty()) return {"", manifest};
    manifest.files.push_back(parse_file_record(r.substr(space + 1)));
  }
  return {letters, manifest};
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Collective. The tiers that have the step, and its payload.
std::pair<std::string, uint64_t> save_near(NearCopies& near, Group& group, const SaveTask& task, const Manifest& manifest,
                                           const WriteOptions& options) {
  const std::vector<std::string> reports = group.gather(report_of([&] {
    if (!task.problem.empty()) throw Error(exit_status::internal, task.problem);
    const auto [letters, record] = near.write({manifest.writer, task.step, group.rank(), group.size()}, task.mine, options);
    return letters + " " + text_of(record);
  }));
  std::string outcome = "+";
  if (group.rank() == 0) {
    auto [letters, whole] = whole_tiers(reports, manifest);
    whole.tiers = name_of_tiers(letters);
    if (!letters.empty()) outcome = "+" + letters + " " + text_of(whole);
  }
  outcome = group.broadcast(outcome);
  const size_t space = outcome.find(' ');
  if (space == std::string::npos) return {"", 0};
  const std::string letters = outcome.substr(1, space - 1), text = outcome.substr(space + 1);
  near.commit(task.step, manifest.writer, text, letters);
  return {name_of_tiers(letters), parse_manifest(text, "the manifest").payload()};
}

// The parts of one save that follow each other, on all ranks.
SaveResult attempt(const std::string& checkpoints, Writer& writer, Group& group, NearCopies* near, const SaveTask& task,
                   const WriteOptions& given) {
  const auto begin = std::chrono::steady_clock::now();
  const bool first = group.rank() == 0;
  SaveResult result;
  const std::string started = group.broadcast(!first ? "" : report_of([&] {
    std::string name;
    if (task.shared)
      start_save(checkpoints, writer, task.step, name);
    else
      name = name_save(checkpoints, writer, task.step);
    return fmt::format("{} {}", writer.epoch, name);
  }));
  if (result.error = first_error({started}); !result.error.empty()) return result;
  const size_t space = started.find(' ');
  const std::string name = started.substr(space + 1);
  const auto manifest = [&](const std::string& tiers) {
    const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    return Manifest{task.step,  name, version_line("mm-train"), now, seconds_since(begin), std::stoll(started.substr(1, space - 1)),
                    task.facts, {}, tiers};
  };
  // One choice for all copies of the file, which are the same bytes.
  WriteOptions options = given;
  if (task.problem.empty()) options.compress = writer.compression.next(task.shared, task.mine, options.threads);
  if (near != nullptr) {
    std::tie(result.tiers, result.bytes) = save_near(*near, group, task, manifest(""), options);
    result.problems = near->problems();
    result.committed = !result.tiers.empty();
  }
  if (!task.shared) {
    if (!result.committed) result.error = fmt::format("checkpoint: step {}: no tier has it of all ranks", task.step);
    return result;
  }

  const std::string private_folder = checkpoints + "/" + private_name(task.step, name);
  const std::vector<std::string> reports = group.gather(report_of([&] {
    if (!task.problem.empty()) throw Error(exit_status::internal, task.problem);
    const Identity identity{name, task.step, group.rank(), group.size()};
    const auto begin_of_file = std::chrono::steady_clock::now();
    const FileRecord record =
        write_rank_file(private_folder + "/" + rank_file_name(group.rank()), identity, task.mine, options);
    writer.compression.written(options.compress, record.stored, seconds_since(begin_of_file));
    io::sync_folder(private_folder);
    return text_of(record);
  }));
  const std::string tiers = result.tiers.empty() ? "shared" : result.tiers + " shared";
  const std::string outcome =
      group.broadcast(!first ? "" : report_of([&] { return commit(checkpoints, private_folder, manifest(tiers), reports); }));
  if (const std::string error = first_error({outcome}); !error.empty()) {
    // Where a nearer tier has the step it is saved all the same.
    (result.committed ? result.problems.emplace_back() : result.error) = error;
    return result;
  }
  result.committed = true;
  result.tiers = tiers;
  result.bytes = std::stoull(outcome.substr(1));
  return result;
}

}  // namespace

std::string name_save(const std::string& checkpoints, Writer& writer, int64_t step) {
  if (step < 0) throw Error(exit_status::internal, fmt::format("checkpoint: save step {}: negative", step));
  if (writer.epoch == 0) writer.epoch = claim_epoch(checkpoints, writer.resumed_from);
  return new_writer();
}

std::string start_save(const std::string& checkpoints, Writer& writer, int64_t step, std::string& name) {
  name = name_save(checkpoints, writer, step);
  remove_leftovers(checkpoints);
  std::string folder = checkpoints + "/" + private_name(step, name);
  io::make_folder(folder);
  return folder;
}

void commit_files(const std::string& checkpoints, const std::string& private_folder, const Manifest& manifest) {
  const StepReader checks_tiling(private_folder, manifest);
  io::write_file(private_folder + "/manifest.json.tmp", text_of(manifest));
  io::rename(private_folder + "/manifest.json.tmp", private_folder + "/manifest.json");
  io::sync_folder(private_folder);
  check_epoch(checkpoints, manifest.epoch);
  const std::string name = step_name(manifest.step);
  publish(checkpoints, private_folder, checkpoints + "/" + name);
  replace_latest(checkpoints, name);
}

std::vector<ConstView> without_replicas(Owners& owners, Group& group, const std::vector<ConstView>& shown) {
  const std::vector<bool>& mine = owners.mine(group, shown);
  std::vector<ConstView> out;
  for (size_t i = 0; i < shown.size(); ++i) {
    if (mine[i]) out.push_back(shown[i]);
  }
  return out;
}

SaveResult save_step(const std::string& checkpoints, Writer& writer, Group& group, NearCopies* near, const SaveTask& task,
                     const WriteOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  SaveResult result = attempt(checkpoints, writer, group, near, task, options);
  // Our private folder after a failure; after a commit over an older folder of that name, the older one.
  if (group.rank() == 0 && task.shared) remove_leftovers(checkpoints);
  result.step = task.step;
  result.seconds = seconds_since(begin);
  return result;
}

}  // namespace mm::checkpoint
