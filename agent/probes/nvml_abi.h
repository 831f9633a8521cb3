// SPDX-License-Identifier: Apache-2.0
// The part of NVIDIA's management library that the agent calls, declared here so that neither its header nor the library is needed to build.
// Names, numbers and layouts are those of NVML's documented interface; they are kept for ever by the library's versioned symbols.
#pragma once

namespace mm::agent::nvml {

using Device = struct DeviceHandle*;
using EventSet = struct EventSetHandle*;
using Return = int;

inline constexpr Return success = 0, not_supported = 3, not_found = 6, driver_not_loaded = 9, timeout = 10, gpu_is_lost = 15, reset_required = 16;
inline constexpr unsigned max_links = 18, recovery_action_field = 230;
inline constexpr unsigned long long event_xid = 0x8;
inline constexpr unsigned long long throttle_hw_slowdown = 0x8, throttle_hw_thermal = 0x40, throttle_hw_power_brake = 0x80;

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};

struct FieldValue {
  unsigned field_id, scope_id;
  long long timestamp, latency_us;
  int value_type;
  Return result;
  union {
    double d;
    unsigned u;
    unsigned long long ull;
    long long ll;
  } value;
};

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};

struct EventData {
  Device device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};

// Every function that is called: NVML_CALL(member, symbol, arguments).
#define MM_NVML_CALLS(NVML_CALL)                                                                                          \
  NVML_CALL(init, "nvmlInit_v2", ())                                                                                      \
  NVML_CALL(shutdown, "nvmlShutdown", ())                                                                                 \
  NVML_CALL(count, "nvmlDeviceGetCount_v2", (unsigned*))                                                                  \
  NVML_CALL(handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned, Device*))                                                 \
  NVML_CALL(pci_info, "nvmlDeviceGetPciInfo_v3", (Device, PciInfo*))                                                      \
  NVML_CALL(ecc, "nvmlDeviceGetTotalEccErrors", (Device, int type, int counter, unsigned long long*))                     \
  NVML_CALL(remapped_rows, "nvmlDeviceGetRemappedRows", (Device, unsigned*, unsigned*, unsigned*, unsigned*))             \
  NVML_CALL(retired_pending, "nvmlDeviceGetRetiredPagesPendingStatus", (Device, int*))                                    \
  NVML_CALL(link_state, "nvmlDeviceGetNvLinkState", (Device, unsigned, int*))                                             \
  NVML_CALL(link_errors, "nvmlDeviceGetNvLinkErrorCounter", (Device, unsigned, int, unsigned long long*))                 \
  NVML_CALL(pcie_width, "nvmlDeviceGetCurrPcieLinkWidth", (Device, unsigned*))                                            \
  NVML_CALL(pcie_max_width, "nvmlDeviceGetMaxPcieLinkWidth", (Device, unsigned*))                                         \
  NVML_CALL(pcie_generation, "nvmlDeviceGetCurrPcieLinkGeneration", (Device, unsigned*))                                  \
  NVML_CALL(pcie_max_generation, "nvmlDeviceGetMaxPcieLinkGeneration", (Device, unsigned*))                               \
  NVML_CALL(pcie_replays, "nvmlDeviceGetPcieReplayCounter", (Device, unsigned*))                                          \
  NVML_CALL(throttle, "nvmlDeviceGetCurrentClocksThrottleReasons", (Device, unsigned long long*))                         \
  NVML_CALL(temperature, "nvmlDeviceGetTemperature", (Device, int sensor, unsigned*))                                     \
  NVML_CALL(temperature_threshold, "nvmlDeviceGetTemperatureThreshold", (Device, int type, unsigned*))                    \
  NVML_CALL(power, "nvmlDeviceGetPowerUsage", (Device, unsigned* milliwatts))                                             \
  NVML_CALL(clock, "nvmlDeviceGetClockInfo", (Device, int type, unsigned* mhz))                                           \
  NVML_CALL(processes, "nvmlDeviceGetComputeRunningProcesses_v3", (Device, unsigned* count, ProcessInfo*))                \
  NVML_CALL(fields, "nvmlDeviceGetFieldValues", (Device, int count, FieldValue*))                                         \
  NVML_CALL(event_set_create, "nvmlEventSetCreate", (EventSet*))                                                          \
  NVML_CALL(event_register, "nvmlDeviceRegisterEvents", (Device, unsigned long long types, EventSet))                     \
  NVML_CALL(event_wait, "nvmlEventSetWait_v2", (EventSet, EventData*, unsigned timeout_ms))                               \
  NVML_CALL(event_set_free, "nvmlEventSetFree", (EventSet))

}  // namespace mm::agent::nvml
