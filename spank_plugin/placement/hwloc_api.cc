// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/hwloc_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "common/error.h"

namespace mm::placement {
namespace {

HwlocApi load() {
  constexpr const char* library = "libhwloc.so.15";  // the name of every 2.x
  void* handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    throw Error(exit_status::internal, fmt::format("hwloc: {}", reason != nullptr ? reason : library));
  }
  HwlocApi api;
#define MM_HWLOC_LOOK_UP(name)                                                      \
  api.name = reinterpret_cast<decltype(api.name)>(::dlsym(handle, "hwloc_" #name)); \
  if (api.name == nullptr) throw Error(exit_status::internal, fmt::format("hwloc: {} has no hwloc_{}", library, #name));
  MM_HWLOC_FUNCTIONS(MM_HWLOC_LOOK_UP)
#undef MM_HWLOC_LOOK_UP
  if (api.get_api_version() >> 16 != HWLOC_API_VERSION >> 16)
    throw Error(exit_status::internal,
                fmt::format("hwloc: {} has API version {:#x}, not {:#x}", library, api.get_api_version(), HWLOC_API_VERSION));
  return api;
}

}  // namespace

const HwlocApi& hwloc_api() {
  static const HwlocApi api = load();
  return api;
}

}  // namespace mm::placement
