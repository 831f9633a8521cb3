// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/load.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "common/error.h"
#include "common/files.h"
#include "spank_plugin/placement/hwloc_tree.h"
#include "spank_plugin/placement/nccl_topology.h"
#include "spank_plugin/placement/node_map.h"
#include "spank_plugin/placement/xml.h"

namespace mm::placement {
namespace {

constexpr unsigned most_seconds = 20;

void forget_identity(XmlElement& element) {
  constexpr std::string_view own[] = {"HostName", "Serial", "UUID", "GUID", "GID", "LID", "Address", "DMI",
                                      "OSRelease", "OSVersion", "ProcessName", "hwlocVersion", "LinuxCgroup"};
  std::erase_if(element.children, [&](const XmlElement& child) {
    const std::string_view name = child.get("name");
    return child.name == "info" &&
           std::any_of(std::begin(own), std::end(own), [&](std::string_view o) { return name.find(o) != std::string_view::npos; });
  });
  for (XmlElement& child : element.children) forget_identity(child);
}

}  // namespace

XmlElement read_topology(const std::string& path) {
  struct stat s = {};
  if (::stat(path.c_str(), &s) != 0) throw system_error(fmt::format("topology: {}", path), errno, exit_status::usage);
  if (!S_ISREG(s.st_mode)) throw usage_error(fmt::format("topology: {}: not a file", path));
  return parse_xml(read_file(path), path);
}

Hardware hardware_of(const XmlElement& root, const std::string& path) {
  if (root.name == "topology" || root.name == "root") return read_hwloc_xml(root, path);
  if (root.name == "system") return read_nccl_xml(root, path);
  throw usage_error(fmt::format("{}: <{}> is neither an hwloc <topology> nor an NCCL <system>", path, root.name));
}

Hardware load_topology(const std::string& path) {
  return hardware_of(read_topology(path), path);
}

std::string kind_of_machine(const XmlElement& root) {
  XmlElement out = root;
  forget_identity(out);
  return format_xml(out);
}

Hardware load_untrusted_topology(const std::string& path) {
  const pid_t child = ::fork();
  if (child < 0) throw system_error(fmt::format("topology: {}: fork", path), errno);
  if (child == 0) {
    const rlimit no_core = {0, 0}, time = {most_seconds, most_seconds};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::setrlimit(RLIMIT_CPU, &time);
    if (::freopen("/dev/null", "w", stderr) == nullptr) ::_exit(1);
    try {
      map_node(load_topology(path));
    } catch (...) {
      // The parent meets the same error, and tells it.
    }
    ::_exit(0);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) throw system_error(fmt::format("topology: {}: wait", path), errno);
  // The child itself ends with 0; a sanitizer ends it with a status of its own.
  if (status != 0)
    throw usage_error(fmt::format("{}: hwloc does not survive this file ({}): it is no topology that a machine has", path,
                                  WIFSIGNALED(status) ? ::strsignal(WTERMSIG(status)) : "abnormal end"));
  return load_topology(path);
}

}  // namespace mm::placement
