// SPDX-License-Identifier: Apache-2.0
// What sbatch, salloc and srun have in common: who they are, their words, their environment, and how they speak to the user.
#pragma once

#include <optional>
#include <string>

#include "spank_plugin/command_line.h"

namespace mm::spank {

Client this_client();
// Of this process, from /proc/self/cmdline.
Stated own_arguments();
std::optional<std::string> own_variable(const char* name);

void say(const std::string& message);                  // "mm-train: message" on stderr
[[noreturn]] void refuse(const std::string& message);  // the same, and exit status 1

// Takes out of our environment what an enclosing job or step of mm-train exported and nobody changed since.
void forget_exported();

// Sets a variable of this process, unless somebody has set it; undone on request.
class TemporaryVariable {
 public:
  explicit TemporaryVariable(const char* name) : name_(name) {}
  void set(const std::string& value, bool overwrite = false);
  void undo();

 private:
  const char* name_;
  bool ours_ = false;
  std::optional<std::string> before_;
};

}  // namespace mm::spank
