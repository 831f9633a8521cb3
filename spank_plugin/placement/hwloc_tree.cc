// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/hwloc_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "common/error.h"
#include "common/files.h"
#include "spank_plugin/placement/hwloc_api.h"

namespace mm::placement {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t t) const { hwloc_api().topology_destroy(t); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

// Where every reader maps the shared copy: between a program's own mappings and those of its libraries, on x86-64 and arm64
// alike.
void* const shared_address = reinterpret_cast<void*>(uintptr_t{0x3f0000000000});

CpuSet set_of(hwloc_const_bitmap_t bitmap) {
  CpuSet out;
  if (bitmap == nullptr) return out;
  for (int i = hwloc_api().bitmap_next(bitmap, -1); i >= 0 && i < CpuSet::most; i = hwloc_api().bitmap_next(bitmap, i))
    out.add(i);
  return out;
}

const char* info(hwloc_obj_t o, const char* name) {
  for (unsigned i = 0; i < o->infos_count; ++i)
    if (std::strcmp(o->infos[i].name, name) == 0) return o->infos[i].value;
  return "";
}

OsDevice os_device(hwloc_obj_t o) {
  OsDevice d;
  d.name = o->name != nullptr ? o->name : "";
  d.backend = o->subtype != nullptr ? o->subtype : "";
  switch (o->attr->osdev.type) {
    case HWLOC_OBJ_OSDEV_GPU:
      d.kind = OsDevice::Kind::gpu;
      break;
    case HWLOC_OBJ_OSDEV_COPROC:
      d.kind = OsDevice::Kind::coprocessor;
      break;
    case HWLOC_OBJ_OSDEV_NETWORK:
      d.kind = OsDevice::Kind::network;
      break;
    case HWLOC_OBJ_OSDEV_OPENFABRICS:
      d.kind = OsDevice::Kind::fabric;
      break;
    default:
      break;
  }
  // Version 1 of the XML has no subtypes, but names and an info.
  if (d.backend.empty()) {
    d.backend = info(o, "CoProcType");
    if (d.backend.empty() && (d.kind == OsDevice::Kind::gpu || d.kind == OsDevice::Kind::coprocessor))
      for (const auto& [prefix, backend] : {std::pair("cuda", "CUDA"), std::pair("nvml", "NVML"), std::pair("rsmi", "RSMI"),
                                            std::pair("opencl", "OpenCL"), std::pair("ze", "LevelZero")})
        if (d.name.rfind(prefix, 0) == 0) d.backend = backend;
  }
  const std::string_view type = info(o, "OpenCLDeviceType");
  d.is_other = !type.empty() && type != "GPU";
  if (d.kind == OsDevice::Kind::fabric) {
    // State 4 is active. A device is down where it has ports and none of them is up.
    int ports = 0, up = 0;
    for (unsigned i = 0; i < o->infos_count; ++i) {
      const std::string_view name = o->infos[i].name;
      if (name.rfind("Port", 0) == 0 && name.size() > 9 && name.substr(name.size() - 5) == "State") {
        ++ports;
        up += std::atoi(o->infos[i].value) == 4 ? 1 : 0;
      }
    }
    d.link_down = ports > 0 && up == 0;
  }
  return d;
}

// Walks the tree once.
struct Reader {
  Hardware out;
  std::vector<bool> special;  // of out.numa
  std::map<hwloc_obj_t, size_t> numa_index, device_index;
  struct Above {
    hwloc_obj_t owner = nullptr;  // nearest ancestor with CPUs
    int package = -1, cache = -1;
    std::vector<int> bridges;
    size_t device = SIZE_MAX;  // the PCI device above, in out.devices
  };
  int bridge_ids = 0;

  void children(hwloc_obj_t o, const Above& above) {
    for (hwloc_obj_t c = o->memory_first_child; c != nullptr; c = c->next_sibling) visit(c, above);
    for (hwloc_obj_t c = o->first_child; c != nullptr; c = c->next_sibling) visit(c, above);
    for (hwloc_obj_t c = o->io_first_child; c != nullptr; c = c->next_sibling) visit(c, above);
  }

