// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "common/error.h"
#include "common/files.h"
#include "common/log.h"
#include "trainer/data/audio/sound.h"
#include "trainer/data/pack/find_pictures.h"
#include "trainer/data/pack/inspect.h"
#include "trainer/data/pack/ordered.h"
#include "trainer/data/text/utf8.h"
#include "trainer/data/verbs/verbs.h"

namespace mm::data {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::vector<std::string> paths;
  int threads = 0;
  bool json = false;
};

struct Totals {
  int64_t ok = 0, rejected = 0, unrelated = 0, repaired = 0;
};

void report(const Arguments& arguments, const std::string& file, const Inspection& i, Totals& totals) {
  const bool ok = i.reason.empty();
  ++(ok ? totals.ok : totals.rejected);
  if (i.unrelated) ++totals.unrelated;
  if (i.repaired_text) ++totals.repaired;
  if (!arguments.json) {
    if (!ok && i.key.empty())
      fmt::print("{}\n", printable(i.reason));  // names the shard itself
    else if (!ok)
      fmt::print("{}: {}: {}\n", printable(file), printable(i.key), printable(i.reason));
    return;
  }
  std::string line = fmt::format("{{\"file\": {}, \"key\": {}, \"status\": \"{}\"", json_string(file), json_string(i.key),
                                 ok ? "ok" : "reject");
  if (ok && i.pictures > 0)
    line += fmt::format(", \"width\": {}, \"height\": {}, \"mean_rgb\": [{:.3f}, {:.3f}, {:.3f}]", i.width, i.height,
                        i.mean_rgb[0], i.mean_rgb[1], i.mean_rgb[2]);
  else
    line += ", \"width\": null, \"height\": null, \"mean_rgb\": null";
  if (ok && i.sounds > 0)
    line += fmt::format(", \"seconds\": {:.6f}, \"rate\": {}, \"channels\": {}, \"mel_frames\": {}", i.seconds, i.rate, i.channels, i.mel_frames);
  fmt::print("{}, \"reason\": {}, \"pictures\": {}}}\n", line,
             json_string(i.unrelated ? "no part that training reads" : i.reason), i.pictures);
}

bool is_loose(const std::string& name) {
  return has_picture_name(name) || is_sound_name(name);
}

// By name, or by the magic of ustar where the name says nothing.
bool is_tar(const std::string& path) {
  if (path.ends_with(".tar")) return true;
  if (is_loose(path)) return false;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char magic[5];
  return fd && ::pread(fd.get(), magic, sizeof magic, 257) == sizeof magic && std::string_view(magic, sizeof magic) == "ustar";
}

// Folders become the tars, pictures and sounds in them.
std::vector<std::string> expand(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) throw usage_error("check: " + path + ": " + (error ? error.message() : "no such file or folder"));
    if (!fs::is_directory(status)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> found;
    for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename().string();
      if (!name.starts_with('.') && !at->is_directory() && (is_loose(name) || name.ends_with(".tar")))
        found.push_back(at->path().string());
    }
    if (error) throw usage_error("check: walk " + path + ": " + error.message());
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

void check_shard(const Arguments& arguments, const std::string& path, int threads, Totals& totals) {
  try {
    const Dataset dataset = Dataset::open_one(path);
    if (dataset.samples() == 0) {
      Inspection nothing;
      nothing.unrelated = true;
      return report(arguments, path, nothing, totals);
    }
    in_order(
        static_cast<size_t>(dataset.samples()), threads, static_cast<size_t>(threads) * 8,
        [&](size_t i) { return inspect_sample(dataset, static_cast<int64_t>(i)); },
        [&](size_t, const Inspection& inspection) { report(arguments, path, inspection, totals); });
  } catch (const Error& error) {
    if (error.status != exit_status::data) throw;  // the disk's fault, not the shard's
    Inspection whole;
    whole.reason = error.what();
    report(arguments, path, whole, totals);
  }
}

int run_check(const Arguments& arguments) {
  const std::vector<std::string> files = expand(arguments.paths);
  const int threads = arguments.threads > 0 ? arguments.threads : usable_cpus();
  Totals totals;
  for (size_t i = 0; i < files.size();) {
    if (is_tar(files[i])) {
      check_shard(arguments, files[i++], threads, totals);
      continue;
    }
    // Loose files that follow one another are decoded side by side.
    size_t end = i;
    while (end < files.size() && !is_tar(files[end])) ++end;
    in_order(
        end - i, threads, static_cast<size_t>(threads) * 8, [&](size_t k) { return inspect_file(files[i + k]); },
        [&](size_t k, const Inspection& inspection) { report(arguments, files[i + k], inspection, totals); });
    i = end;
  }
  if (totals.unrelated > 0) log::warn("{} samples or shards have no part that training reads", totals.unrelated);
  if (totals.repaired > 0) log::warn("{} texts are not valid UTF-8 (training repairs them)", totals.repaired);
  log::info("{} ok, {} rejected", totals.ok, totals.rejected);
  return totals.rejected > 0 ? exit_status::found : exit_status::ok;
}

}  // namespace

Verb add_check(CLI::App& app) {
  CLI::App* command = app.add_subcommand("check", "Decodes every sample of shards, or loose pictures and sounds, and says what is wrong");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("PATH", arguments->paths, "tar files, pictures, WAV and FLAC files, or folders of them")->required();
  command->add_option("--threads", arguments->threads, "decoding threads (0: one for each CPU)")->check(CLI::Range(0, 1024));
  command->add_flag("--json", arguments->json, "print a JSON line for each sample or file");
  return {command, [arguments] { return run_check(*arguments); }};
}

}  // namespace mm::data
