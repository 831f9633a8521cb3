# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Starting and stopping munged, slurmctld, slurmd and mm-agentd. All run in the foreground under setsid, so that their pid
# is known at once; their environment is clean, but for SLURM_CONF and the mark of the instance.

# Closes what the caller had open besides the standard streams: a daemon must not hold a lock or a pipe of a test.
close_files() {
  local fd
  for fd in /proc/"$BASHPID"/fd/*; do
    fd=${fd##*/}
    [ "$fd" -le 2 ] || [ "$fd" = 255 ] || eval "exec $fd>&-"
  done
}

# start_daemon PIDFILE LOG CMD...
start_daemon() {
  local pidfile=$1 log=$2 pid keep=() variable
  shift 2
  running_pid "$pidfile" >/dev/null && return 0
  for variable in ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS LSAN_OPTIONS; do
    [ -z "${!variable-}" ] || keep+=("$variable=${!variable}")
  done
  (
    cd / || exit 1
    close_files
    exec env -i PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" HOME=/root LANG=C.UTF-8 "${keep[@]}" \
      SLURM_CONF="$dir/slurm.conf" MINI_SLURM_INSTANCE="$dir" setsid "$@"
  ) </dev/null >>"$dir/log/$log" 2>&1 &
  pid=$!
  disown $pid
  record_pid "$pidfile" $pid
}

munge_answers() { munge -n -S "$dir/munge/socket"; }

start_munged() {
  running_pid munged >/dev/null && return 0
  if [ ! -d "$dir/munge" ]; then
    install -d -o munge -g munge -m 755 "$dir/munge"
    install -d -o munge -g munge -m 700 "$dir/munge/private"
    install -o munge -g munge -m 400 <(head -c 128 /dev/urandom) "$dir/munge/private/key"
  fi
  rm -f "$dir/munge/socket" "$dir/munge/socket.lock"
  start_daemon munged munged setpriv --reuid=munge --regid=munge --clear-groups munged --foreground \
    --socket="$dir/munge/socket" --key-file="$dir/munge/private/key" --pid-file="$dir/munge/private/pid" \
    --log-file="$dir/munge/private/log" --seed-file="$dir/munge/private/seed"
  wait_for 10 "an answer of munged" munge_answers || die 1 "munged does not answer: see $dir/log/munged"
}

slurm() { local command=$1; shift; SLURM_CONF=$dir/slurm.conf timeout 20 "$command" "$@"; }
ctld_answers() { slurm scontrol ping | grep -q ' is UP'; }

start_ctld() {
  start_daemon slurmctld slurmctld.err slurmctld -D
  wait_for 20 "an answer of slurmctld" ctld_answers || die 1 "slurmctld does not answer: see $dir/log/slurmctld"
}

start_slurmd() {
  enter_node "$1"
  start_daemon "slurmd-$1" "slurmd-$1.err" "${enter[@]}" slurmd -D -N "$1"
}

start_agent() {
  local node=() words
  [ -n "$agent" ] || die 2 "the cluster was started without --agent"
  enter_node "$1"
  [ "$mode" = netns ] || node=(--node "$1")
  words=("${enter[@]}" env "${agent_env[@]}" "$agent" --config "$dir/mm-train.conf" "${node[@]}")
  start_daemon "agent-$1" "agent-$1" "${words[@]}"
}

# An agent is ready when it listens on its socket. Sockets are listed by network namespace.
agent_listens() {
  enter_node "$1"
  # Without -q, which would end ss by a signal where hundreds listen.
  "${enter[@]}" ss -Hxl | grep -F " $dir/run/agent-$1.sock " >/dev/null
}
agent_ready_or_gone() { agent_listens "$1" || gone "agent-$1"; }

wait_agent() {
  wait_for 20 "the socket of the agent of $1" agent_ready_or_gone "$1" && agent_listens "$1" ||
    die 1 "agent of $1: $(tail -n 1 "$dir/log/agent-$1")"
}

agent_verb() {
  case $2 in
    start) start_agent "$1"; wait_agent "$1" ;;
    stop) end_process "agent-$1" TERM ;;
    kill) end_process "agent-$1" KILL ;;
    *) die 2 "agent $1 '$2': start, stop or kill" ;;
  esac
}

node_states() { slurm sinfo -h -N -o '%N %T' | sort -uV; }
all_idle() { [ "$(node_states | grep -c ' idle$')" = "$nodes" ]; }

wait_nodes_idle() {
  wait_for "$1" "all nodes idle" all_idle || die 1 "nodes are not idle: $(node_states | grep -v ' idle$' | tr '\n' ';')"
}

show_status() {
  local bad=0 k daemon list=(munged slurmctld)
  printf '%s: %s nodes, %s, slot %s, %s\n' "$name" "$nodes" "$mode" "$slot" "$dir"
  for ((k = 1; k <= nodes; k++)); do
    list+=("slurmd-node$k")
    [ -z "$agent" ] || list+=("agent-node$k")
  done
  for daemon in "${list[@]}"; do
    if ! running_pid "$daemon" >/dev/null; then echo "$daemon: not running"; bad=1; fi
  done
  if running_pid slurmctld >/dev/null; then
    node_states
    node_states | grep -qvE ' (idle|allocated|mixed|completing)$' && bad=1
  fi
  return $bad
}
