// SPDX-License-Identifier: Apache-2.0
// --mm-train=SPEC. Registered by call, because sbatch and salloc do not see a static option table.
#include <cstdio>
#include <exception>

#include "spank_plugin/client.h"
#include "spank_plugin/contexts.h"

namespace mm::spank {
namespace {

// Slurm calls it once for each place that states the option (inherited from the job, #SBATCH lines, the command line), some of
// them twice: the last call counts. A bad value is refused later, in init_post_opt: from here a failure reads "Invalid
// --mm-train argument".
int option_called(int, const char* argument, int remote) noexcept {
  try {
    if (remote != 0) {
      if (spank_context() == S_CTX_REMOTE) step_prepare();
      return 0;  // slurmstepd goes by the record in the environment
    }
    plugin().value = argument == nullptr ? "" : argument;
    if (spank_context() == S_CTX_ALLOCATOR) submit_option();
    if (spank_context() == S_CTX_LOCAL) srun_option();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "mm-train: %s\n", e.what());
    return -1;
  } catch (...) {
    return -1;
  }
  return 0;
}

char name[] = "mm-train", argument[] = "SPEC",
     usage[] =
         "train with mm-train: SPEC is a job file, key=value,... such as tp=8,spares=1, auto, or off; with ,verbose it says "
         "what it does";
spank_option option = {name, argument, usage, 1, 0, option_called};

}  // namespace

Plugin& plugin() {
  static Plugin instance;
  return instance;
}

void register_option(spank_t spank) {
  if (spank_option_register(spank, &option) != ESPANK_SUCCESS) slurm_error("mm-train: option --mm-train cannot be registered");
}

}  // namespace mm::spank