  size_t new_device(hwloc_obj_t o, const Above& above) {
    Device d;
    d.bridges = above.bridges;
    d.package = above.package;
    if (above.owner != nullptr) {
      d.cpus = set_of(above.owner->cpuset);
      d.nodes = set_of(above.owner->nodeset);
      d.located = above.owner->type != HWLOC_OBJ_MACHINE;
    }
    device_index[o] = out.devices.size();
    out.devices.push_back(std::move(d));
    return out.devices.size() - 1;
  }

  void visit(hwloc_obj_t o, Above above) {
    switch (o->type) {
      case HWLOC_OBJ_BRIDGE:
        above.bridges.push_back(++bridge_ids);
        break;
      case HWLOC_OBJ_PCI_DEVICE: {
        above.device = new_device(o, above);
        Device& d = out.devices[above.device];
        const auto& pci = o->attr->pcidev;
        d.address = PciAddress{pci.domain, pci.bus, pci.dev, pci.func};
        d.pci_class = pci.class_id;
        d.vendor = pci.vendor_id;
        d.product = pci.device_id;
        d.link = static_cast<double>(pci.linkspeed);
        d.name = o->name != nullptr ? o->name : info(o, "PCIDevice");
        break;
      }
      case HWLOC_OBJ_OS_DEVICE:
        // A device below another (a disk's parts, a port's interface) belongs to the same PCI device.
        if (above.device == SIZE_MAX) above.device = new_device(o, above);
        device_index[o] = above.device;
        out.devices[above.device].os.push_back(os_device(o));
        if (out.devices[above.device].name.empty()) out.devices[above.device].name = info(o, "GPUModel");
        break;
      case HWLOC_OBJ_NUMANODE:
        numa_index[o] = out.numa.size();
        out.numa.push_back({static_cast<int>(o->os_index), set_of(o->cpuset), false});
        special.push_back(o->subtype != nullptr && std::strcmp(o->subtype, "DRAM") != 0);
        break;
      case HWLOC_OBJ_PACKAGE:
        above.package = static_cast<int>(o->logical_index);
        break;
      case HWLOC_OBJ_L2CACHE:
      case HWLOC_OBJ_L3CACHE:
      case HWLOC_OBJ_L4CACHE:
        if (above.cache < 0) above.cache = static_cast<int>(o->gp_index % (1u << 30));
        break;
      case HWLOC_OBJ_CORE:
        out.cores.push_back({set_of(o->cpuset), above.cache, above.package});
        break;
      case HWLOC_OBJ_PU:
        // Where the tree has no cores, each hardware thread counts as one.
        if (out.cores.empty() || !out.cores.back().cpus.contains(static_cast<int>(o->os_index)))
          out.cores.push_back({set_of(o->cpuset), above.cache, above.package});
        break;
      default:
        break;
    }
    const bool has_place = o->type != HWLOC_OBJ_BRIDGE && o->type != HWLOC_OBJ_PCI_DEVICE && o->type != HWLOC_OBJ_OS_DEVICE &&
                           o->type != HWLOC_OBJ_MISC && o->type != HWLOC_OBJ_NUMANODE && o->type != HWLOC_OBJ_MEMCACHE;
    if (has_place && o->cpuset != nullptr) above.owner = o;
    children(o, above);
  }

  void numa_distances(const hwloc_distances_s& d) {
    if (!out.numa_distance.empty() || d.nbobjs != out.numa.size()) return;
    std::vector<std::vector<double>> matrix(out.numa.size(), std::vector<double>(out.numa.size(), 0));
    for (unsigned i = 0; i < d.nbobjs; ++i)
      for (unsigned j = 0; j < d.nbobjs; ++j) {
        const auto a = numa_index.find(d.objs[i]), b = numa_index.find(d.objs[j]);
        if (a == numa_index.end() || b == numa_index.end()) return;
        matrix[a->second][b->second] = static_cast<double>(d.values[i * d.nbobjs + j]);
      }
    out.numa_distance = std::move(matrix);
  }

