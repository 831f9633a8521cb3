#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# mini-slurm itself: it comes up, does what the tests of the other parts rely on, and leaves nothing behind.
set -u -o pipefail
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=lib/check.sh
. "$here/lib/check.sh"

mini=$here/mini-slurm
a=check-a-$$ b=check-b-$$
scratch=$(mktemp -d /tmp/mini-slurm-test.XXXXXX)
chmod 755 "$scratch"
long=$((1000000 + $$)) # of the sleeps that stand for work; nobody else's
at_end rm -rf "$scratch"
at_end "$mini" down --name $a
at_end "$mini" down --name $b
had_user=0
id mmtrain-test >/dev/null 2>&1 && had_user=1

on_a() { "$mini" "$1" --name $a "${@:2}"; }
on_b() { "$mini" "$1" --name $b "${@:2}"; }

# Everything that an instance with state folder $1 could leave: processes (not zombies, which wait for init), mounts, the
# folder, its registry entry.
remains() {
  local pid
  # shellcheck disable=SC2013  # words are lines here
  for pid in $(grep -lzxFs -e "MINI_SLURM_INSTANCE=$1" -e "SLURM_CONF=$1/slurm.conf" /proc/[0-9]*/environ | cut -d/ -f3); do
    [ "$pid" = $$ ] || echo "process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
  done
  grep -F "$1/" /proc/mounts
  ls -d "$1" "/run/mini-slurm/${1#/tmp/mini-slurm-}" 2>/dev/null
}
slot_of() { sed -n 's/^slot=//p' "/run/mini-slurm/$1"; }
# The links of a slot, unless somebody else has it by now.
links_of() {
  grep -qsx "slot=$1" /run/mini-slurm/* || ip -o link | grep -oE "\bms$1[mt][0-9]*\b"
}

if [ "$(id -u)" != 0 ]; then
  test_case "mini-slurm"
  skip "needs root"
  finish
fi

test_case "the test library tells failures, and cleans up"
printf '%s\n' ". '$here/lib/check.sh'" "at_end touch '$scratch/cleaned'" 'test_case good' 'expect_eq 1 1' \
  'test_case bad' 'expect_eq 1 2 numbers' 'expect_ok true' 'test_case slow' 'wait_until 1 false' 'finish' >"$scratch/sample.sh"
expect_status 1 bash "$scratch/sample.sh"
expect_match "sample.sh:6: bad: numbers: expected '1', got '2'" "$output"
expect_match "waited 1 s in vain for: false" "$output"
expect_match "1 passed, 2 failed\$" "$output"
expect_ok test -e "$scratch/cleaned"

test_case "wrong use exits 2 and says why"
expect_status 2 "$mini"
expect_status 2 "$mini" fly
expect_match "no verb 'fly'" "$output"
expect_status 2 "$mini" up --name $a --nodes many
expect_match "--nodes 'many'" "$output"
expect_status 2 "$mini" up --name $a --nodes
expect_status 2 "$mini" up --name $a --mode cloud
expect_status 2 "$mini" up --name $a --agent /no/such/agent
expect_match "/no/such/agent" "$output"
expect_status 2 "$mini" up --name ../x
expect_status 1 "$mini" env --name $a
expect_match "not up" "$output"
expect_eq "" "$(remains /tmp/mini-slurm-$a)"

test_case "up: two instances at the same time, all nodes idle"
"$mini" up --name $b --nodes 3 --mode loopback --fast >"$scratch/up-b" 2>&1 &
up_b=$!
expect_ok on_a up --nodes 4 --gpus 4
printf '%s\n' "$output"
wait $up_b || fail "up of $b: $(cat "$scratch/up-b")"
cat "$scratch/up-b"
expect_ok on_a status
expect_match "node4 idle" "$output"
expect_ok on_b status
expect_match "node3 idle" "$output"
eval "$(on_a env)"
mode=$MINI_SLURM_MODE

test_case "up twice says that it is up already"
expect_ok on_a up --nodes 7
expect_match "up already \(4 nodes" "$output"

test_case "the two differ in ports, job ids and munge key"
for key in SlurmctldPort FirstJobId AuthInfo; do
  one=$(grep ^$key= /tmp/mini-slurm-$a/slurm.conf) two=$(grep ^$key= /tmp/mini-slurm-$b/slurm.conf)
  [ "$one" != "$two" ] || fail "both have $one"
done
expect_ok sh -c "munge -n -S /tmp/mini-slurm-$a/munge/socket | unmunge -S /tmp/mini-slurm-$a/munge/socket"
munge -n -S /tmp/mini-slurm-$a/munge/socket >"$scratch/credential"
expect_status 14 unmunge -S /tmp/mini-slurm-$b/munge/socket -i "$scratch/credential"

test_case "Slurm's commands work from the host with the lines of env"
expect_eq "node1 node2 node3 node4" "$(scontrol show hostnames "$(sinfo -h -o %N)" | xargs)"
expect_ok srun -N4 hostname

test_case "srun and sbatch as the ordinary user, each node with its own name and GPUs"
[ "$mode" = netns ] && expect_eq "node1 node2 node3 node4" "$(on_a as-user srun -N4 hostname | sort | xargs)"
expect_eq "$(on_a user) 0,1" \
  "$(on_a as-user srun -N1 --gpus-per-node=2 sh -c 'echo $(id -un) $CUDA_VISIBLE_DEVICES')"
expect_eq "/tmp/mini-slurm-$a/home" "$(cd / && on_a as-user sh -c 'cd && pwd')"
expect_ok on_a as-user sbatch -W -N2 --chdir="/tmp/mini-slurm-$a/home" -o out --wrap 'srun -l hostname'
expect_eq 2 "$(wc -l <"/tmp/mini-slurm-$a/home/out")"
expect_eq "" "$(on_a as-user scontrol update nodename=node1 state=drain reason=x 2>/dev/null)"
expect_match "node1 idle" "$(on_a status)" "an ordinary user cannot drain"

test_case "tasks are not bound to one core by default"
expect_eq "$(nproc --all)" "$(on_a as-user srun -N1 -n1 nproc)"

test_case "MPI over PMIx: 4 ranks on 4 nodes, then 4 on 2"
cat >"$scratch/hello.cc" <<'END'
#include <mpi.h>
#include <cstdio>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  std::printf("rank %d sum %d\n", rank, sum);
  MPI_Finalize();
}
END
if expect_ok mpicxx -o "$scratch/hello" "$scratch/hello.cc"; then
  want=$'rank 0 sum 6\nrank 1 sum 6\nrank 2 sum 6\nrank 3 sum 6'
  for shape in "-N4 -n4" "-N2 -n4"; do
    # shellcheck disable=SC2086  # two words
    expect_eq "$want" "$(on_a as-user env SLURM_PMIX_FENCE=ring srun --mpi=pmix $shape "$scratch/hello" | sort)" "$shape"
  done
  expect_eq $'rank 0 sum 3\nrank 1 sum 3\nrank 2 sum 3' \
    "$(on_b as-user env SLURM_PMIX_FENCE=ring srun --mpi=pmix -N3 -n3 "$scratch/hello" | sort)" "loopback"
fi

test_case "a folder that the user cannot enter is named"
mkdir "$scratch/closed" && cp /bin/true "$scratch/closed/" && chmod 700 "$scratch/closed"
expect_status 1 on_a as-user "$scratch/closed/true"
expect_match "$scratch/closed is closed" "$output"
expect_status 1 "$mini" up --name $a-2 --nodes 1 --plugin "$scratch/closed/true"
expect_match "cannot read it: $scratch/closed is closed" "$output"
expect_eq "" "$(remains /tmp/mini-slurm-$a-2)"

if [ "$mode" = netns ]; then
  carrier() { on_a exec "$1" ip -o link show "$2" | grep -oE 'LOWER_UP|NO-CARRIER|state DOWN' | head -1; }

  test_case "a NIC fault is seen by its node only"
  expect_ok on_a fault nic node2 eth1 down
  expect_eq "state DOWN" "$(carrier node2 eth1)"
  expect_eq LOWER_UP "$(carrier node2 eth0)"
  expect_eq LOWER_UP "$(carrier node1 eth1)"
  expect_eq "eth0 eth1 lo" "$(on_a exec node2 ls /sys/class/net | xargs)"
  expect_ok on_a fault nic node2 eth1 up
  wait_until 5 sh -c "'$mini' exec --name $a node2 ip -o link show eth1 | grep -q LOWER_UP"

  test_case "a pulled cable is a loss of carrier in the node"
  expect_ok on_a fault cable node3 eth1 out
  expect_eq NO-CARRIER "$(carrier node3 eth1)"
  expect_ok on_a fault cable node3 eth1 in

  test_case "a silent node answers nobody and is back after heal, its job gone"
  on_a as-user sbatch -N2 -w node2,node3 -o /dev/null --wrap "trap '' TERM; srun sleep $long; sleep $long" >/dev/null
  wait_until 10 sh -c "[ \$(pgrep -fxc '(/usr/bin/)?sleep $long') -ge 2 ]"
  reach="exec 3<>/dev/tcp/198.18.$(slot_of $a).13/$(($(sed -n 's/^SlurmctldPort=//p' "$SLURM_CONF") + 1))"
  expect_ok timeout 3 bash -c "$reach"
  expect_ok on_a fault silent node3 on
  timeout 3 bash -c "$reach" 2>/dev/null && fail "node3 still answers"
  scontrol update nodename=node3 state=drain reason=test
  scontrol update nodename=node3 state=down reason=test
  expect_ok on_a heal
  expect_ok on_a status
  expect_eq "" "$(squeue -h)"
  expect_eq "" "$(pgrep -fx "(/usr/bin/)?sleep $long")" "tasks"

  test_case "a node without power has no process left, and boots again"
  on_a as-user sbatch -N1 -w node4 -o /dev/null --wrap "srun sleep $long" >/dev/null
  wait_until 10 sh -c "[ \$(pgrep -fxc '(/usr/bin/)?sleep $long') -ge 1 ]"
  expect_ok on_a fault power node4 off
  expect_eq "" "$(pgrep -fx "(/usr/bin/)?sleep $long")" "tasks"
  expect_status 1 on_a status
  expect_match "slurmd-node4: not running" "$output"
  expect_ok on_a fault power node4 on
  expect_ok on_a heal
  expect_ok on_a status
else
  test_case "faults of NICs"
  skip "namespaces are not allowed here"
fi

test_case "faults of slurmd, slurmctld and munged"
expect_ok on_a fault slurmd node1 kill
expect_status 1 on_a status
expect_match "slurmd-node1: not running" "$output"
expect_ok on_a fault slurmd node1 start
expect_ok on_a fault ctld kill
expect_status 1 timeout 30 scontrol ping
expect_ok on_a fault ctld start
expect_ok on_a fault munged kill
expect_status 6 timeout 10 munge -n -S "$MINI_SLURM_MUNGE_SOCKET"
expect_ok on_a fault munged start
expect_ok on_a heal
expect_eq 4 "$(on_a as-user srun -N4 hostname | wc -l)"
expect_status 2 on_b fault nic node1 eth1 down
expect_status 2 on_a fault nic node9 eth1 down

test_case "agents are started, killed and started again, as root in their node"
cat >"$scratch/agent" <<'END'
#!/usr/bin/python3
# Stands in for the agent: listens where an agent listens.
import socket, sys, os
node = sys.argv[sys.argv.index("--node") + 1] if "--node" in sys.argv else os.uname().nodename
config = open(sys.argv[sys.argv.index("--config") + 1]).read()
path = config.split('run_dir = "')[1].split('"')[0] + f"/agent-{node}.sock"
if os.path.exists(path):
    os.unlink(path)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(path)
listener.listen()
print("uid", os.getuid(), "extra", os.environ.get("EXTRA"), flush=True)
listener.accept()
END
chmod 755 "$scratch/agent"
expect_ok on_b down
expect_ok on_b up --nodes 2 --agent "$scratch/agent" --agent-env EXTRA=7 --plugin "$scratch/hello.cc" --stage "$scratch"
expect_eq "uid 0 extra 7" "$(cat "/tmp/mini-slurm-$b/log/agent-node2")"
expect_match "/stage/" "$(cat /tmp/mini-slurm-$b/plugstack.conf)"
expect_ok on_b agent node2 kill
expect_status 1 on_b status
expect_match "agent-node2: not running" "$output"
expect_ok on_b agent node2 start
expect_ok on_b status
echo 'print("cannot")' >"$scratch/bad_agent"
expect_status 1 "$mini" up --name $a-2 --nodes 1 --agent "$scratch/bad_agent"
expect_match "agent of node1" "$output"
expect_eq "" "$(remains /tmp/mini-slurm-$a-2)"

test_case "down leaves nothing behind, with jobs running and nodes hurt"
setsid "$mini" as-user --name $a srun -N4 sh -c "trap '' TERM; setsid sleep $long & sleep $long" >/dev/null 2>&1 &
disown $!
wait_until 10 sh -c "[ \$(pgrep -fxc '(/usr/bin/)?sleep $long') -ge 8 ]"
"$mini" as-user --name $b sbatch -o /dev/null --wrap "setsid sleep $long & sleep $long" >/dev/null 2>&1
wait_until 10 sh -c "[ \$(pgrep -fxc '(/usr/bin/)?sleep $long') -ge 10 ]"
namespaces=$(cat /tmp/mini-slurm-$a/namespaces 2>/dev/null)
slot=$(slot_of $a)
if [ "$mode" = netns ]; then
  on_a fault silent node2 on
  # The process that holds a node open is killed: the node lives on in its slurmd, and is still found.
  kill -KILL "$(cut -d' ' -f1 /tmp/mini-slurm-$a/pid/holder-node3)"
  expect_eq node3 "$(on_a exec node3 hostname)"
fi
kill -STOP "$(cut -d' ' -f1 /tmp/mini-slurm-$a/pid/slurmd-node1)"
on_a fault ctld kill
expect_ok on_a down
expect_ok on_b down
unset SLURM_CONF
expect_eq "" "$(remains /tmp/mini-slurm-$a)"
expect_eq "" "$(remains /tmp/mini-slurm-$b)"
expect_eq "" "$(pgrep -fx "(/usr/bin/)?sleep $long")" "tasks"
expect_eq "" "$(links_of "$slot")" "network links"
if [ "$mode" = netns ]; then
  expect_eq 4 "$(wc -l <<<"$namespaces")" "namespaces before"
  expect_eq "" "$(find /proc/[0-9]*/ns/net -maxdepth 0 -printf '%l\n' 2>/dev/null | grep -F "$namespaces")" "namespaces"
fi
[ $had_user = 1 ] || [ -e /run/mini-slurm/.user ] || expect_status 1 id mmtrain-test
expect_ok on_a down
expect_match "not up" "$output"

test_case "down cleans up after an up that was killed half-way"
expect_eq "" "$(remains /tmp/mini-slurm-$a)"
"$mini" up --name $a --nodes 40 >/dev/null 2>&1 &
half=$!
disown $half
wait_until 10 test -s "/tmp/mini-slurm-$a/log/munged"
kill -KILL $half
slot=$(slot_of $a)
wait_until 5 sh -c "! kill -0 $half"
expect_status 1 on_a up
expect_match "half up" "$output"
expect_ok on_a down
expect_eq "" "$(remains /tmp/mini-slurm-$a)"
expect_eq "" "$(links_of "$slot")" "network links"

test_case "without the right to make namespaces, it says so and falls back to loopback"
expect_ok sh -c "umask 077; setpriv --bounding-set=-sys_admin '$mini' up --name $a --nodes 2 --mode netns"
expect_match "namespaces are not allowed here.*falling back to loopback" "$output"
expect_eq 2 "$(on_a as-user srun -N2 echo x | wc -l)"
expect_ok on_a down

finish
