# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# What an instance of mini-slurm is: its options, its entry in the registry, its folders, and its processes.
#
# The registry is a file per instance in /run/mini-slurm: where its state folder is, and its slot, a small number that no
# other instance has. Ports, subnets and the names of links follow from the slot, so that instances never meet.
# One thing outlives all instances: the empty file that the registry is locked by.
# A pid file holds "PID STARTTIME"; the start time tells a process from a later one with the same pid.

registry=/run/mini-slurm
lock_file=/run/mini-slurm.lock
test_user=mmtrain-test

say() { printf 'mini-slurm: %s\n' "$*" >&2; }
die() { local status=$1; shift; say "$*"; exit "$status"; }
since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }
no_arguments() { [ $# = 0 ] || die 2 "unexpected argument '$1'"; }

defaults() {
  name=${MINI_SLURM_NAME:-default}
  nodes=5 gpus=0 cpus=8 mode='' dir='' fast=0 topology='' agent='' plugin='' stage='' slot='' reserved=''
  agent_env=() arguments=()
}

# Options may stand before or behind plain arguments, but what follows the NODE of exec, or as-user, is the command's own.
parse_options() {
  local verb=$1 value
  shift
  while [ $# -gt 0 ]; do
    case $1 in
      -h | --help) usage; exit 0 ;;
      --name=* | --nodes=* | --gpus=* | --cpus=* | --mode=* | --dir=* | --topology=* | --agent=* | --agent-env=* | \
        --plugin=* | --stage=*)
        value=${1#*=}
        set -- "${1%%=*}" "$value" "${@:2}"
        continue ;;
      --fast) [ "$verb" = up ] || die 2 "$1 is an option of up"; fast=1; shift ;;
      --name | --nodes | --gpus | --cpus | --mode | --dir | --topology | --agent | --agent-env | --plugin | --stage)
        [ $# -ge 2 ] || die 2 "$1 needs a value"
        [ "$1" = --name ] || [ "$verb" = up ] || die 2 "$1 is an option of up"
        case $1 in
          --agent-env) agent_env+=("$2") ;;
          --topology | --agent | --plugin | --stage)
            [ -e "$2" ] || die 2 "$1: $2: no such file"
            printf -v "${1#--}" %s "$(readlink -f "$2")" ;;
          --dir) dir=$(readlink -m "$2") ;;
          *) printf -v "${1#--}" %s "$2" ;;
        esac
        shift 2 ;;
      --) shift; arguments+=("$@"); break ;;
      -*) die 2 "no option '$1'; see mini-slurm --help" ;;
      *)
        arguments+=("$1")
        shift
        if [ "$verb" = as-user ] || [ "$verb" = exec ]; then
          [ "${1-}" = -- ] && shift
          arguments+=("$@")
          break
        fi ;;
    esac
  done
  [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$ ]] || die 2 "--name '$name': letters, digits, '.', '_' and '-' only"
  case $mode in '' | netns | loopback) ;; *) die 2 "--mode '$mode': netns or loopback" ;; esac
}

check_numbers() {
  local most=200 option
  [ "$mode" = loopback ] && most=128
  for option in nodes gpus cpus; do
    [[ ${!option} =~ ^[0-9]{1,4}$ ]] || die 2 "--$option '${!option}': a number is wanted"
  done
  [ "$nodes" -ge 1 ] && [ "$nodes" -le $most ] || die 2 "--nodes $nodes: 1 to $most in $mode mode"
  [ "$cpus" -ge 1 ] || die 2 "--cpus $cpus: at least 1"
}

