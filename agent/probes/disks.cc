// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent/probes/host.h"
#include "agent/probes/place.h"
#include "agent/probes/sysfs.h"

namespace mm::agent {
namespace {

constexpr milliseconds slow_period{30000}, deadline{10000};
constexpr double least_share = 0.02;  // of space and inodes

Report storage(const char* code, const std::string& device, Severity severity, std::string words) {
  return report_of(Part::storage, code, device, severity, Action::alert, std::move(words));
}

std::string test_folder(const std::string& folder) {
  const std::string path = fmt::format("{}/.mm-agent-check-{}", folder, ::getpid());
  const std::string content = fmt::format("mm-agent {}\n", path);
  std::string got(content.size(), '\0');
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  std::string wrong;
  const auto failed = [&](const char* what) {
    if (wrong.empty()) wrong = fmt::format("{} {}: {}", what, path, std::strerror(errno));
  };
  if (!fd) {
    failed("open");
    return wrong;
  }
  if (::write(fd.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) failed("write");
  else if (::fsync(fd.get()) != 0) failed("fsync");
  else if (::pread(fd.get(), got.data(), got.size(), 0) != static_cast<ssize_t>(got.size())) failed("read");
  else if (got != content) wrong = fmt::format("{}: other bytes came back than were written", path);
  ::unlink(path.c_str());
  return wrong;
}

bool is_remote(const std::string& type) {
  for (const char* remote : {"nfs", "nfs4", "lustre", "ceph", "gpfs", "beegfs", "cifs", "smb3", "9p", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "wekafs", "panfs", "pvfs2"})
    if (type == remote) return true;
  return false;
}

}  // namespace

Probe disk_probe(std::vector<std::string> folders, const std::string& root) {
  Probe p;
  p.name = "disks";
  p.period = slow_period;
  p.deadline = deadline;
  p.run = [folders = std::move(folders), root] {
    ProbeResult out;
    for (const std::string& folder : folders) {
      struct statvfs info = {};
      if (::statvfs(folder.c_str(), &info) != 0 || info.f_blocks == 0) continue;
      const double space = static_cast<double>(info.f_bavail) / static_cast<double>(info.f_blocks);
      const double inodes = info.f_files == 0 ? 1 : static_cast<double>(info.f_favail) / static_cast<double>(info.f_files);
      out.metrics[fmt::format("mm_disk_free_share{{path=\"{}\"}}", folder)] = space;
      if (space < least_share)
        out.reports["space/" + folder] = storage("disk_full", "", Severity::error, fmt::format("{}: {:.1f} % of the space is free", folder, 100 * space));
      if (inodes < least_share)
        out.reports["inodes/" + folder] = storage("inodes_used_up", "", Severity::error, fmt::format("{}: {:.1f} % of the inodes are free", folder, 100 * inodes));
    }
    for (const std::string& disk : list_folder(root + "/sys/class/nvme")) {
      const std::string device = root + "/sys/class/nvme/" + disk + "/device/";
      const auto width = read_number(device + "current_link_width"), most = read_number(device + "max_link_width");
      const auto speed = read_line(device + "current_link_speed"), best = read_line(device + "max_link_speed");
      if (width && most && *width > 0 && *width < *most)
        out.reports["link/" + disk] = storage("pcie_width", disk, Severity::warning, fmt::format("{} has PCIe width x{:.0f} of x{:.0f}", disk, *width, *most));
      else if (speed && best && *speed != *best && std::strtod(speed->c_str(), nullptr) < std::strtod(best->c_str(), nullptr))
        out.reports["link/" + disk] = storage("pcie_speed", disk, Severity::warning, fmt::format("{} runs PCIe at {} of {}", disk, *speed, *best));
      if (const auto state = read_line(root + "/sys/class/nvme/" + disk + "/state"); state && *state == "dead") {
        Report r = storage("nvme_down", disk, Severity::fatal, fmt::format("{} is dead, says its driver", disk));
        r.action = Action::drain;
        out.reports["state/" + disk] = r;
      }
    }
    return out;
  };
  return p;
}

Probe path_probe(std::vector<std::string> folders) {
  Probe p;
  p.name = "paths";
  p.period = slow_period;
  p.deadline = deadline;
  auto place = std::make_shared<Place>();
  p.run = [folders = std::move(folders), place] {
    ProbeResult out;
    for (const std::string& folder : folders) {
      place->at(folder);
      if (const std::string wrong = test_folder(folder); !wrong.empty()) out.reports[folder] = storage("path_fails", "", Severity::error, wrong);
    }
    place->at("");
    return out;
  };
  p.doing = [place] { return place->get(); };
  return p;
}

Probe mount_probe(const std::string& root) {
  Probe p;
  p.name = "mounts";
  p.period = slow_period;
  p.deadline = deadline;
  auto place = std::make_shared<Place>();
  p.run = [root, place] {
    ProbeResult out;
    // 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
    const std::string mounts = read_small(root + "/proc/self/mountinfo").value_or("");
    double remote = 0;
    for (size_t begin = 0, end; (end = mounts.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string line = mounts.substr(begin, end - begin);
      const size_t mark = line.find(" - ");
      if (mark == std::string::npos || !is_remote(line.substr(mark + 3, line.find(' ', mark + 3) - mark - 3))) continue;
      size_t at = 0;
      for (int i = 0; i < 4; ++i) at = line.find(' ', at) + 1;
      const std::string where = line.substr(at, line.find(' ', at) - at);
      ++remote;
      place->at(where);
      struct statvfs info = {};
      if (::statvfs(where.c_str(), &info) != 0 && errno != EACCES)
        out.reports[where] = storage("mount_fails", "", Severity::error, fmt::format("mount {}: {}", where, std::strerror(errno)));
    }
    place->at("");
    out.metrics["mm_remote_mounts"] = remote;
    return out;
  };
  p.doing = [place] { return place->get(); };
  return p;
}

}  // namespace mm::agent
