// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fmt/format.h>

#include <vector>

#include "agent/klog/scan.h"
#include "agent/probes/gpu.h"
#include "agent/probes/nvml_abi.h"
#include "common/log.h"

namespace mm::agent {

using namespace nvml;

struct Nvml::Calls {
#define MM_DECLARE(member, symbol, arguments) Return(*member) arguments = nullptr;
  MM_NVML_CALLS(MM_DECLARE)
#undef MM_DECLARE
  void* library = nullptr;
  EventSet events = nullptr;
  std::map<Device, std::string> names;  // of registered devices
  ~Calls() {
    if (library == nullptr) return;
    if (events != nullptr && event_set_free != nullptr) event_set_free(events);
    if (shutdown != nullptr) shutdown();
    ::dlclose(library);
  }
};

Nvml::Nvml() : calls_(std::make_unique<Calls>()) {}
Nvml::~Nvml() = default;

std::shared_ptr<Nvml> Nvml::load(const std::string& name) {
  void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  std::shared_ptr<Nvml> out(new Nvml);
  Calls& c = *out->calls_;
#define MM_LOAD(member, symbol, arguments) c.member = reinterpret_cast<Return(*) arguments>(::dlsym(library, symbol));
  MM_NVML_CALLS(MM_LOAD)
#undef MM_LOAD
  c.library = library;
  if (c.init == nullptr || c.count == nullptr || c.handle == nullptr || c.pci_info == nullptr) {
    log::warn("{}: is not NVIDIA's management library", name);
    return nullptr;
  }
  if (const Return r = c.init(); r != success) {
    log::info("{}: nvmlInit: error {}", name, r);
    c.shutdown = nullptr;
    return nullptr;
  }
  return out;
}

namespace {

// Calls where the library has the function; remembers that a GPU is lost or wants a reset.
template <typename Function, typename... Arguments>
bool ask(GpuState& state, Function* function, Arguments... arguments) {
  if (function == nullptr || state.lost) return false;
  const Return r = function(arguments...);
  if (r == gpu_is_lost) state.lost = true;
  if (r == reset_required) state.needs_reset = true;
  return r == success;
}

}  // namespace

GpuStates Nvml::read(const std::function<void(const std::string&)>& doing) {
  const Calls& c = *calls_;
  GpuStates out;
  unsigned count = 0;
  doing("nvmlDeviceGetCount");
  if (c.count(&count) != success) return out;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    PciInfo pci = {};
    doing(fmt::format("GPU {}: handle", i));
    if (c.handle(i, &device) != success || c.pci_info(device, &pci) != success) continue;
    pci.bus_id[sizeof pci.bus_id - 1] = '\0';
    const std::string name = pci_address(pci.bus_id);
    if (name.empty()) continue;
    GpuState& g = out[name];
    const auto step = [&](const char* what) { doing(fmt::format("GPU {}: {}", name, what)); };
    unsigned long long n = 0;
    step("ECC");
    if (ask(g, c.ecc, device, 0, 0, &n)) g.corrected = n;
    if (ask(g, c.ecc, device, 1, 0, &n)) g.uncorrected = n;
    if (ask(g, c.ecc, device, 0, 1, &n)) g.corrected_ever = n;
    if (ask(g, c.ecc, device, 1, 1, &n)) g.uncorrected_ever = n;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    step("rows");
    if (ask(g, c.remapped_rows, device, &corrected, &uncorrected, &pending, &failed)) g.remap_pending = pending != 0, g.remap_failed = failed != 0;
    int pages = 0;
    if (ask(g, c.retired_pending, device, &pages)) g.pages_pending = pages != 0;
    step("NVLink");
    for (unsigned link = 0; link < max_links; ++link) {
      int active = 0;
      if (!ask(g, c.link_state, device, link, &active)) break;
      g.links[link] = active != 0;
      if (active == 0) continue;
      uint64_t errors = 0;
      for (int counter = 0; counter < 4; ++counter)
        if (ask(g, c.link_errors, device, link, counter, &n)) errors += n;
      g.link_errors[link] = errors;
    }
    step("PCIe");
    unsigned value = 0;
    if (ask(g, c.pcie_width, device, &value)) g.pcie_width = value;
    if (ask(g, c.pcie_max_width, device, &value)) g.pcie_max_width = value;
    if (ask(g, c.pcie_generation, device, &value)) g.pcie_generation = value;
    if (ask(g, c.pcie_max_generation, device, &value)) g.pcie_max_generation = value;
    if (ask(g, c.pcie_replays, device, &value)) g.pcie_replays = value;
    step("clocks");
    if (ask(g, c.throttle, device, &n)) g.throttle = n;
    if (ask(g, c.temperature, device, 0, &value)) g.temperature = value;
    if (ask(g, c.temperature_threshold, device, 1, &value)) g.slowdown_temperature = value;
    if (ask(g, c.power, device, &value)) g.watts = value / 1000.0;
    if (ask(g, c.clock, device, 1, &value)) g.sm_clock = value;
    step("processes");
    std::vector<ProcessInfo> processes(256);
    unsigned room = static_cast<unsigned>(processes.size());
    if (ask(g, c.processes, device, &room, processes.data())) g.processes = room;
    step("recovery action");
    FieldValue field = {};
    field.field_id = recovery_action_field;
    if (ask(g, c.fields, device, 1, &field) && field.result == success) g.recovery_action = field.value.u;
  }
  doing("");
  return out;
}

std::optional<Nvml::XidEvent> Nvml::wait_for_xid(unsigned timeout_ms) {
  Calls& c = *calls_;
  if (c.event_set_create == nullptr || c.event_register == nullptr || c.event_wait == nullptr) return std::nullopt;
  if (c.events == nullptr) {
    unsigned count = 0;
    if (c.event_set_create(&c.events) != success || c.count(&count) != success) return std::nullopt;
    for (unsigned i = 0; i < count; ++i) {
      Device device = nullptr;
      PciInfo pci = {};
      if (c.handle(i, &device) != success || c.pci_info(device, &pci) != success || c.event_register(device, event_xid, c.events) != success) continue;
      pci.bus_id[sizeof pci.bus_id - 1] = '\0';
      c.names[device] = pci_address(pci.bus_id);
    }
  }
  EventData data = {};
  if (c.event_wait(c.events, &data, timeout_ms) != success || data.type != event_xid) return std::nullopt;
  return XidEvent{c.names[data.device], static_cast<int>(data.data)};
}

}  // namespace mm::agent
