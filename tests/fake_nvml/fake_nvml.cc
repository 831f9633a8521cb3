// SPDX-License-Identifier: Apache-2.0
// A libnvidia-ml.so.1 whose devices are those of a file, which is read anew for every call: FAKE_NVML names it (%n is the host's name). A line is a device, in the order
// of their indices, and its values:
//
//   0000:1b:00.0 corrected=3 uncorrected=0 width=16 max_width=16 temperature=40 ...
//
// `lost`, `reset` give the library's errors; `hang=CALL` makes that call never return; links=1101 are the states of NVLinks; xid=79 is
// told once to a waiter for events, whenever it appears or changes.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "agent/probes/nvml_abi.h"

using namespace mm::agent::nvml;

namespace {

struct FakeDevice {
  std::string bus;
  std::map<std::string, std::string> values;
};

std::vector<FakeDevice> devices() {
  std::vector<FakeDevice> out;
  const char* variable = std::getenv("FAKE_NVML");
  std::string path = variable == nullptr ? "/nonexistent" : variable;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  if (const size_t at = path.find("%n"); at != std::string::npos) path.replace(at, 2, host);
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    FakeDevice d;
    if (!(words >> d.bus) || d.bus[0] == '#') continue;
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      d.values[word.substr(0, equals)] = equals == std::string::npos ? "1" : word.substr(equals + 1);
    }
    out.push_back(std::move(d));
  }
  return out;
}

// A handle stands for an address, so that it outlives a change of the file. The library may be called from several threads.
std::mutex lock;
std::map<Device, std::string> handles;

std::string bus_of(Device handle) {
  const std::lock_guard guard(lock);
  return handles[handle];
}

Device handle_of(const std::string& wanted) {
  const std::lock_guard guard(lock);
  for (const auto& [handle, bus] : handles)
    if (bus == wanted) return handle;
  const auto made = reinterpret_cast<Device>(0x1000 + 16 * handles.size());
  handles[made] = wanted;
  return made;
}

struct Found {
  Return result = success;
  FakeDevice device;
};

Found find(Device handle, const char* call) {
  Found out;
  const std::string bus = bus_of(handle);
  for (FakeDevice& d : devices())
    if (d.bus == bus) {
      if (d.values.contains("hang") && d.values["hang"] == call)
        for (;;) ::pause();
      if (d.values.contains("lost")) out.result = gpu_is_lost;
      else if (d.values.contains("reset")) out.result = reset_required;
      out.device = std::move(d);
      return out;
    }
  out.result = gpu_is_lost;
  return out;
}

