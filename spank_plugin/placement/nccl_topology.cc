// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/nccl_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "common/error.h"

namespace mm::placement {
namespace {

uint32_t hexadecimal(std::string_view text) {
  if (text.rfind("0x", 0) == 0) text.remove_prefix(2);
  uint32_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

// "16 GT/s", "32 GT/s PCIe/s", "16.0 GT/s PCIe" times the width, in GB/s; 128b/130b from 8 GT/s on, 8b/10b before.
double link_bandwidth(std::string_view speed, std::string_view width) {
  double rate = 0;
  int lanes = 0;
  std::from_chars(speed.data(), speed.data() + speed.size(), rate);
  std::from_chars(width.data(), width.data() + width.size(), lanes);
  return rate * lanes * (rate < 8 ? 0.8 : 128.0 / 130.0) / 8;
}

struct Reader {
  Hardware out;
  int bridges = 0;

  void pci(const XmlElement& e, std::vector<int> above, const Numa& numa) {
    const std::string text(e.get("busid"));
    const std::optional<PciAddress> address = parse_address(text);
    if (!address) throw usage_error(fmt::format("{}: busid '{}' is no PCI address", out.source, text));
    const bool bridge = std::any_of(e.children.begin(), e.children.end(), [](const XmlElement& c) { return c.name == "pci"; });
    if (bridge) {
      above.push_back(++bridges);
      for (const XmlElement& child : e.children)
        if (child.name == "pci") pci(child, above, numa);
      return;
    }
    Device d;
    d.address = *address;
    d.pci_class = static_cast<uint16_t>(hexadecimal(e.get("class")) >> 8);
    d.vendor = static_cast<uint16_t>(hexadecimal(e.get("vendor")));
    d.product = static_cast<uint16_t>(hexadecimal(e.get("device")));
    d.link = link_bandwidth(e.get("link_speed"), e.get("link_width"));
    d.bridges = above;
    d.located = true;
    d.cpus = numa.cpus;
    d.nodes.add(numa.number);
    d.package = static_cast<int>(out.numa.size()) - 1;
    for (const XmlElement& child : e.children) {
      if (child.name == "gpu") d.os.push_back({fmt::format("cuda{}", child.get("dev")), "CUDA", OsDevice::Kind::coprocessor});
      if (child.name == "nic")
        for (const XmlElement& net : child.children)
          if (net.name == "net") d.os.push_back({std::string(net.get("name")), "", OsDevice::Kind::fabric});
    }
    out.devices.push_back(std::move(d));
  }
};

}  // namespace

Hardware read_nccl_xml(const XmlElement& root, const std::string& source) {
  if (root.name != "system") throw usage_error(fmt::format("{}: <{}> is no NCCL topology", source, root.name));
  Reader r;
  r.out.source = source;
  for (const XmlElement& cpu : root.children) {
    if (cpu.name != "cpu") continue;
    Numa numa;
    const std::string_view number = cpu.get("numaid");
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), numa.number);
    if (error != std::errc() || end != number.data() + number.size() || numa.number < -1 || numa.number >= CpuSet::most)
      throw usage_error(fmt::format("{}: numaid '{}' is no number of a NUMA node", source, number));
    numa.cpus = parse_mask(cpu.get("affinity")).value_or(CpuSet());
    numa.has_cpus = true;
    r.out.numa.push_back(numa);
    const int host = ++r.bridges;  // what hangs at one <cpu> shares its host bridge
    for (const XmlElement& child : cpu.children)
      if (child.name == "pci") r.pci(child, {host}, numa);
  }
  for (const Numa& n : r.out.numa) r.out.allowed |= n.cpus;
  return std::move(r.out);
}

Hardware merge(Hardware hidden, const Hardware& described) {
  const int offset = 1 << 28;  // the described bridges' numbers apart from the others'
  for (const Device& d : described.devices) {
    Device place = d;
    for (int& b : place.bridges) b += offset;
    // The file's affinities are invented as often as not: the CPUs are those of the NUMA node on this machine.
    for (const Numa& n : hidden.numa)
      if (d.nodes.contains(n.number)) place.cpus = n.cpus;
    const auto same =
        std::find_if(hidden.devices.begin(), hidden.devices.end(), [&](const Device& h) { return h.address == d.address; });
    if (same == hidden.devices.end()) {
      hidden.devices.push_back(std::move(place));
      continue;
    }
    same->bridges = place.bridges;
    same->cpus = place.cpus;
    same->nodes = place.nodes;
    same->located = true;
    if (same->link == 0) same->link = place.link;
  }
  if (hidden.numa.empty()) hidden.numa = described.numa;
  return hidden;
}

}  // namespace mm::placement
