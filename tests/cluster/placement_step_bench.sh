#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What placement gains, measured and not modelled; called by `make bench-placement`. Four nodes whose names alternate between two leaves: the
# training links of node1 and node3 are on one bridge, those of node2 and node4 on another, and a link slowed by tc (tbf) joins the two. The
# same training job (tp 2, dp 2, a rank a node: block order tears every tensor-parallel pair apart) runs in pairs, with placement and with
# --distribution=block; printed are the medians of step_s and of their ratio. The trainer's collectives on CPUs are direct exchanges, so that
# what a group of all four nodes sends over the spine is the same in any order: the gain is that of the pairs.
# PAIRS, RATE (of the spine) and STEPS change the numbers.
set -u -o pipefail
here=$(dirname "$(readlink -f "$0")")
mini=$here/mini-slurm
build=$(readlink -f "${BUILD:-$here/../../build}")
pairs=${PAIRS:-5} rate=${RATE:-100mbit} steps=${STEPS:-12}
[ "$(id -u)" = 0 ] || { echo "placement_step_bench: needs root" >&2; exit 2; }
scratch=$(mktemp -d /tmp/placement-step.XXXXXX)
chmod 755 "$scratch"
export MINI_SLURM_NAME=bench-step-$$
second=mpb$$ joint=mpj$$
clean_up() {
  ip link del "${joint}a" 2>/dev/null
  ip link del "$second" 2>/dev/null
  "$mini" down >/dev/null 2>&1
  rm -rf "$scratch"
}
trap clean_up EXIT
median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

printf '%s\n' 'SwitchName=leaf0 Nodes=node[1,3]' 'SwitchName=leaf1 Nodes=node[2,4]' 'SwitchName=spine Switches=leaf[0-1]' >"$scratch/topology.conf"
mkdir "$scratch/stage"
cp "$build/spank_mm_train.so" "$build/mm-trainer" "$scratch/stage/"
"$mini" up --nodes 4 --mode netns --topology "$scratch/topology.conf" --plugin "$scratch/stage/spank_mm_train.so" >"$scratch/up" 2>&1 || { cat "$scratch/up"; exit 1; }
eval "$("$mini" env)"
# The other end of a node's training link.
link_of() { ip -o link | awk -F': ' -v i="$("$mini" exec "$1" cat /sys/class/net/eth1/iflink)" '$1 == i {sub(/@.*/, "", $2); print $2}'; }
first=$(basename "$(readlink "/sys/class/net/$(link_of node1)/master")")
ip link add "$second" type bridge && ip link set "$second" up && ip link add "${joint}a" type veth peer name "${joint}b" || exit 1
ip link set "${joint}a" master "$first" up
ip link set "${joint}b" master "$second" up
for node in node2 node4; do ip link set "$(link_of $node)" master "$second"; done
for end in a b; do tc qdisc add dev "$joint$end" root tbf rate "$rate" burst 64kb latency 100ms || exit 1; done

home=$MINI_SLURM_HOME
install -m 755 "$build/mm-trainer" "$home/mm-trainer"
"$build/tests/make-fixture" "$home/fixture" --preset tiny --samples 64 >/dev/null || exit 1
chmod -R a+rX "$home/fixture"
cat >"$home/job.toml" <<END
[run]
steps = $steps
[model]
path = "fixture/model"
[data]
shards = "fixture/data/*.tar"
global_batch = 8
[parallel]
tp = 2
[checkpoint]
every = 1000
END
cat >"$home/pairs.sh" <<'END'
#!/bin/bash
for ((k = 0; k < pairs; k++)); do
  srun --mpi=pmix ./mm-trainer job.toml --set run.dir=ours-$k
  srun --mpi=pmix -m block ./mm-trainer job.toml --set run.dir=block-$k
done
END
chmod 755 "$home/pairs.sh"
"$mini" as-user env -C "$home" pairs="$pairs" sbatch --wait -N4 --ntasks-per-node=1 --mm-train=job.toml -o pairs.out pairs.sh >/dev/null || tail -5 "$home/pairs.out"
step_seconds() { sed -E 's/.*"step_s": ?([0-9.e+-]+).*/\1/' "$home/$1/metrics.jsonl" | tail -n +3 | median; }
for ((k = 0; k < pairs; k++)); do
  ours=$(step_seconds "ours-$k") block=$(step_seconds "block-$k")
  echo "$ours $block $(awk -v a="$ours" -v b="$block" 'BEGIN {print a / b}')"
done >"$scratch/pairs"
printf 'training step on 4 nodes behind a spine of %s: placed %.4f s, block order %.4f s, ratio %.3f (medians of %d pairs)\n' "$rate" \
  "$(awk '{print $1}' "$scratch/pairs" | median)" "$(awk '{print $2}' "$scratch/pairs" | median)" "$(awk '{print $3}' "$scratch/pairs" | median)" "$pairs"
