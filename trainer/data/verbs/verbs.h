// SPDX-License-Identifier: Apache-2.0
// The verbs of mm-data. Each adds its subcommand and returns what runs it; the result is the exit status.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace mm::data {

struct Verb {
  CLI::App* command;
  std::function<int()> run;
};
Verb add_pack(CLI::App& app);
Verb add_index(CLI::App& app);
Verb add_check(CLI::App& app);
Verb add_cat(CLI::App& app);
Verb add_stats(CLI::App& app);
// Of stats, for a run's folder.
int print_run_stats(const std::string& run, bool json);
Verb add_stage(CLI::App& app);
Verb add_scrub(CLI::App& app);
Verb add_recompress(CLI::App& app);

}  // namespace mm::data
