// SPDX-License-Identifier: Apache-2.0
// sbatch and salloc: refuse what is wrong before a job exists, and leave the record for srun and slurmstepd.
//
// A job of mm-train outlives the loss of a node, so --no-kill is implied, through SBATCH_NO_KILL: sbatch reads it after the
// #SBATCH lines and before the command line. It has to be set before, in slurm_spank_init for an option on the command line and
// in the callback for one on a #SBATCH line, and it is gone before the environment is sent along.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "common/error.h"
#include "common/files.h"
#include "spank_plugin/checks.h"
#include "spank_plugin/client.h"
#include "spank_plugin/contexts.h"
#include "spank_plugin/environment.h"

namespace mm::spank {
namespace {

struct Submission {
  Stated arguments, script;
  TemporaryVariable no_kill{this_client() == Client::salloc ? "SALLOC_NO_KILL" : "SBATCH_NO_KILL"};
};
Submission& submission() {
  static Submission instance;
  return instance;
}

// The batch script's text as sbatch finds it: the working directory first, then PATH. Nothing for one that comes on stdin.
std::string script_text(const std::vector<std::string>& command) {
  if (command.empty() || command.front().empty()) return {};
  const std::string& name = command.front();
  std::vector<std::string> candidates = {name};
  if (name.find('/') == std::string::npos) {
    const std::string path = own_variable("PATH").value_or("");
    for (size_t begin = 0; begin <= path.size();) {
      const size_t end = std::min(path.find(':', begin), path.size());
      if (end > begin) candidates.push_back(path.substr(begin, end - begin) + "/" + name);
      begin = end + 1;
    }
  }
  for (const std::string& file : candidates)
    if (::access(file.c_str(), R_OK) == 0) {
      try {
        return read_file(file);
      } catch (const Error&) {
        return {};  // a folder, say: sbatch has the message for it
      }
    }
  return {};
}

void imply_no_kill(const std::string& value) {
  Submission& s = submission();
  if (value == "off" || value.empty() || s.arguments.no_kill || s.script.no_kill)
    s.no_kill.undo();
  else
    s.no_kill.set("set");
}

}  // namespace

void submit_init() {
  Submission& s = submission();
  // A job that is submitted from a job asks for itself.
  ::unsetenv(inherited_option_variable);
  s.arguments = own_arguments();
  if (this_client() == Client::sbatch && !s.arguments.wrapped) s.script = parse_script(script_text(s.arguments.command));
  if (!s.arguments.mm_train) return;
  // Now, not in init_post_opt: `sbatch --mm-train script.sh` would first wait for a script on stdin.
  try {
    read_request(*s.arguments.mm_train);
  } catch (const Error& e) {
    refuse(e.what());
  }
  imply_no_kill(*s.arguments.mm_train);
}

void submit_option() {
  // The command line overrides #SBATCH lines.
  imply_no_kill(submission().arguments.mm_train.value_or(plugin().value.value_or("")));
}

void submit_check() {
  Submission& s = submission();
  s.no_kill.undo();
  forget_exported();
  try {
    std::optional<Request> request;
    if (plugin().value) request = read_request(*plugin().value);
    if (!request) {
      ::unsetenv(record_variable);
      return;
    }
    Stated stated = merge(s.script, parse_environment(this_client(), own_variable));
    request->record.tasks = check_submission(request->job, merge(stated, s.arguments));
    ::setenv(record_variable, format_record(request->record).c_str(), 1);
    if (this_client() != Client::salloc) return;
    // What a batch step would get, for the shell that salloc starts here.
    const std::map<std::string, std::string> values = {{"MM_TRAIN_SPEC", request->record.spec},
                                                       {"MM_TRAIN_SPARES", fmt::format("{}", request->record.spares)}};
    for (const auto& [name, value] : values) ::setenv(name.c_str(), value.c_str(), 0);
    ::setenv(exported_variable, list_exported(values).c_str(), 1);
  } catch (const Error& e) {
    refuse(e.what());
  }
}

}  // namespace mm::spank
