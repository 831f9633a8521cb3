// SPDX-License-Identifier: Apache-2.0
// Disks, file systems and remote file systems. What happens to one disk, from the controller to the file system on it, is one fault.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "agent/klog/scan.h"
#include "agent/klog/sighting.h"

namespace mm::agent {
namespace {

// nvme0n1p2 -> nvme0n1, sda1 -> sda; dm-0, md127 and others as they are
std::string disk_of(std::string_view device) {
  if (device.starts_with("/dev/")) device.remove_prefix(5);
  if (device.starts_with("nvme") || device.starts_with("mmcblk")) {
    const size_t p = device.rfind('p');
    return std::string(p != std::string_view::npos && p > 4 && p + 1 < device.size() && is_digit(device[p - 1]) ? device.substr(0, p) : device);
  }
  for (const std::string_view prefix : {"sd", "vd", "xvd", "hd"}) {
    if (!device.starts_with(prefix)) continue;
    size_t end = device.size();
    while (end > prefix.size() && is_digit(device[end - 1])) --end;
    return std::string(device.substr(0, end));
  }
  return std::string(device);
}

// nvme0n1 and nvme0c0n1 belong to nvme0.
std::string controller_of(const std::string& disk) {
  Scan scan(disk);
  if (!scan.take("nvme")) return disk;
  return "nvme" + std::string(scan.while_is(is_digit));
}

// Empty drives and loop devices are no disks of ours.
bool is_no_disk(std::string_view device) {
  return device.empty() || device.starts_with("loop") || device.starts_with("sr") || device.starts_with("fd") || device.starts_with("zram") ||
         device.starts_with("ram") || device.starts_with("nbd");
}

Sighting of_disk(const char* code, const std::string& disk, Severity severity, Action action, int rank) {
  Sighting s;
  s.part = Part::storage;
  s.code = code;
  s.device = disk;
  s.severity = severity;
  s.action = action;
  s.family = "disk/" + controller_of(disk);
  s.rank = rank;
  return s;
}

std::string_view name_at(Scan& scan) {
  return scan.while_is([](char c) { return is_word(c) || c == '/' || c == '!'; });
}

// blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 0
// I/O error, dev nvme0n1, sector 1953523072 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2
// blk_update_request: critical medium error, dev sdb, sector 7814037160
// Buffer I/O error on dev sda1, logical block 123456, lost async page write
bool match_block(std::string_view text, const See& see) {
  Scan scan(text);
  if (scan.take("Buffer I/O error on dev")) {
    scan.take("ice");
    scan.spaces();
    const std::string disk = disk_of(name_at(scan));
    if (!is_no_disk(disk)) see(of_disk("io_error", disk, Severity::error, Action::alert, 10));
    return true;
  }
  scan.take("blk_update_request: ");
  scan.take("print_req_error: ");
  scan.take("end_request: ");
  // The block layer's words for what came back. "operation not supported" is none: a disk that cannot discard.
  struct Outcome {
    std::string_view words;
    const char* code;
    Severity severity;
    Action action;
    int rank;
  };
  constexpr std::array<Outcome, 9> outcomes = {{{"critical medium error", "medium_error", Severity::fatal, Action::drain, 30},
                                                {"device offline error", "disk_offline", Severity::error, Action::alert, 25},
                                                {"I/O error", "io_error", Severity::error, Action::alert, 12},
                                                {"critical target error", "io_error", Severity::error, Action::alert, 12},
                                                {"critical nexus error", "io_error", Severity::error, Action::alert, 12},
                                                {"protection error", "io_error", Severity::error, Action::alert, 12},
                                                {"timeout error", "io_error", Severity::error, Action::alert, 12},
                                                {"recoverable transport error", "io_error", Severity::error, Action::alert, 12},
                                                {"critical space allocation error", "no_space", Severity::error, Action::alert, 12}}};
  const auto outcome = std::find_if(outcomes.begin(), outcomes.end(), [&](const Outcome& o) { return scan.take(o.words); });
  if (outcome == outcomes.end()) return false;
  if (!scan.take(", dev ") && !scan.take(", device ")) return false;
  const std::string disk = disk_of(name_at(scan));
  // blk_update_request: critical target error, dev nvme0n1, sector 2048 op 0x3:(DISCARD) flags 0x800: an order that the disk does not know
  const bool unknown_order = outcome->words == "critical target error" && (contains(scan.rest(), ":(DISCARD)") || contains(scan.rest(), ":(WRITE_ZEROES)"));
  if (!is_no_disk(disk) && !unknown_order) see(of_disk(outcome->code, disk, outcome->severity, outcome->action, outcome->rank));
  return true;
}

// nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff
// nvme nvme4: I/O tag 22 (2016) opcode 0x2 (Admin Cmd) QID 0 timeout, reset controller
// nvme nvme0: I/O 123 QID 4 timeout, aborting
// nvme nvme4: Disabling device after reset failure: -19
// nvme nvme1: Removing after probe failure status: -19
// nvme nvme0: Device not ready; aborting reset, CSTS=0x1
// block nvme1n1: no available path - failing I/O
bool match_nvme(std::string_view text, const See& see) {
  Scan scan(text);
  if (scan.take("block nvme")) {
    scan = Scan(text.substr(6));
    const std::string disk = disk_of(name_at(scan));
    if (contains(text, "no available path - failing I/O")) see(of_disk("nvme_no_path", disk, Severity::error, Action::alert, 20));
    return true;
  }
  // nvme0n1: Read(0x2) @ LBA 1234, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR
  if (text.starts_with("nvme") && contains(text, "Unrecovered Read Error")) {
    see(of_disk("medium_error", disk_of(name_at(scan)), Severity::fatal, Action::drain, 30));
    return true;
  }
  // nvme0n1: I/O Cmd(0x2) @ LBA 32545872, 8 blocks, I/O Error (sct 0x3 / sc 0x71)
  // nvme0n1: Write(0x1) @ LBA 100492368, 2048 blocks, Data Transfer Error (sct 0x0 / sc 0x4)
  if (text.starts_with("nvme") && contains(text, " @ LBA ") && contains(text, "(sct 0x")) {
    Sighting s = of_disk("io_error", disk_of(name_at(scan)), Severity::error, Action::alert, 12);
    s.count = 0;  // the block layer counts it
    see(std::move(s));
    return true;
  }
  if (!scan.take("nvme nvme")) return false;
  scan = Scan(text.substr(5));
  const std::string disk = std::string(name_at(scan));
  const std::string_view words = scan.rest();
  if (contains(words, "controller is down") || contains(words, "Disabling device after reset failure") || contains(words, "Removing after probe failure") ||
      contains(words, "Device not ready; aborting") || contains(words, "Device shutdown incomplete") || contains(words, "failed to reset controller"))
    see(of_disk("nvme_down", disk, Severity::fatal, Action::drain, 40));
  // nvme nvme0: frozen state error detected, reset controller: the PCI Express error handler's word
  else if (contains(words, "frozen state error detected") || contains(words, "failure state error detected"))
    see(of_disk("nvme_pcie_error", disk, Severity::error, Action::alert, 9));
  else if (contains(words, " timeout, "))
    see(of_disk("nvme_timeout", disk, Severity::warning, Action::alert, 8));
  else if (contains(words, "Abort status: "))
    see([&] {
      Sighting s = of_disk("nvme_timeout", disk, Severity::info, Action::ignore, 0);
      s.joins_only = true;
      s.count = 0;
      return s;
    }());
  return true;
}

// sd 0:0:0:0: [sda] tag#0 Sense Key : Medium Error [current]
// sd 2:0:0:0: rejecting I/O to offline device
// sd 2:0:0:0: Device offlined - not ready after error recovery
// ata1.00: failed command: READ FPDMA QUEUED
bool match_scsi(std::string_view text, const See& see) {
  if (text.starts_with("sd ")) {
    Scan scan(text);
    const std::string disk = scan.skip_past("[") && contains(text, "[sd") ? std::string(scan.until("]")) : "";
    if (contains(text, "Sense Key : Medium Error") || contains(text, "Sense Key : Hardware Error"))
      see(of_disk("medium_error", disk, Severity::fatal, Action::drain, 30));
    else if (contains(text, "rejecting I/O to offline device") || contains(text, "Device offlined"))
      see(of_disk("disk_offline", disk, Severity::error, Action::alert, 25));
    // sd 2:0:0:0: [sdc] tag#7 FAILED Result: hostbyte=DID_TIME_OUT driverbyte=DRIVER_OK cmd_age=30s
    else if (!disk.empty() && contains(text, "FAILED Result: hostbyte=DID_") && !contains(text, "hostbyte=DID_OK")) {
      Sighting s = of_disk("io_error", disk, Severity::error, Action::alert, 12);
      s.count = 0;
      see(std::move(s));
    }
    return true;
  }
  // mpt3sas_cm0: fault_state(0x5862)!
  if (contains(text, "fault_state(") || contains(text, "Fatal firmware error")) {
    Scan scan(text);
    see(of_disk("adapter_fault", std::string(scan.until(": ")), Severity::error, Action::alert, 35));
    return true;
  }
  if (!text.starts_with("ata")) return false;
  // ata1.00: disabled
  if (text.ends_with(": disabled")) {
    Scan scan(text);
    see(of_disk("disk_offline", std::string(scan.until(".:")), Severity::error, Action::alert, 25));
    return true;
  }
  // ata1.00: exception Emask 0x0 SAct 0x1 SErr 0x0 action 0x6 frozen / ata1.00: error: { UNC } / ata3: COMRESET failed (errno=-16)
  const bool failed = contains(text, ": failed command: ") || contains(text, ": COMRESET failed");
  if (failed || contains(text, ": exception Emask ") || contains(text, ": error: { ")) {
    Scan scan(text);
    Sighting s = of_disk("ata_error", std::string(scan.until(".:")), Severity::warning, Action::alert, 5);
    if (!failed) s.joins_only = true, s.count = 0;
    see(std::move(s));
  }
  return true;
}

// The name between brackets, such as "(sda1)", "(device dm-0)", "(device sda1: state EA)".
std::string in_brackets(std::string_view text) {
  Scan scan(text);
  if (!scan.skip_past("(")) return "";
  scan.take("device ");
  return disk_of(name_at(scan));
}

// EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0
// EXT4-fs (dm-0): Remounting filesystem read-only
// XFS (nvme0n1p1): Corruption of in-memory data (0x8) detected at ...  Shutting down filesystem
// BTRFS info (device sda1: state E): forced readonly
// JBD2: Detected IO errors while flushing file data on sda1-8
bool match_file_system(std::string_view text, const See& see) {
  const bool ext = text.starts_with("EXT4-fs") || text.starts_with("EXT3-fs") || text.starts_with("EXT2-fs");
  const bool xfs = text.starts_with("XFS "), btrfs = text.starts_with("BTRFS"), jbd = text.starts_with("JBD2: ") || text.starts_with("Aborting journal on device ");
  if (!ext && !xfs && !btrfs && !jbd && !text.starts_with("F2FS-fs")) return false;
  std::string disk = in_brackets(text);
  if (jbd) {
    const size_t at = text.rfind(' ');
    std::string_view last = text.substr(at + 1);
    if (const size_t dash = last.rfind('-'); dash != std::string_view::npos && !last.starts_with("dm-")) last = last.substr(0, dash);
    while (!last.empty() && (last.back() == '.' || last.back() == ':')) last.remove_suffix(1);
    disk = disk_of(last);
  }
  if (is_no_disk(disk) && !disk.empty()) return true;
  if (contains(text, "Remounting filesystem read-only") || contains(text, "forced readonly") || contains(text, "remounting read-only"))
    see(of_disk("read_only", disk, Severity::fatal, Action::drain, 20));
  else if (xfs && (contains(text, "Shutting down filesystem") || contains(text, "hutting down") || contains(text, "has been shut down") || contains(text, "xfs_do_force_shutdown")))
    see(of_disk("shut_down", disk, Severity::fatal, Action::drain, 20));
  else if (text.starts_with("EXT4-fs error") || text.starts_with("EXT3-fs error") || text.starts_with("BTRFS error") || text.starts_with("BTRFS critical") ||
           contains(text, "I/O error") || contains(text, "IO failure") || contains(text, "etadata corruption detected") || contains(text, "Metadata CRC error detected") ||
           contains(text, "Detected IO errors") || text.starts_with("Aborting journal") || contains(text, "Internal error ") || contains(text, "orruption detected") ||
           contains(text, "xfs_log_force: error -5") || contains(text, "writeback error on ") || contains(text, "potential data loss") ||
           contains(text, "ata will be lost") || contains(text, "block allocation failed for inode"))
    see(of_disk("fs_error", disk, Severity::error, Action::alert, 11));
  return true;
}

// md/raid1:md0: Disk failure on sda1, disabling device.
// md/raid:md5: Cannot continue operation (2/4 failed).
// md/raid1:md0: sda1: rescheduling sector 1234
// md: kicking non-fresh sdb1 from array!
bool match_raid(std::string_view text, const See& see) {
  Scan scan(text);
  // device-mapper: multipath: 253:4: Failing path 8:16.
  if (scan.take("device-mapper: multipath: ")) {
    scan.skip_past(":");
    const std::string_view minor = scan.while_is(is_digit);
    if (contains(scan.rest(), "Failing path ")) see(of_disk("path_failed", fmt::format("dm-{}", minor), Severity::warning, Action::alert, 9));
    return true;
  }
  if (!text.starts_with("md/raid") && !text.starts_with("md: ") && !text.starts_with("raid1: ") && !text.starts_with("raid10: ") && !text.starts_with("raid5: "))
    return false;
  if (Scan failure = scan; failure.skip_past("Disk failure on ")) {
    see(of_disk("raid_disk_failed", disk_of(name_at(failure)), Severity::error, Action::alert, 15));
  } else if (Scan kicked = scan; kicked.skip_past("kicking non-fresh ")) {
    see(of_disk("raid_disk_failed", disk_of(name_at(kicked)), Severity::error, Action::alert, 15));
  } else if (contains(text, "Cannot continue operation")) {
    scan.until(":");
    scan.take(":");
    see(of_disk("raid_failed", std::string(scan.until(":")), Severity::fatal, Action::drain, 35));
  } else if (contains(text, ": rescheduling sector ")) {
    const size_t end = text.find(": rescheduling");
    const size_t begin = text.rfind(' ', end);
    see(of_disk("raid_read_error", disk_of(text.substr(begin + 1, end - begin - 1)), Severity::warning, Action::alert, 9));
  }
  return true;
}

Sighting remote(const char* code, std::string_view server, Severity severity, bool ends) {
  Sighting s;
  s.part = Part::storage;
  s.code = code;
  s.severity = severity;
  s.action = ends ? Action::ignore : Action::alert;
  s.family = fmt::format("remote/{}/{}", code, server);
  s.ends = s.joins_only = ends;
  s.count = ends ? 0 : 1;
  s.facts.emplace_back("server", std::string(server));
  return s;
}

// "scratch-OST0001-osc-ffff8d6014c18000" and "scratch-OST0001" are one server.
std::string_view lustre_target(std::string_view text) {
  const size_t dash = text.find('-');
  const size_t second = dash == std::string_view::npos ? dash : text.find('-', dash + 1);
  return text.substr(0, second);
}

// ceph: mds0 hung / ceph: mds0 came back
// ceph: mds0 closed our session / ceph: mds0 reconnect denied
// libceph: mon1 (1)10.0.0.3:6789 session lost, hunting for new mon / libceph: mon2 (1)10.0.0.4:6789 session established
// libceph (fb30d64e-7a8c-46d3-bbd7-77a3b1f080d1 e857): osd2 down / ...: osd2 up
bool match_ceph(std::string_view text, const See& see) {
  if (!text.starts_with("ceph: ") && !text.starts_with("libceph: ") && !text.starts_with("libceph (")) return false;
  Scan scan(text);
  scan.skip_past(": ");
  scan.spaces();
  std::string_view server = scan.word();
  // Any monitor will do.
  if (server.starts_with("mon")) server = "mon";
  if (contains(text, "came back") || contains(text, "session established") || contains(text, "reconnect success") || text.ends_with(" up"))
    see(remote("ceph", server, Severity::info, true));
  else if (contains(text, "closed our session") || contains(text, "reconnect denied"))
    see(remote("ceph", server, Severity::error, false));
  else if (contains(text, " hung") || contains(text, "session lost") || (server.starts_with("osd") && text.ends_with(" down")))
    see(remote("ceph", server, Severity::warning, false));
  return true;
}

// mmfs: [E] Lost membership in cluster gpfs1. Unmounting file systems.
// mmfs: Error=MMFS_DISKFAIL, ID=0x9C6C05FA, Tag=11168983:   disk nsd1
// beegfs: mount(1234) [Messaging (RPC)] >> Retrying communication with node: beegfs-storage st01 [ID: 1]
// LNet: There was an unexpected network error while writing to 10.0.0.1: -110.
bool match_cluster_file_system(std::string_view text, const See& see) {
  Scan scan(text);
  if (scan.take("mmfs: ")) {
    if (contains(text, "[E] ") || contains(text, "[X] ") || contains(text, "Error=MMFS_")) see(remote("gpfs", "", Severity::error, false));
    return true;
  }
  if (scan.take("beegfs: ")) {
    if (scan.skip_past("Retrying communication with node: ")) see(remote("beegfs", scan.until("["), Severity::warning, false));
    return true;
  }
  if (scan.take("LNet: ")) {
    if (contains(text, "network error")) see(remote("lustre", "LNet", Severity::warning, false));
    return true;
  }
  return false;
}

// nfs: server nas01 not responding, still trying
// nfs: server nas01 OK
// Lustre: 2219:0:(client.c:2114:ptlrpc_expire_one_request()) @@@ Request sent has timed out for slow reply ...
// Lustre: scratch-OST0001-osc-ffff8d60: Connection to scratch-OST0001 (at 10.0.0.1@o2ib) was lost; in progress operations using this service will wait ...
// LustreError: 11-0: scratch-OST0001-osc-ffff8d60: operation ost_read to node 10.0.0.1@o2ib failed: rc = -107
// LustreError: 167-0: scratch-MDT0000-mdc-ffff: This client was evicted by scratch-MDT0000; in progress operations using this service will fail.
// Lustre: scratch-OST0001-osc-ffff8d60: Connection restored to 10.0.0.1@o2ib (at 10.0.0.1@o2ib)
bool match_remote(std::string_view text, const See& see) {
  Scan scan(text);
  if (scan.take("nfs: server ") || scan.take("lockd: server ")) {
    const std::string_view server = scan.word();
    if (contains(scan.rest(), "not responding")) see(remote("nfs", server, Severity::warning, false));
    else if (contains(scan.rest(), "OK")) see(remote("nfs", server, Severity::info, true));
    return true;
  }
  // nfs4_reclaim_open_state: Lock reclaim failed!
  if (contains(text, "nfs4_reclaim_open_state: Lock reclaim failed")) {
    see(remote("nfs", "", Severity::error, false));
    return true;
  }
  // NFS: state manager: check lease failed on NFSv4 server nas01 with error 13
  if (text.starts_with("NFS: state manager: ") && contains(text, "failed on NFSv4 server ")) {
    scan.skip_past("NFSv4 server ");
    see(remote("nfs", scan.word(), Severity::warning, false));
    return true;
  }
  // CIFS: VFS: \\\\nas01 has not responded in 180 seconds. Reconnecting...
  if (text.starts_with("CIFS") && contains(text, " has not responded in ")) {
    const std::string_view before = text.substr(0, text.find(" has not responded"));
    see(remote("cifs", before.substr(before.rfind(' ') + 1), Severity::warning, false));
    return true;
  }
  // LNetError: 2431:0:(o2iblnd_cb.c:3174:kiblnd_check_conns()) Timed out tx for 172.31.126.87@o2ib: 403055 seconds
  if (text.starts_with("LNetError: ")) {
    see(remote("lustre", "LNet", Severity::warning, false));
    return true;
  }
  const bool error = scan.take("LustreError: ");
  if (error || scan.take("Lustre: ")) {
    std::string_view target;
    for (Scan words = scan; !words.done() && target.empty();) {
      std::string_view word = words.word();
      words.spaces();
      if (const size_t arrow = word.find("->"); arrow != std::string_view::npos) word.remove_prefix(arrow + 2);
      while (!word.empty() && (word.back() == ':' || word.back() == ';' || word.back() == ',')) word.remove_suffix(1);
      if (contains(word, "-OST") || contains(word, "-MDT") || word.starts_with("MGC")) target = word.starts_with("MGC") ? word : lustre_target(word);
    }
    if (contains(text, "Connection restored to")) see(remote("lustre", target, Severity::info, true));
    else if (contains(text, "was evicted by")) see(remote("lustre", target, Severity::error, false));
    else if (error || (contains(text, "Connection to ") && contains(text, "was lost")) || contains(text, "Request sent has timed out") ||
             contains(text, "Request sent has failed"))
      see(remote("lustre", target, Severity::warning, false));
    return true;
  }
  return match_ceph(text, see) || match_cluster_file_system(text, see);
}

}  // namespace

void match_storage(const LogLine& line, LogContext&, const See& see) {
  const std::string_view text = line.message;
  if (match_block(text, see) || match_nvme(text, see) || match_scsi(text, see) || match_file_system(text, see) || match_raid(text, see)) return;
  // dd: attempt to access beyond end of device
  if (contains(text, "attempt to access beyond end of device")) return see(of_disk("beyond_end", "", Severity::error, Action::alert, 3));
  match_remote(text, see);
}

}  // namespace mm::agent