template <typename T>
Return give(Device handle, const char* call, const char* key, T* out) {
  Found f = find(handle, call);
  if (f.result != success) return f.result;
  const auto at = f.device.values.find(key);
  if (at == f.device.values.end()) return not_supported;
  *out = static_cast<T>(std::strtoull(at->second.c_str(), nullptr, 10));
  return success;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT Return nvmlInit_v2() { return std::getenv("FAKE_NVML") == nullptr ? driver_not_loaded : success; }
EXPORT Return nvmlShutdown() { return success; }
EXPORT Return nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(devices().size());
  return success;
}
EXPORT Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  const auto all = devices();
  if (index >= all.size()) return not_found;
  *device = handle_of(all[index].bus);
  return success;
}
EXPORT Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo* info) {
  std::snprintf(info->bus_id, sizeof info->bus_id, "0000%s", bus_of(device).c_str());  // the library writes eight digits of domain
  return success;
}
EXPORT Return nvmlDeviceGetTotalEccErrors(Device d, int type, int counter, unsigned long long* n) {
  const char* keys[2][2] = {{"corrected", "corrected_ever"}, {"uncorrected", "uncorrected_ever"}};
  return give(d, "ecc", keys[type & 1][counter & 1], n);
}
EXPORT Return nvmlDeviceGetRemappedRows(Device d, unsigned* corrected, unsigned* uncorrected, unsigned* pending, unsigned* failed) {
  const Found f = find(d, "rows");
  if (f.result != success) return f.result;
  *corrected = *uncorrected = 0;
  *pending = f.device.values.contains("remap_pending");
  *failed = f.device.values.contains("remap_failed");
  return success;
}
EXPORT Return nvmlDeviceGetRetiredPagesPendingStatus(Device d, int* pending) { return give(d, "pages", "pages_pending", pending); }
EXPORT Return nvmlDeviceGetNvLinkState(Device d, unsigned link, int* active) {
  const Found f = find(d, "link");
  if (f.result != success) return f.result;
  const auto at = f.device.values.find("links");
  if (at == f.device.values.end() || link >= at->second.size()) return not_supported;
  *active = at->second[link] == '1';
  return success;
}
EXPORT Return nvmlDeviceGetNvLinkErrorCounter(Device d, unsigned, int, unsigned long long* n) { return give(d, "link", "link_errors", n); }
EXPORT Return nvmlDeviceGetCurrPcieLinkWidth(Device d, unsigned* v) { return give(d, "pcie", "width", v); }
EXPORT Return nvmlDeviceGetMaxPcieLinkWidth(Device d, unsigned* v) { return give(d, "pcie", "max_width", v); }
EXPORT Return nvmlDeviceGetCurrPcieLinkGeneration(Device d, unsigned* v) { return give(d, "pcie", "generation", v); }
EXPORT Return nvmlDeviceGetMaxPcieLinkGeneration(Device d, unsigned* v) { return give(d, "pcie", "max_generation", v); }
EXPORT Return nvmlDeviceGetPcieReplayCounter(Device d, unsigned* v) { return give(d, "pcie", "replays", v); }
EXPORT Return nvmlDeviceGetCurrentClocksThrottleReasons(Device d, unsigned long long* v) { return give(d, "clocks", "throttle", v); }
EXPORT Return nvmlDeviceGetTemperature(Device d, int, unsigned* v) { return give(d, "clocks", "temperature", v); }
EXPORT Return nvmlDeviceGetTemperatureThreshold(Device d, int, unsigned* v) { return give(d, "clocks", "slowdown", v); }
EXPORT Return nvmlDeviceGetPowerUsage(Device d, unsigned* v) { return give(d, "clocks", "milliwatts", v); }
EXPORT Return nvmlDeviceGetClockInfo(Device d, int, unsigned* v) { return give(d, "clocks", "clock", v); }
EXPORT Return nvmlDeviceGetComputeRunningProcesses_v3(Device d, unsigned* count, ProcessInfo*) { return give(d, "processes", "processes", count); }
EXPORT Return nvmlDeviceGetFieldValues(Device d, int count, FieldValue* values) {
  for (int i = 0; i < count; ++i)
    values[i].result = values[i].field_id == recovery_action_field ? give(d, "fields", "recovery_action", &values[i].value.u) : not_supported;
  return find(d, "fields").result;
}
EXPORT Return nvmlEventSetCreate(EventSet* set) {
  *set = reinterpret_cast<EventSet>(0x10);
  return success;
}
EXPORT Return nvmlDeviceRegisterEvents(Device, unsigned long long, EventSet) { return success; }
EXPORT Return nvmlEventSetWait_v2(EventSet, EventData* data, unsigned timeout_ms) {
  static std::map<std::string, std::string> told;
  for (unsigned waited = 0; waited < timeout_ms; waited += 20) {
    for (const FakeDevice& d : devices()) {
      const auto xid = d.values.find("xid");
      if (xid == d.values.end() || told[d.bus] == xid->second) continue;
      told[d.bus] = xid->second;
      *data = {handle_of(d.bus), event_xid, std::strtoull(xid->second.c_str(), nullptr, 10), 0, 0};
      return success;
    }
    ::usleep(20000);  // the library's own wait, which has no descriptor either
  }
  return timeout;
}
EXPORT Return nvmlEventSetFree(EventSet) { return success; }