  // Bandwidths in MB/s between GPUs and NVSwitches. Two GPUs reach each other directly, or over the switches with the slower of
  // the two ways into them: the switches of a node are one fabric, though NVML tells only a GPU's own.
  void peer_bandwidths(const hwloc_distances_s& d) {
    const unsigned n = d.nbobjs;
    std::vector<const PciAddress*> gpu(n, nullptr);
    std::vector<bool> is_switch(n, false);
    for (unsigned i = 0; i < n; ++i) {
      const auto found = device_index.find(d.objs[i]);
      if (found == device_index.end()) continue;
      const Device& device = out.devices[found->second];
      is_switch[i] = d.objs[i]->type == HWLOC_OBJ_PCI_DEVICE && device.pci_class >> 8 == 0x06;
      if (!is_switch[i] && device.address) gpu[i] = &*device.address;
    }
    const auto value = [&](unsigned i, unsigned j) { return static_cast<double>(d.values[i * n + j]); };
    std::vector<double> into(n, 0);  // the switches
    for (unsigned i = 0; i < n; ++i)
      for (unsigned k = 0; k < n; ++k)
        if (gpu[i] != nullptr && is_switch[k]) into[i] += value(i, k);
    for (unsigned i = 0; i < n; ++i)
      for (unsigned j = 0; j < n; ++j) {
        if (i == j || gpu[i] == nullptr || gpu[j] == nullptr || *gpu[i] == *gpu[j]) continue;
        const double bandwidth = value(i, j) + std::min(into[i], into[j]);
        if (bandwidth > 0) out.peer_links.push_back({*gpu[i], *gpu[j], bandwidth / 1000});
      }
  }

  void distances(hwloc_topology_t t) {
    const HwlocApi& hw = hwloc_api();
    hwloc_distances_s* found[32] = {};
    unsigned count = 32;
    if (hw.distances_get(t, &count, found, 0, 0) != 0) return;
    for (unsigned k = 0; k < std::min(count, 32u); ++k) {
      const char* raw = hw.distances_get_name(t, found[k]);
      const std::string_view name = raw != nullptr ? raw : "";
      if (found[k]->nbobjs > 0 && found[k]->nbobjs <= 4096) {
        if (name == "NVLinkBandwidth" || name == "XGMIBandwidth")
          peer_bandwidths(*found[k]);
        else if ((found[k]->kind & HWLOC_DISTANCES_KIND_MEANS_LATENCY) != 0)
          numa_distances(*found[k]);
      }
      hw.distances_release(t, found[k]);
    }
  }
};

Hardware read_tree(hwloc_topology_t t, const std::string& source) {
  const HwlocApi& hw = hwloc_api();
  Reader r;
  r.out.source = source;
  hwloc_obj_t root = hw.get_obj_by_depth(t, 0, 0);
  if (root == nullptr) throw usage_error(fmt::format("{}: an empty topology", source));
  r.visit(root, {});
  find_cpuless(r.out.numa, r.special);
  r.distances(t);
  r.out.allowed = set_of(hw.topology_get_allowed_cpuset(t));
  return std::move(r.out);
}

Topology new_topology() {
  const HwlocApi& hw = hwloc_api();
  hwloc_topology_t raw = nullptr;
  if (hw.topology_init(&raw) != 0) throw system_error("hwloc: topology_init", errno);
  Topology t(raw);
  hw.topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hw.topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  return t;
}

// While this is there, hwloc loads no plugins: to adopt a tree it needs none of their libraries (OpenCL, X11, libxml2), which
// cost a task more than all the rest.
class NoPlugins {
 public:
  NoPlugins() {
    if (const char* value = std::getenv(name)) before_ = value;
    ::setenv(name, "/dev/null", 1);
  }
  ~NoPlugins() {
    if (before_)
      ::setenv(name, before_->c_str(), 1);
    else
      ::unsetenv(name);
  }
  NoPlugins(const NoPlugins&) = delete;
  NoPlugins& operator=(const NoPlugins&) = delete;

