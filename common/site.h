// SPDX-License-Identifier: Apache-2.0
// The site's configuration, mm-train.conf (TOML), read by the agent, the plugin and mm-run. Every key has a default, and an
// absent file is all defaults. Unknown keys are errors that name the nearest known one. See mm-train.conf(5).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mm {

struct Site {
  // [agent]
  std::string run_dir = "/run/mm-train";        // sockets
  std::string state_dir = "/var/lib/mm-train";  // history and incident numbers
  int port_offset = 100;                        // the agent's UDP port is its slurmd's port plus this
  int heartbeat_ms = 250;
  int silent_ms = 2000;  // without a heartbeat for so long a peer is silent
  int fence_ms = 5000;   // cut off from slurmctld and most peers for so long: kill own ranks
  bool dry_run = false;  // log what would be done to nodes, and do nothing to them
  double drain_share = 0.3;  // at most this share of all nodes, and one at least, is drained by agents within an hour
  std::string kernel_log = "/dev/kmsg";  // or a log file; empty: none
  std::string nvml = "libnvidia-ml.so.1";  // NVIDIA's management library; empty: none
  std::vector<std::string> check_paths;    // folders that are written, synced and read to see that they work
  std::string metrics = "127.0.0.1:9440";  // where Prometheus may ask; empty: nowhere
  std::string metrics_certificate, metrics_key;  // PEM files: HTTPS there; both empty: HTTP
  std::vector<std::string> peer_users;  // whose messages agents believe; empty: root's, and those of who runs the agent
  int straggler_s = 90;  // a rank that is slower than its like for so long is moved
  double predict_drain = 0;  // a prediction of failure with at least this score drains; 0: never
  int64_t memory_tier_bytes = 0;  // of checkpoints that a job may leave in the agent's keeping on a node; 0: none
  std::string node_tier;  // folder on the node's own disk for checkpoints and caches of jobs; %n is the node's name; empty: none
  // [network]
  std::vector<std::string> training_interfaces;  // interface names that carry training traffic, nearest first
  // [hardware], for plans of jobs: one GPU, and what it sends. GB are 10^9 bytes.
  int gpus_per_node = 8;
  double gpu_memory = 80;              // GB
  double gpu_tflops = 989;             // dense, bfloat16
  double gpu_memory_bandwidth = 3350;  // GB/s
  double gpu_link = 400;               // GB/s to the GPUs of its node
  double gpu_network = 45;             // GB/s to other nodes
  // [placement]
  std::string reserved_cores;    // number of cores for the system, or a list of CPUs
  double oversubscription = 2;   // of every level of switches: bandwidth below over bandwidth above
  bool rails = false;            // NICs of the same number share switches, others meet a level above
  std::string topology;          // hwloc XML for nodes that hwloc does not see rightly; %n is the node; empty: the machine itself
  std::string nccl_topology;     // NCCL_TOPO_FILE XML that says where devices are
  std::vector<std::string> speeds;  // "NODES=FLOPS" or "NODES=FLOPS:BANDWIDTH", relative to the others
  // [slurm]
  std::string slurm_conf;  // path given to Slurm's commands as SLURM_CONF; empty: their default

  static constexpr const char* default_path = "/etc/mm-train/mm-train.conf";
};

// An absent file at default_path gives defaults; an absent file anywhere else is an error.
Site load_site(const std::string& path = Site::default_path);

// The name that Slurm knows this node by: SLURMD_NODENAME where a step sets it, else the host name up to the first dot.
std::string this_node();

}  // namespace mm
