// SPDX-License-Identifier: Apache-2.0
// Slurm's <slurm/spank.h> for C++. Slurm's header declares the entry points outside extern "C", and SPANK_PLUGIN defines
// constants that C++ would give internal linkage; so the include is wrapped, and the constants are declared first. What is
// declared here is what the plugin exports.
#pragma once

#pragma GCC visibility push(default)
extern "C" {
#include <stddef.h>

extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;

#include <slurm/spank.h>
}
#pragma GCC visibility pop

namespace mm::spank {

// Step ids that are no step of a srun (slurm.h).
inline constexpr unsigned int interactive_step = 0xfffffffa, batch_step = 0xfffffffb, last_real_step = 0xfffffff0;

}  // namespace mm::spank
