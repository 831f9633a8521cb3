// SPDX-License-Identifier: Apache-2.0
// What disks say of their own health (SMART), through smartctl(8) where it is installed, which knows ATA, SAS and NVMe. A disk in standby is not
// woken. A disk that smartctl cannot read (in a virtual machine, or without the right) says nothing.
#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "agent/probes/host.h"
#include "agent/probes/place.h"
#include "agent/probes/sysfs.h"
#include "common/process.h"

namespace mm::agent {
namespace {

constexpr milliseconds period{600000}, deadline{120000};
constexpr std::chrono::seconds disk_deadline{20};

struct Disk {
  std::optional<double> defects;
};

void judge(const std::string& name, const nlohmann::json& said, Disk& disk, ProbeResult& out) {
  const auto add = [&](const char* code, Severity severity, Action action, const std::string& words) {
    out.reports[name + "/" + code] = report_of(Part::storage, code, name, severity, action, fmt::format("disk {} {}", name, words));
  };
  const auto number = [](const nlohmann::json& from, const char* key) { return from.is_object() && from.contains(key) && from[key].is_number() ? from[key].get<double>() : 0.0; };
  const nlohmann::json none, &status = said.contains("smart_status") ? said["smart_status"] : none;
  if (status.is_object() && status.contains("passed") && status["passed"] == false)
    add("smart_failing", Severity::error, Action::checkpoint, "foretells its own failure (SMART)");
  double defects = 0;
  if (const auto nvme = said.find("nvme_smart_health_information_log"); nvme != said.end()) {
    const auto warning = static_cast<unsigned>(number(*nvme, "critical_warning"));
    if ((warning & 0x8) != 0) add("smart_read_only", Severity::fatal, Action::restart, "has become read-only (NVMe critical warning)");
    else if ((warning & 0x5) != 0) add("smart_failing", Severity::error, Action::checkpoint, fmt::format("says that it is not reliable any more (NVMe critical warning 0x{:x})", warning));
    if ((warning & 0x2) != 0) add("smart_hot", Severity::warning, Action::alert, fmt::format("is too hot: {:.0f} C", number(*nvme, "temperature")));
    if (number(*nvme, "percentage_used") >= 100) add("smart_worn", Severity::warning, Action::alert, fmt::format("is worn: {:.0f} % of the writes that it was made for", number(*nvme, "percentage_used")));
    defects = number(*nvme, "media_errors");
  }
  if (const auto ata = said.find("ata_smart_attributes"); ata != said.end() && ata->contains("table"))
    for (const auto& row : (*ata)["table"]) {
      // Reallocated, pending and uncorrectable sectors.
      const auto id = static_cast<int>(number(row, "id"));
      if ((id == 5 || id == 197 || id == 198) && row.contains("raw")) defects += number(row["raw"], "value");
    }
  out.metrics[fmt::format("mm_disk_defects_total{{disk=\"{}\"}}", name)] = defects;
  if (disk.defects && defects > *disk.defects)
    add("smart_defects", Severity::warning, Action::checkpoint, fmt::format("has {:.0f} defects (sectors or media errors), {:.0f} more than before", defects, defects - *disk.defects));
  else
    disk.defects = defects;  // news stays news until the agent is started again
}

}  // namespace

Probe smart_probe(const std::string& smartctl, const std::string& root) {
  Probe p;
  p.name = "smart";
  p.period = period;
  p.deadline = deadline;
  auto place = std::make_shared<Place>();
  p.run = [smartctl, root, place, disks = std::make_shared<std::map<std::string, Disk>>()] {
    ProbeResult out;
    std::vector<std::string> names = list_folder(root + "/sys/class/nvme");
    for (const std::string& name : list_folder(root + "/sys/block"))
      if (name.starts_with("sd")) names.push_back(name);
    for (const std::string& name : names) {
      place->at(name);
      // Its exit status tells of findings, too: the answer counts.
      const CommandResult r = run_command({smartctl, "--json=c", "--health", "--attributes", "--nocheck=standby", "/dev/" + name}, disk_deadline);
      const nlohmann::json said = nlohmann::json::parse(r.out, nullptr, false);
      const bool known = said.is_object() && (said.contains("smart_status") || said.contains("nvme_smart_health_information_log"));
      out.metrics[fmt::format("mm_disk_smart_read{{disk=\"{}\"}}", name)] = known;
      if (known) judge(name, said, (*disks)[name], out);
    }
    place->at("");
    return out;
  };
  p.doing = [place] { return place->get(); };
  return p;
}

std::optional<std::string> find_smartctl() {
  for (const char* path : {"/usr/sbin/smartctl", "/usr/bin/smartctl", "/usr/local/sbin/smartctl"})
    if (::access(path, X_OK) == 0) return path;
  return std::nullopt;
}

}  // namespace mm::agent
