// SPDX-License-Identifier: Apache-2.0
// The options of sbatch, salloc and srun (Slurm 22.05 to 25.11): enough to tell an option's argument from the script or the
// program.
#pragma once

#include <string_view>

namespace mm::spank {

enum class Client { sbatch, salloc, srun };
enum class Argument { none, required, optional };

struct Option {
  std::string_view name;  // without dashes
  char letter;            // 0: none
  Argument argument;
  std::string_view commands;  // letters of the commands that have it: b sbatch, a salloc, s srun
};

// By full name or an unambiguous beginning, as getopt_long takes it; nullptr where it is not known or ambiguous.
const Option* find_option(Client client, std::string_view name);
const Option* find_option(Client client, char letter);

}  // namespace mm::spank
