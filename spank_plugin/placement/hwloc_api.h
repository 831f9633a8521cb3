// SPDX-License-Identifier: Apache-2.0
// The few functions of hwloc that we use, looked up when they are first needed: the plugin is loaded into sbatch and srun on
// hosts that need no hwloc, and slurmstepd has loaded it already. What hwloc's inline helpers do is done on its structs
// (tree.cc).
#pragma once

#include <hwloc.h>
#include <hwloc/distances.h>
#include <hwloc/shmem.h>

namespace mm::placement {

#define MM_HWLOC_FUNCTIONS(X)     \
  X(bitmap_next)                  \
  X(distances_get)                \
  X(distances_get_name)           \
  X(distances_release)            \
  X(get_api_version)              \
  X(get_obj_by_depth)             \
  X(shmem_topology_adopt)         \
  X(shmem_topology_get_length)    \
  X(shmem_topology_write)         \
  X(topology_destroy)             \
  X(topology_get_allowed_cpuset)  \
  X(topology_init)                \
  X(topology_load)                \
  X(topology_set_flags)           \
  X(topology_set_io_types_filter) \
  X(topology_set_xmlbuffer)

struct HwlocApi {
#define MM_HWLOC_POINTER(name) decltype(&::hwloc_##name) name = nullptr;
  MM_HWLOC_FUNCTIONS(MM_HWLOC_POINTER)
#undef MM_HWLOC_POINTER
};

// Throws an Error "hwloc: ..." where the library is not there, or is no 2.x.
const HwlocApi& hwloc_api();

}  // namespace mm::placement
