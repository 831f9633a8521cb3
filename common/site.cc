// SPDX-License-Identifier: Apache-2.0
#include "common/site.h"

#include <unistd.h>

#include <cstdlib>

#include "common/files.h"
#include "common/toml_schema.h"

namespace mm {

Site load_site(const std::string& path) {
  Site site;
  if (path == Site::default_path && ::access(path.c_str(), F_OK) != 0) return site;
  read_toml(read_file(path), path,
            {{"agent.run_dir", &site.run_dir},
             {"agent.state_dir", &site.state_dir},
             {"agent.port_offset", &site.port_offset, -65535, 65535},
             {"agent.heartbeat_ms", &site.heartbeat_ms, 20, 60000},
             {"agent.silent_ms", &site.silent_ms, 100, 600000},
             {"agent.fence_ms", &site.fence_ms, 100, 600000},
             {"agent.dry_run", &site.dry_run},
             {"agent.drain_share", &site.drain_share, 1e-6, 1},
             {"agent.kernel_log", &site.kernel_log},
             {"agent.nvml", &site.nvml},
             {"agent.check_paths", &site.check_paths},
             {"agent.metrics", &site.metrics},
             {"agent.metrics_certificate", &site.metrics_certificate},
             {"agent.metrics_key", &site.metrics_key},
             {"agent.peer_users", &site.peer_users},
             {"agent.straggler_s", &site.straggler_s, 20, 86400},
             {"agent.predict_drain", &site.predict_drain, 0, 1000},
             {"agent.memory_tier_bytes", &site.memory_tier_bytes, 0, 1e15},
             {"agent.node_tier", &site.node_tier},
             {"network.training_interfaces", &site.training_interfaces},
             {"hardware.gpus_per_node", &site.gpus_per_node, 1, 1024},
             {"hardware.gpu_memory", &site.gpu_memory, 0.001, 1e6},
             {"hardware.gpu_tflops", &site.gpu_tflops, 1e-6, 1e9},
             {"hardware.gpu_memory_bandwidth", &site.gpu_memory_bandwidth, 1e-3, 1e9},
             {"hardware.gpu_link", &site.gpu_link, 1e-3, 1e9},
             {"hardware.gpu_network", &site.gpu_network, 1e-3, 1e9},
             {"placement.reserved_cores", &site.reserved_cores},
             {"placement.oversubscription", &site.oversubscription, 1, 1000},
             {"placement.rails", &site.rails},
             {"placement.topology", &site.topology},
             {"placement.nccl_topology", &site.nccl_topology},
             {"placement.speeds", &site.speeds},
             {"slurm.conf", &site.slurm_conf}});
  return site;
}

std::string this_node() {
  if (const char* name = std::getenv("SLURMD_NODENAME"); name != nullptr && *name != '\0') return name;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string full = host;
  return full.substr(0, full.find('.'));
}

}  // namespace mm
