// SPDX-License-Identifier: Apache-2.0
// The entry points that Slurm calls: each is a switch on the context inside a catch-all. An exception that left a plugin would
// abort sbatch or leave a job hanging; a failure in slurmstepd or slurmd could drain the node. So clients refuse with a message
// and status 1, and everything that runs on a node says what is wrong and succeeds. In slurmd and in prolog and epilog the
// plugin does nothing.
#include <exception>
#include <string>
#include <string_view>

#include "common/site.h"
#include "spank_plugin/client.h"
#include "spank_plugin/contexts.h"

extern "C" {
SPANK_PLUGIN(mm_train, 1)
}

namespace {

template <typename Body>
int guarded(Body body) noexcept {
  std::string problem;
  try {
    body();
    return ESPANK_SUCCESS;
  } catch (const std::exception& e) {
    problem = e.what();
  } catch (...) {
    problem = "unknown failure";
  }
  switch (spank_context()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
      mm::spank::say(problem);
      return -1;
    default:
      slurm_info("mm-train: %s", problem.c_str());
      return ESPANK_SUCCESS;
  }
}

void read_settings(int count, char** words) {
  constexpr std::string_view config = "config=";
  mm::spank::plugin().config = mm::Site::default_path;
  for (int i = 0; i < count; ++i) {
    const std::string_view word = words[i];
    if (word.substr(0, config.size()) == config)
      mm::spank::plugin().config = word.substr(config.size());
    else
      slurm_info("mm-train: plugstack.conf: unknown setting '%s' (known: config=FILE)", words[i]);
  }
}

}  // namespace

extern "C" {

int slurm_spank_init(spank_t spank, int count, char** words) {
  return guarded([&] {
    if (spank_context() == S_CTX_SLURMD) return;
    read_settings(count, words);
    mm::spank::register_option(spank);
    if (spank_context() == S_CTX_ALLOCATOR) mm::spank::submit_init();
    if (spank_context() == S_CTX_LOCAL) mm::spank::srun_init();
  });
}

int slurm_spank_init_post_opt(spank_t, int, char**) {
  return guarded([&] {
    if (spank_context() == S_CTX_ALLOCATOR) mm::spank::submit_check();
    if (spank_context() == S_CTX_LOCAL) mm::spank::srun_check();
  });
}

int slurm_spank_local_user_init(spank_t spank, int, char**) {
  return guarded([&] { mm::spank::srun_step_check(spank); });
}

int slurm_spank_task_init(spank_t spank, int, char**) {
  return guarded([&] { mm::spank::step_task_environment(spank); });
}

int slurm_spank_task_post_fork(spank_t spank, int, char**) {
  return guarded([&] { mm::spank::step_task_started(spank); });
}

int slurm_spank_task_exit(spank_t spank, int, char**) {
  return guarded([&] { mm::spank::step_task_ended(spank); });
}

}  // extern "C"
