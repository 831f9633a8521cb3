// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/node_map.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <set>
#include <tuple>

namespace mm::placement {
namespace {

constexpr uint16_t nvidia = 0x10de, amd = 0x1002, intel = 0x8086;

bool is_compute(const OsDevice& d) {
  if (d.is_other) return false;
  for (const char* backend : {"CUDA", "NVML", "RSMI", "LevelZero", "OpenCL"})
    if (d.backend == backend) return true;
  return false;
}

bool named(const Device& d) {
  return std::any_of(d.os.begin(), d.os.end(), is_compute);
}

// Graphics of baseboard controllers and virtual machines: ASPEED, Matrox, XGI, Silicon Motion, Cirrus, Bochs, virtio, Red Hat,
// VMware, Hyper-V, Nuvoton, HiSilicon, HPE iLO; ATI's ES1000, Rage and Radeon 7000.
bool is_console(const Device& d) {
  if (d.pci_class == 0x1200) return false;
  if (d.vendor == amd)
    for (const uint16_t product : {0x515e, 0x515f, 0x5969, 0x5159, 0x4750, 0x4752})
      if (d.product == product) return true;
  for (const uint16_t v :
       {0x1a03, 0x102b, 0x18ca, 0x126f, 0x1013, 0x1234, 0x1af4, 0x1b36, 0x15ad, 0x1414, 0x1050, 0x19e5, 0x103c})
    if (d.vendor == v) return true;
  return false;
}

// A virtual function: another function of the bus than 0, where 0 is the same maker's.
bool is_virtual(const Hardware& h, const Device& d) {
  if (d.address->function == 0) return false;
  return std::any_of(h.devices.begin(), h.devices.end(), [&](const Device& o) {
    return o.address && o.address->domain == d.address->domain && o.address->bus == d.address->bus &&
           o.address->function == 0 && o.vendor == d.vendor && o.pci_class == d.pci_class;
  });
}

// Class 1200 holds FPGAs as well: accelerators of makers of GPUs, Habana's and Huawei's; Intel's on the root bus are for
// laptops.
bool is_accelerator(const Device& d) {
  return d.pci_class == 0x1200 && (d.vendor == nvidia || d.vendor == amd || d.vendor == 0x1da3 || d.vendor == 0x19e5 ||
                                   (d.vendor == intel && d.address && d.address->bus != 0));
}

// A processor's own graphics: Intel's are device 2 of the root bus.
bool is_integrated(const Device& d) {
  return d.vendor == intel && d.address && d.address->bus == 0 && d.address->device == 2;
}

std::vector<const Device*> find_gpus(const Hardware& h) {
  std::vector<const Device*> out;
  std::set<uint16_t> vendors_named;
  for (const Device& d : h.devices)
    if (d.address && named(d)) vendors_named.insert(d.vendor);
  for (const Device& d : h.devices) {
    if (!d.address) continue;
    const bool vga = d.pci_class == 0x0300 && (d.vendor == nvidia || d.vendor == amd || d.vendor == intel) &&
                     vendors_named.count(d.vendor) == 0;
    const bool display = d.pci_class == 0x0302 || d.pci_class == 0x0380;
    if (named(d) || (!is_console(d) && !is_virtual(h, d) && (vga || display || is_accelerator(d)))) out.push_back(&d);
  }
  if (std::any_of(out.begin(), out.end(), [](const Device* d) { return !is_integrated(*d); }))
    std::erase_if(out, [](const Device* d) { return is_integrated(*d); });
  std::sort(out.begin(), out.end(), [](const Device* a, const Device* b) { return *a->address < *b->address; });
  out.erase(std::unique(out.begin(), out.end(), [](const Device* a, const Device* b) { return a->address == b->address; }),
            out.end());
  if (!out.empty()) return out;
  std::map<std::string, std::vector<const Device*>> by_backend;
  for (const Device& d : h.devices)
    for (const OsDevice& os : d.os)
      if (!d.address && is_compute(os)) by_backend[os.backend].push_back(&d);
  for (const auto& [backend, devices] : by_backend)
    if (devices.size() > out.size()) out = devices;
  return out;
}

// Letters, then a number, as "hsn0" or "ib12".
bool is_called(const std::string& name, std::string_view letters) {
  return name.size() > letters.size() && name.compare(0, letters.size(), letters) == 0 &&
         std::isdigit(static_cast<unsigned char>(name[letters.size()])) != 0;
}

bool is_fabric(const Device& d, const OsDevice& os) {
  if (os.kind == OsDevice::Kind::fabric) return true;
  if (os.kind != OsDevice::Kind::network) return false;
  for (const char* letters : {"hsn", "hsi", "cxi", "ib", "opa", "rdmap"})
    if (is_called(os.name, letters)) return true;
  return d.pci_class == 0x0207 || d.pci_class == 0x0208;
}

// "mlx5_2" before "mlx5_10".
bool natural_less(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (std::isdigit(static_cast<unsigned char>(a[i])) != 0 && std::isdigit(static_cast<unsigned char>(b[j])) != 0) {
      size_t x = i, y = j;
      while (x < a.size() && std::isdigit(static_cast<unsigned char>(a[x])) != 0) ++x;
      while (y < b.size() && std::isdigit(static_cast<unsigned char>(b[y])) != 0) ++y;
      while (i < x && a[i] == '0') ++i;
      while (j < y && b[j] == '0') ++j;
      if (x - i != y - j) return x - i < y - j;
      if (const int c = a.compare(i, x - i, b, j, y - j); c != 0) return c < 0;
      i = x, j = y;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

struct NicDevice {
  const Device* device;
  Nic nic;
};

std::vector<NicDevice> find_nics(const Hardware& h, const std::vector<std::string>& wanted) {
  std::vector<NicDevice> fabric, ethernet, chosen, bare, down;
  for (const Device& d : h.devices) {
    std::vector<std::string> names;
    std::vector<std::string> fabric_names;
    bool is_down = false;
    for (const OsDevice& os : d.os) {
      if (os.kind != OsDevice::Kind::network && os.kind != OsDevice::Kind::fabric) continue;
      if (os.kind == OsDevice::Kind::fabric) is_down = is_down || os.link_down;
      (is_fabric(d, os) && os.kind == OsDevice::Kind::fabric ? fabric_names : names).push_back(os.name);
    }
    const bool by_name = std::any_of(d.os.begin(), d.os.end(), [&](const OsDevice& os) { return is_fabric(d, os); });
    NicDevice n{&d, {}};
    n.nic.address = d.address ? format_address(*d.address) : "";
    n.nic.bandwidth = d.link;
    if (names.empty() && fabric_names.empty()) {
      // A description without OS devices (NCCL's files) still says which devices are NICs.
      if (d.os.empty() && d.address && d.pci_class >> 8 == 0x02) {
        n.nic.name = n.nic.address;
        n.nic.names = {n.nic.address};
        bare.push_back(std::move(n));
      }
      continue;
    }
    std::sort(names.begin(), names.end(), natural_less);
    std::sort(fabric_names.begin(), fabric_names.end(), natural_less);
    n.nic.names = fabric_names;
    n.nic.names.insert(n.nic.names.end(), names.begin(), names.end());
    n.nic.name = n.nic.names.front();
    const bool is_wanted = std::any_of(n.nic.names.begin(), n.nic.names.end(), [&](const std::string& name) {
      return std::find(wanted.begin(), wanted.end(), name) != wanted.end();
    });
    if (is_wanted) chosen.push_back(n);
    if (by_name)
      (is_down ? down : fabric).push_back(std::move(n));
    else if (d.address)
      ethernet.push_back(std::move(n));
  }
  std::vector<NicDevice>* out = !chosen.empty()     ? &chosen
                                : !fabric.empty()   ? &fabric
                                : !down.empty()     ? &down
                                : !ethernet.empty() ? &ethernet
                                                    : &bare;
  std::sort(out->begin(), out->end(),
            [](const NicDevice& a, const NicDevice& b) { return natural_less(a.nic.name, b.nic.name); });
  return std::move(*out);
}

// The NUMA node of a device: of those near it the one that has CPUs, else the nearest by distance; the lowest number of equals.
int numa_of_device(const Hardware& h, const Device& d) {
  int best = -1;
  for (const Numa& n : h.numa)
    if (n.has_cpus && d.nodes.contains(n.number) && (best < 0 || n.number < best)) best = n.number;
  if (best >= 0) return best;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < h.numa.size(); ++i) {
    if (!h.numa[i].has_cpus) continue;
    double distance = 1e9;
    for (size_t j = 0; j < h.numa.size(); ++j)
      if (d.nodes.contains(h.numa[j].number) && i < h.numa_distance.size() && j < h.numa_distance[i].size())
        distance = std::min(distance, h.numa_distance[j][i]);
    if (std::tuple(distance, h.numa[i].number) < std::tuple(least, best < 0 ? INT32_MAX : best)) {
      least = distance;
      best = h.numa[i].number;
    }
  }
  return best;
}

double numa_distance(const Hardware& h, int a, int b) {
  if (a == b) return 10;
  for (size_t i = 0; i < h.numa.size(); ++i)
    for (size_t j = 0; j < h.numa.size(); ++j)
      if (h.numa[i].number == a && h.numa[j].number == b && i < h.numa_distance.size() && j < h.numa_distance[i].size())
        return h.numa_distance[i][j];
  return 20;
}

struct Nearness {
  int level = 4;       // as Gpu::near
  size_t bridges = 0;  // below the common one
  double distance = 0;
  friend auto operator<=>(const Nearness&, const Nearness&) = default;
};

Nearness nearness(const Hardware& h, const Device& a, const Device& b, int numa_a, int numa_b) {
  size_t common = 0;
  while (common < std::min(a.bridges.size(), b.bridges.size()) && a.bridges[common] == b.bridges[common]) ++common;
  Nearness n;
  // The first bridge is the host bridge.
  if (common > 0) {
    n.level = common >= 2 ? 0 : 1;
    n.bridges = a.bridges.size() + b.bridges.size() - 2 * common;
    return n;
  }
  if (a.located && b.located && (a.cpus.includes(b.cpus) || b.cpus.includes(a.cpus)))
    n.level = 2;
  else if (a.package >= 0 && a.package == b.package)
    n.level = 3;
  n.distance = numa_distance(h, numa_a, numa_b);
  return n;
}

std::string vendor_name(uint16_t vendor) {
  switch (vendor) {
    case nvidia:
      return "NVIDIA";
    case amd:
      return "AMD";
    case intel:
      return "Intel";
    default:
      return "";
  }
}

}  // namespace

const Numa* NodeMap::numa_of(int number) const {
  const auto found = std::find_if(numa.begin(), numa.end(), [&](const Numa& n) { return n.number == number; });
  return found == numa.end() ? nullptr : &*found;
}

NodeMap map_node(const Hardware& h, const std::vector<std::string>& training_interfaces) {
  NodeMap out;
  out.source = h.source;
  out.numa = h.numa;
  out.numa_distance = h.numa_distance;
  out.cores = h.cores;
  out.allowed = h.allowed;
  const std::vector<const Device*> gpus = find_gpus(h);
  const std::vector<NicDevice> nics = find_nics(h, training_interfaces);
  std::vector<int> numa_of_nic;
  for (const NicDevice& n : nics) {
    out.nics.push_back(n.nic);
    out.nics.back().numa = numa_of_device(h, *n.device);
    numa_of_nic.push_back(out.nics.back().numa);
  }
  std::map<PciAddress, size_t> by_address;
  for (const Device* d : gpus) {
    Gpu g;
    g.id = d->address ? format_address(*d->address) : d->os.front().name;
    g.model = d->name;
    g.vendor = vendor_name(d->vendor);
    g.numa = numa_of_device(h, *d);
    g.located = d->located;
    g.cpus = d->cpus;
    const Numa* numa = out.numa_of(g.numa);
    if (!d->located && numa != nullptr && !numa->cpus.empty()) g.cpus = numa->cpus;
    if (!h.allowed.empty() && g.cpus.intersects(h.allowed)) g.cpus &= h.allowed;
    if (d->address) by_address[*d->address] = out.gpus.size();
    out.gpus.push_back(std::move(g));
  }
  for (size_t i = 0; i < gpus.size(); ++i) {
    Gpu& g = out.gpus[i];
    g.peer.assign(gpus.size(), 0);
    for (size_t j = 0; j < gpus.size(); ++j)
      g.near.push_back(i == j ? 0 : nearness(h, *gpus[i], *gpus[j], g.numa, out.gpus[j].numa).level);
  }
  for (const PeerLink& link : h.peer_links) {
    const auto a = by_address.find(link.from), b = by_address.find(link.to);
    if (a != by_address.end() && b != by_address.end())
      out.gpus[a->second].peer[b->second] = std::max(out.gpus[a->second].peer[b->second], link.bandwidth);
  }
  // First NICs: GPUs with the fewest equally near ones choose first; each takes the least taken of its nearest.
  std::vector<std::vector<Nearness>> near(gpus.size());
  std::vector<std::pair<size_t, size_t>> order;  // number of nearest NICs, GPU
  for (size_t i = 0; i < gpus.size(); ++i) {
    for (size_t k = 0; k < nics.size(); ++k)
      near[i].push_back(nearness(h, *gpus[i], *nics[k].device, out.gpus[i].numa, numa_of_nic[k]));
    if (nics.empty()) continue;
    const Nearness best = *std::min_element(near[i].begin(), near[i].end());
    order.emplace_back(std::count(near[i].begin(), near[i].end(), best), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<int> taken(nics.size(), 0);
  for (const auto& [choices, gpu] : order) {
    const size_t i = gpu;  // a lambda of C++20 in clang 14 takes no structured binding
    std::vector<int>& list = out.gpus[i].nics;
    for (size_t k = 0; k < nics.size(); ++k) list.push_back(static_cast<int>(k));
    const auto key = [&](int k) { return std::tuple(near[i][static_cast<size_t>(k)], taken[static_cast<size_t>(k)], k); };
    std::sort(list.begin(), list.end(), [&](int a, int b) { return key(a) < key(b); });
    ++taken[static_cast<size_t>(list.front())];
    out.nics[static_cast<size_t>(list.front())].gpus.push_back(static_cast<int>(i));
  }
  for (Nic& n : out.nics) std::sort(n.gpus.begin(), n.gpus.end());
  return out;
}

}  // namespace mm::placement