need_programs() {
  local program missing=()
  for program in slurmctld slurmd scontrol sinfo munged ip nsenter unshare setpriv flock ss useradd; do
    command -v $program >/dev/null || missing+=("$program")
  done
  [ ${#missing[@]} = 0 ] || die 2 "programs are missing: ${missing[*]}"
  id munge >/dev/null 2>&1 || die 2 "the user munge is missing (package munge)"
}

# Finds the entry of an instance, complete or not.
find_instance() {
  [ -f "$registry/$name" ] || return 1
  READY=0
  # shellcheck source=/dev/null
  . "$registry/$name"
}
load_instance() { find_instance && [ "$READY" = 1 ]; }

lock_registry() { exec {lock_fd}>"$lock_file"; flock "$lock_fd"; }
unlock_registry() { exec {lock_fd}>&-; }

slot_is_free() {
  local candidate=$1 first
  ! grep -qsx "slot=$candidate" "$registry"/* || return 1
  ! ip -o addr | grep -qE " 198\.1[89]\.$candidate\." || return 1
  ! ip -o link show "ms${candidate}m" >/dev/null 2>&1 || return 1
  first=$(ports_of "$candidate")
  ! ss -Hltun | awk -v a="$first" '{ sub(/.*:/, "", $5); print ($1 == "udp" ? $5 - 100 : $5) - a }' |
    grep -qxE '[0-9]|[1-9][0-9]|1[0-3][0-9]'
}

# 140 ports a slot, all below the ephemeral range: the controller's, then those of slurmd, one a node in loopback mode.
# Agents take the UDP port 100 above their slurmd's.
ports_of() { echo $((10240 + $1 * 140)); }

reserve_instance() {
  local candidate
  dir=${dir:-/tmp/mini-slurm-$name}
  lock_registry
  [ ! -e "$registry/$name" ] || die 1 "$name is half up or being started by somebody else: mini-slurm down --name $name"
  [ ! -e "$dir" ] || die 1 "$dir exists already"
  # A socket's path has 107 bytes at most.
  [ ${#dir} -le 70 ] || die 2 "$dir: too long a path for the sockets in it (70 bytes at most)"
  mkdir -p "$registry"
  for ((candidate = 1; candidate <= 120; candidate++)); do
    slot_is_free $candidate && break
  done
  [ $candidate -le 120 ] || die 1 "no free slot: too many instances"
  slot=$candidate
  reserved=1
  {
    local key
    for key in slot mode nodes gpus cpus dir fast topology agent plugin stage; do
      printf '%s=%q\n' $key "${!key}"
    done
    printf 'agent_env=(%s)\n' "${agent_env[*]@Q}"
  } >"$registry/$name"
  mkdir -p "$dir" || die 1 "$dir cannot be made"
  chmod 755 "$dir"
  unlock_registry
}

make_folders() {
  local k
  mkdir -p "$dir"/{ctld,spool,log,pid,run,agent,home,pmix,cgroup,tmp}
  chmod 1777 "$dir/tmp"
  for ((k = 1; k <= nodes; k++)); do
    mkdir -p "$dir/spool/node$k" "$dir/tmp/node$k"
    chmod 1777 "$dir/tmp/node$k"
  done
}

# --- processes ---

# The fields of /proc/PID/stat behind the command name: state first, start time twentieth. Nothing for a zombie.
start_time() {
  local line fields
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  read -ra fields <<<"${line##*) }"
  [ "${fields[0]}" != Z ] && [ "${fields[0]}" != X ] || return 1
  printf '%s\n' "${fields[19]}"
}

record_pid() { printf '%s %s\n' "$2" "$(start_time "$2")" >"$dir/pid/$1"; }

# Prints the pid that pid file NAME stands for, if that very process still runs.
running_pid() {
  local pid began
  { read -r pid began <"$dir/pid/$1"; } 2>/dev/null || return 1
  [ -n "$began" ] && [ "$(start_time "$pid")" = "$began" ] && printf '%s\n' "$pid"
}

# wait_for SECONDS WHAT CMD...: polls until CMD succeeds; says WHAT did not happen.
wait_for() {
  local seconds=$1 what=$2 deadline
  shift 2
  deadline=$((SECONDS + seconds))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || { say "waited $seconds s in vain: $what"; return 1; }
    sleep 0.05
  done
}

gone() { ! running_pid "$1"; }

# end_process PIDFILE SIGNAL: sends it, waits, and falls back to KILL.
end_process() {
  local pid
  if pid=$(running_pid "$1"); then
    kill -"$2" "$pid" 2>/dev/null
    if ! wait_for 10 "the end of $1 (pid $pid)" gone "$1"; then
      kill -KILL "$pid" 2>/dev/null
      wait_for 10 "the end of $1 (pid $pid) after SIGKILL" gone "$1"
    fi
  fi
  rm -f "$dir/pid/$1"
}

marked_pids() { grep -lzxFs "MINI_SLURM_INSTANCE=$dir" /proc/[0-9]*/environ | cut -d/ -f3; }

# The network namespaces that were recorded, and those of the marked processes, but never our own.
instance_namespaces() {
  local pid
  {
    cat "$dir/namespaces" 2>/dev/null
    [ "$mode" = loopback ] || for pid in $(marked_pids); do readlink "/proc/$pid/ns/net"; done
  } | sort -u | grep -vxF "$(readlink /proc/self/ns/net)"
}

# All processes of the instance: in its network namespaces, or with its mark in their environment, or tasks of its jobs.
# Never this script or what started it.
instance_pids() {
  local file namespaces
  namespaces=$(instance_namespaces)
  {
    if [ -n "$namespaces" ]; then
      find /proc/[0-9]*/ns/net -maxdepth 0 -printf '%p %l\n' 2>/dev/null | grep -F "$namespaces" | cut -d/ -f3
    fi
    marked_pids
    grep -lzxFs "SLURM_CONF=$dir/slurm.conf" /proc/[0-9]*/environ | xargs -r grep -lzs '^SLURMD_NODENAME=' | cut -d/ -f3
    for file in "$dir"/pid/*; do running_pid "${file##*/}"; done
  } | sort -un | grep -vxF -f <(own_line)
}

own_line() {
  local pid=$$ line
  while [ "$pid" -gt 1 ]; do
    echo "$pid"
    { read -r line <"/proc/$pid/stat"; } 2>/dev/null || break
    read -r _ pid _ <<<"${line##*) }"
  done
}

# What is left of jobs: their tasks, and slurmstepd, which has no job in its environment.
job_pids() {
  local pid command
  for pid in $(instance_pids); do
    { read -r command <"/proc/$pid/comm"; } 2>/dev/null || continue
    if [ "$command" = slurmstepd ] || grep -qzs '^SLURM_JOB_ID=' "/proc/$pid/environ"; then echo "$pid"; fi
  done
}

# kill_all LIST: kills what the function LIST prints, until it prints nothing that lives.
kill_all() {
  local pids pid living deadline=$((SECONDS + 20))
  while pids=$($1); [ -n "$pids" ]; do
    living=0
    for pid in $pids; do
      start_time "$pid" >/dev/null || continue
      living=1
      kill -KILL "$pid" 2>/dev/null
    done
    [ $living = 1 ] || return 0
    [ $SECONDS -lt $deadline ] || { say "processes that do not end: ${pids//$'\n'/ }"; return 1; }
    sleep 0.05
  done
}

# A failed `up` takes its folder away again; what the daemons said last is shown first.
show_logs() {
  local log
  for log in "$dir"/log/*; do
    [ -s "$log" ] || continue
    say "last lines of $log:"
    tail -n 5 "$log" >&2
  done
}

tear_down() {
  local bad=0
  kill_all instance_pids || bad=1
  remove_network || bad=1
  if [ -d "$dir" ]; then
    rm -rf --one-file-system "$dir" || bad=1
  fi
  [ $bad = 0 ] || die 1 "$name: something is left; run down again"
  lock_registry
  rm -f "$registry/$name"
  remove_user
  rmdir --ignore-fail-on-non-empty "$registry" 2>/dev/null
  unlock_registry
  say "$name is down"
}
