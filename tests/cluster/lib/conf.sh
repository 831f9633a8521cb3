# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# The configuration files of an instance, and the environment that leads the Slurm commands to them.

write_configuration() {
  local port host k devices=''
  port=$(ports_of "$slot")
  host=$(hostname -s)
  # Choices, where the reason is not plain:
  # - ReturnToService=1: a node that Slurm itself found silent comes back when it registers; what a person or an agent set
  #   down stays down. So a test sees what the code under test did; `mini-slurm heal` resumes the rest.
  # - UnkillableStepTimeout=180: with 60 s Slurm drains healthy nodes whose step waits for a dead one.
  # - TaskPluginParam=None and OverSubscribe=EXCLUSIVE (whole nodes, as training clusters give out): nodes share the cores of
  #   this machine; otherwise the first task of every node is bound to core 0, all to the same one. --cpu-bind still works.
  # - FirstJobId: job ids differ between instances, so that no file named after a job is ever shared.
  # - PropagateResourceLimits=NONE: a job must not depend on the limits of the shell that submits it.
  # - batch_sched_delay, bf_interval, sched_interval: a submitted job starts at once.
  cat >"$dir/slurm.conf" <<END
ClusterName=mini
SlurmctldHost=$host($(controller_address))
SlurmctldPort=$port
SlurmUser=root
MailProg=/bin/true
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
StateSaveLocation=$dir/ctld
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/slurmd-%n
SlurmctldDebug=info
SlurmdDebug=info
PlugStackConfig=$dir/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
TaskPluginParam=None
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MpiDefault=none
PropagateResourceLimits=NONE
ReturnToService=1
UnkillableStepTimeout=180
JobRequeue=1
FirstJobId=$((slot * 10000 + 1))
TmpFS=$dir/tmp/%n
GresTypes=gpu
END
  if [ "$fast" = 1 ]; then printf 'TCPTimeout=1\nMessageTimeout=5\n' >>"$dir/slurm.conf"; fi
  if [ -n "$topology" ]; then
    cp "$topology" "$dir/topology.conf" || die 1 "$topology cannot be copied"
    echo TopologyPlugin=topology/tree >>"$dir/slurm.conf"
  fi
  write_node_lines "$port" >>"$dir/slurm.conf"
  echo "PartitionName=all Nodes=node[1-$nodes] Default=YES OverSubscribe=EXCLUSIVE MaxTime=INFINITE State=UP" >>"$dir/slurm.conf"
  if [ "$mode" = netns ]; then
    echo "PMIxCliTmpDirBase=$dir/pmix" >"$dir/mpi.conf"
  else
    # Without it PMIx takes TmpFS, which carries the node's name here: several slurmds on one host do not collide.
    : >"$dir/mpi.conf"
  fi
  : >"$dir/gres.conf"
  if [ "$gpus" -gt 0 ]; then
    mkdir -p "$dir/dev"
    for ((k = 0; k < gpus; k++)); do
      mknod -m 666 "$dir/dev/nvidia$k" c 195 "$k" || die 1 "mknod $dir/dev/nvidia$k failed"
    done
    devices="nvidia[0-$((gpus - 1))]"
    [ "$gpus" -gt 1 ] || devices=nvidia0
    echo "NodeName=node[1-$nodes] Name=gpu File=$dir/dev/$devices" >"$dir/gres.conf"
  fi
  : >"$dir/plugstack.conf"
  if [ -n "$plugin" ]; then echo "optional $plugin config=$dir/mm-train.conf" >"$dir/plugstack.conf"; fi
  write_site_configuration
}

write_node_lines() {
  local port=$1 k memory common
  memory=$(awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo)
  common="CPUs=$cpus RealMemory=$memory State=UNKNOWN"
  [ "$gpus" = 0 ] || common="$common Gres=gpu:$gpus"
  if [ "$mode" = loopback ]; then
    echo "NodeName=node[1-$nodes] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + nodes))] $common"
    return
  fi
  for ((k = 1; k <= nodes; k++)); do
    echo "NodeName=node$k NodeAddr=$(management_address $k) Port=$((port + 1)) $common"
  done
}

# What mm-train itself reads.
write_site_configuration() {
  local interfaces='"eth1"' metrics=127.0.0.1:9440
  # Loopback nodes have no NICs and no addresses of their own.
  [ "$mode" = netns ] || interfaces='' metrics=''
  cat >"$dir/mm-train.conf" <<END
[agent]
run_dir = "$dir/run"
state_dir = "$dir/agent"
kernel_log = "$dir/kernel-%n.log"
metrics = "$metrics"
memory_tier_bytes = 1000000000
node_tier = "$dir/node-tier/%n"

[network]
training_interfaces = [$interfaces]

[slurm]
conf = "$dir/slurm.conf"
END
}

print_environment() {
  local pairs=(
    "MINI_SLURM_NAME=$name" "MINI_SLURM_DIR=$dir" "MINI_SLURM_MODE=$mode" "MINI_SLURM_NODES=$nodes"
    "MINI_SLURM_USER=$test_user" "MINI_SLURM_HOME=$dir/home" "MINI_SLURM_MUNGE_SOCKET=$dir/munge/socket"
    "SLURM_CONF=$dir/slurm.conf" "MM_TRAIN_CONF=$dir/mm-train.conf"
  ) pair
  [ -z "$stage" ] || pairs+=("MINI_SLURM_STAGE=$dir/stage/${stage##*/}")
  for pair in "${pairs[@]}"; do printf 'export %s=%q\n' "${pair%%=*}" "${pair#*=}"; done
}
