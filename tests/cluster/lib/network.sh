# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# The nodes of netns mode. A node is a set of namespaces (net, mount, uts), held open by a process that only sleeps; it has
# eth0 on the management bridge and eth1 on the training bridge, its own host name, /etc/hosts, /dev/shm and PMIx folder,
# and a /sys that shows its own NICs. Nothing is pinned in the file system: when the last process of a node ends, all of
# it is gone. Links are called ms<slot>m (management bridge), ms<slot>t (training), ms<slot>m<k> and ms<slot>t<k>.
#
# Addresses come from 198.18.0.0/15, which is set aside for benchmarks of networks and so is nobody's own network.

management_address() { echo "198.18.$slot.$((10 + $1))"; }
training_address() { echo "198.19.$slot.$((10 + $1))"; }
controller_address() { if [ "$mode" = netns ]; then echo "198.18.$slot.1"; else echo 127.0.0.1; fi; }

# What a node needs of mounts; run inside its new namespaces as: set_up_mounts DIR NODE.
set_up_mounts='
  set -e
  hostname "$2"
  mount --rbind /sys/fs/cgroup "$1/cgroup"
  mount -t sysfs sysfs /sys
  mount --rbind "$1/cgroup" /sys/fs/cgroup
  umount -R -l "$1/cgroup"
  mount -t tmpfs -o mode=1777 tmpfs "$1/pmix"
  mount -t tmpfs -o mode=1777 tmpfs /dev/shm
  [ ! -f "$1/hosts" ] || mount --bind "$1/hosts" /etc/hosts
  ip link set lo up
'

# Tries what a node needs. Succeeds when all is allowed; else prints the reason and fails.
try_namespaces() {
  local scratch message
  scratch=$(mktemp -d /tmp/mini-slurm-probe.XXXXXX) || { echo "no scratch folder"; return 1; }
  mkdir "$scratch/cgroup" "$scratch/pmix"
  message=$(unshare --net --mount --uts --propagation slave sh -c "$set_up_mounts
    ip link add name probe0 type bridge
    ip link add name probe1 type veth peer name probe2" sh "$scratch" probe 2>&1)
  local status=$?
  rm -rf --one-file-system "$scratch"
  [ $status = 0 ] || printf '%s\n' "${message:-unshare failed}" | head -1
  return $status
}

make_network() {
  local k
  write_hosts
  add_bridge m
  add_bridge t
  ip addr add "$(controller_address)/24" dev "ms${slot}m" || die 1 "no address for bridge ms${slot}m"
  for ((k = 1; k <= nodes; k++)); do make_node $k; done
}

add_bridge() {
  ip link add "ms$slot$1" type bridge && ip link set "ms$slot$1" up || die 1 "bridge ms$slot$1 cannot be made"
}

write_hosts() {
  local k
  {
    echo "127.0.0.1 localhost"
    echo "::1 localhost ip6-localhost"
    echo "$(controller_address) $(hostname -s)"
    for ((k = 1; k <= nodes; k++)); do
      echo "$(management_address $k) node$k"
      echo "$(training_address $k) node$k-train"
    done
  } >"$dir/hosts"
}

make_node() {
  local k=$1 pid ready="$dir/run/.node$1"
  # A fifo tells when the namespaces stand: the holder opens it only then.
  mkfifo "$ready" || die 1 "$ready cannot be made"
  (
    close_files
    exec env -i PATH="$PATH" MINI_SLURM_INSTANCE="$dir" \
      setsid unshare --net --mount --uts --propagation slave sh -c "$set_up_mounts
        echo ready >\"\$3\"
        exec sleep infinity" sh "$dir" "node$k" "$ready"
  ) </dev/null >"$dir/log/holder-node$k" 2>&1 &
  pid=$!
  disown $pid
  record_pid "holder-node$k" $pid
  # Opened for reading and writing, so that a holder which dies early ends in the deadline and not in a wait for ever.
  local fd word
  exec {fd}<>"$ready"
  read -r -t 20 -u $fd word && [ "$word" = ready ] ||
    die 1 "node$k: namespaces cannot be made: $(tail -n 1 "$dir/log/holder-node$k")"
  exec {fd}>&-
  rm -f "$ready"
  readlink "/proc/$pid/ns/net" >>"$dir/namespaces"
  add_link m "$k" eth0 "$(management_address $k)" $pid
  add_link t "$k" eth1 "$(training_address $k)" $pid
}

add_link() {
  local which=$1 k=$2 interface=$3 address=$4 pid=$5 link="ms$slot$1$2"
  ip link add "$link" type veth peer name "$interface" netns "$pid" &&
    ip link set "$link" master "ms$slot$which" up &&
    nsenter -t "$pid" -n sh -c 'ip addr add "$1/24" dev "$2" && ip link set "$2" up' sh "$address" "$interface" ||
    die 1 "node$k: $interface cannot be made"
}

# A namespace is taken apart by the kernel some time after its last process; its links go at once this way.
remove_network() {
  local link left
  [ -n "$slot" ] || return 0
  for link in $(ip -o link | grep -oE "\bms${slot}[mt][0-9]*\b" | sort -u); do
    ip link del "$link" 2>/dev/null
  done
  left=$(ip -o link | grep -oE "\bms${slot}[mt][0-9]*\b" | sort -u)
  [ -z "$left" ] || { say "links that stay: $left"; return 1; }
}

need_node() {
  [[ $1 =~ ^node([0-9]+)$ ]] && [ "${BASH_REMATCH[1]}" -ge 1 ] && [ "${BASH_REMATCH[1]}" -le "$nodes" ] ||
    die 2 "no node '$1' (node1 to node$nodes)"
}

# Any process in the namespaces of a node serves to enter them, should the holder have been killed.
entry_pid() {
  local pid
  if pid=$(running_pid "holder-$1") || pid=$(running_pid "slurmd-$1"); then echo "$pid"; else return 1; fi
}

# Leaves the words that enter NODE in the array $enter: nothing in loopback mode.
enter_node() {
  local pid
  enter=()
  [ "$mode" = netns ] || return 0
  pid=$(entry_pid "$1") || die 1 "$1: its namespaces are gone (holder and slurmd ended)"
  enter=(nsenter -t "$pid" -n -m -u --)
}

exec_in_node() {
  local node=$1
  shift
  enter_node "$node"
  [ "$mode" = netns ] || export SLURMD_NODENAME=$node
  export SLURM_CONF=$dir/slurm.conf MM_TRAIN_CONF=$dir/mm-train.conf MINI_SLURM_INSTANCE=$dir
  exec "${enter[@]}" env -C "$PWD" "$@"
}