 private:
  static constexpr const char* name = "HWLOC_PLUGINS_PATH";
  std::optional<std::string> before_;
};

Topology load_this_machine(Discovery discovery) {
  // The caller's process is a helper or a task before it becomes the user's program: nobody else reads its environment now.
  if (discovery == Discovery::quick) ::setenv("HWLOC_COMPONENTS", "-cuda,-nvml,-opencl,-rsmi,-levelzero,-gl", 0);
  Topology t = new_topology();
  if (hwloc_api().topology_load(t.get()) != 0) throw system_error("hwloc: this machine", errno);
  return t;
}

}  // namespace

Hardware read_hwloc_xml(const XmlElement& root, const std::string& source) {
  const HwlocApi& hw = hwloc_api();
  const unsigned api = hw.get_api_version();
  const std::string version(root.get("version", "1.0"));
  if (std::atoi(version.c_str()) > 2)
    throw usage_error(
        fmt::format("{}: hwloc XML version {} is not supported: hwloc (API {}.{}) reads versions 1.0 to 2.x here; export it "
                    "again with --export-xml-flags v2 or with hwloc 2",
                    source, version, api >> 16, api >> 8 & 0xff));
  const std::string text = format_xml(root);
  ::setenv("HWLOC_LIBXML_IMPORT", "0", 1);  // hwloc's own reader is enough for what ours has written
  Topology t = new_topology();
  if (hw.topology_set_xmlbuffer(t.get(), text.c_str(), static_cast<int>(text.size()) + 1) != 0 ||
      hw.topology_load(t.get()) != 0)
    throw usage_error(fmt::format("{}: hwloc (API {}.{}) finds no valid topology (XML version {}) in it", source, api >> 16,
                                  api >> 8 & 0xff, version));
  return read_tree(t.get(), source);
}

Hardware read_this_machine(Discovery discovery) {
  return read_tree(load_this_machine(discovery).get(), "this machine");
}

std::string shared_path(const std::string& run_dir, const std::string& node) {
  return fmt::format("{}/topology-{}", run_dir, node);
}

void share_this_machine(const std::string& path) {
  const Topology t = load_this_machine(Discovery::full);
  const HwlocApi& hw = hwloc_api();
  const std::string temporary = path + ".new";
  ::unlink(temporary.c_str());
  UniqueFd fd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd) throw system_error(fmt::format("topology: create {}", temporary), errno);
  size_t length = 0;
  if (hw.shmem_topology_get_length(t.get(), &length, 0) != 0 || ::ftruncate(fd.get(), static_cast<off_t>(length)) != 0 ||
      hw.shmem_topology_write(t.get(), fd.get(), 0, shared_address, length, 0) != 0 ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary.c_str());
    throw system_error(fmt::format("topology: write {}", path), reason);
  }
}

std::optional<Hardware> read_shared(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat s = {};
  if (!fd || ::fstat(fd.get(), &s) != 0 || !S_ISREG(s.st_mode) || (s.st_uid != 0 && s.st_uid != ::geteuid()) ||
      (s.st_mode & (S_IWGRP | S_IWOTH)) != 0 || s.st_size == 0)
    return {};
  const NoPlugins none;
  hwloc_topology_t raw = nullptr;
  if (hwloc_api().shmem_topology_adopt(&raw, fd.get(), 0, shared_address, static_cast<size_t>(s.st_size), 0) != 0) return {};
  const Topology t(raw);
  return read_tree(t.get(), "the agent's topology");
}

}  // namespace mm::placement
