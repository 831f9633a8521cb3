// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/client.h"

#include <errno.h>  // program_invocation_short_name

#include <cstdio>
#include <cstdlib>

#include "common/files.h"
#include "spank_plugin/environment.h"

namespace mm::spank {

Client this_client() {
  const std::string_view name = ::program_invocation_short_name;
  return name == "srun" ? Client::srun : name == "salloc" ? Client::salloc : Client::sbatch;
}

Stated own_arguments() {
  std::vector<std::string> words = split_command_line(read_file("/proc/self/cmdline"));
  if (!words.empty()) words.erase(words.begin());
  return parse_arguments(this_client(), words);
}

std::optional<std::string> own_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

void say(const std::string& message) {
  std::fprintf(stderr, "mm-train: %s\n", message.c_str());
}

void refuse(const std::string& message) {
  say(message);
  std::exit(1);
}

void forget_exported() {
  const std::optional<std::string> list = own_variable(exported_variable);
  if (!list) return;
  for (const std::string& name : still_ours(*list, [](const std::string& n) { return own_variable(n.c_str()); }))
    ::unsetenv(name.c_str());
  ::unsetenv(exported_variable);
}

void TemporaryVariable::set(const std::string& value, bool overwrite) {
  const std::optional<std::string> now = own_variable(name_);
  if (!ours_ && now && !overwrite) return;
  if (!ours_) before_ = now;
  ours_ = true;
  ::setenv(name_, value.c_str(), 1);
}

void TemporaryVariable::undo() {
  if (!ours_) return;
  ours_ = false;
  if (before_)
    ::setenv(name_, before_->c_str(), 1);
  else
    ::unsetenv(name_);
}

}  // namespace mm::spank
