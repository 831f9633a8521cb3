# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Faults of the cluster for tests, one verb each, and `heal`, which undoes them all.

set_nic() {
  [ "$mode" = netns ] || die 2 "NICs can fail in netns mode only"
  enter_node "$1"
  "${enter[@]}" ip link set "$2" "$3" || die 1 "$1: $2 cannot be set $3"
}

need_interface() { case $1 in eth0 | eth1) ;; *) die 2 "no interface '$1': eth0 (management) or eth1 (training)" ;; esac; }

# The end of the link that is outside the node.
set_cable() {
  local which=m
  [ "$mode" = netns ] || die 2 "NICs can fail in netns mode only"
  [ "$2" = eth0 ] || which=t
  ip link set "ms$slot$which${1#node}" "$3" || die 1 "$1: cable of $2 cannot be set $3"
}

# All processes of the node $powered_off, but for the one that holds its namespaces open.
powered_off_pids() {
  local holder
  holder=$(running_pid "holder-$powered_off") || die 1 "$powered_off: the process that holds its namespaces is gone"
  find /proc/[0-9]*/ns/net -maxdepth 0 -lname "net:\\[$(readlink "/proc/$holder/ns/net" | tr -dc 0-9)\\]" 2>/dev/null |
    cut -d/ -f3 | grep -vxF "$holder"
}

fault_verb() {
  local what=$1 k
  shift
  case $what in
    nic | cable) [ $# = 3 ] || die 2 "fault $what NODE INTERFACE ..."; need_node "$1"; need_interface "$2" ;;
    silent | power | slurmd) [ $# = 2 ] || die 2 "fault $what NODE ..."; need_node "$1" ;;
    ctld | munged) [ $# = 1 ] || die 2 "fault $what kill|start" ;;
    *) die 2 "no fault '$what': nic, cable, silent, power, slurmd, ctld or munged" ;;
  esac
  case "$what ${*: -1}" in
    'nic down' | 'nic up') set_nic "$1" "$2" "$3" ;;
    'cable out') set_cable "$1" "$2" down ;;
    'cable in') set_cable "$1" "$2" up ;;
    'silent on') for k in eth0 eth1; do set_nic "$1" $k down; done ;;
    'silent off') for k in eth0 eth1; do set_nic "$1" $k up; done ;;
    'power off')
      for k in eth0 eth1; do set_nic "$1" $k down; done
      powered_off=$1
      kill_all powered_off_pids || die 1 "$1: processes that do not end" ;;
    'power on')
      for k in eth0 eth1; do set_nic "$1" $k up; done
      start_slurmd "$1"
      [ -z "$agent" ] || agent_verb "$1" start ;;
    'slurmd kill') end_process "slurmd-$1" KILL ;;
    'slurmd start') start_slurmd "$1" ;;
    'ctld kill')
      have_ctld_write
      end_process slurmctld KILL ;;
    'ctld start') start_ctld ;;
    'munged kill') end_process munged KILL ;;
    'munged start') start_munged ;;
    *) die 2 "fault $what: unknown setting '${*: -1}'; see mini-slurm --help" ;;
  esac
}

# slurmctld writes its state some seconds after a change. A job that is not in it would be lost, and its number given to the next one,
# while the nodes still know it ("Duplicate jobid", which drains them): not the fault that is meant.
have_ctld_write() {
  local job
  job=$(slurm squeue -h -o %A 2>/dev/null | head -n 1)
  [ -n "$job" ] || return 0
  : >"$dir/ctld/asked"
  slurm scontrol update "jobid=$job" comment=written >/dev/null 2>&1 || return 0  # a change, so that there is something to write
  wait_for 30 "slurmctld's state on disk" ctld_has_written || die 1 "slurmctld does not write its state: see $dir/log/slurmctld"
}
ctld_has_written() { [ "$dir/ctld/job_state" -nt "$dir/ctld/asked" ]; }

job_count_is_zero() { [ -z "$(slurm squeue -h)" ]; }

# Slurm's commands that the agents have started. One that could not reach the controller would drain a node after all, once it is healed.
agents_commands() {
  local pid command
  for pid in $(instance_pids); do
    { read -r command <"/proc/$pid/comm"; } 2>/dev/null || continue
    case $command in scontrol | squeue | scancel) echo "$pid" ;; esac
  done
}

heal() {
  local k interface
  if [ -n "$agent" ]; then
    for ((k = 1; k <= nodes; k++)); do agent_verb "node$k" stop; done
    kill_all agents_commands || die 1 "commands of agents do not end"
  fi
  start_munged
  start_ctld
  for ((k = 1; k <= nodes; k++)); do
    if [ "$mode" = netns ]; then
      for interface in eth0 eth1; do
        set_cable "node$k" $interface up
        set_nic "node$k" $interface up
      done
    fi
    start_slurmd "node$k"
  done
  local jobs node state
  jobs=$(slurm squeue -h -o %A)
  # shellcheck disable=SC2086  # a list of numbers
  [ -z "$jobs" ] || slurm scancel $jobs
  kill_all job_pids || die 1 "processes of jobs do not end"
  if ! wait_for 10 "the end of all jobs" job_count_is_zero; then
    # A node that never said that the job ended: declaring it down ends the job.
    while read -r node state; do
      [[ $state != *idle* ]] && slurm scontrol update nodename="$node" state=down reason="mini-slurm heal"
    done < <(node_states)
    wait_for 30 "the end of all jobs" job_count_is_zero || die 1 "jobs do not end: $(slurm squeue -h | tr '\n' ';')"
  fi
  while read -r node state; do
    case $state in
      *drain* | *down* | *fail*) slurm scontrol update nodename="$node" state=resume ;;
    esac
  done < <(node_states)
  wait_nodes_idle 60
  # Slurm 22.05 takes cores of a job that lost a node, or whose srun died before the step's end, for busy until it reads its configuration again.
  slurm scontrol reconfigure
  wait_nodes_idle 60
  [ -n "$agent" ] || return 0
  for ((k = 1; k <= nodes; k++)); do start_agent "node$k"; done
  for ((k = 1; k <= nodes; k++)); do wait_agent "node$k"; done
}
