#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What placement costs a launch, measured; called by `make bench-placement`. 128 nodes x 8 tasks in loopback mode, an agent on each node,
# srun true with --mm-train=tp=8,pp=4 and with --mm-train=off (where the plugin does nothing), in interleaved pairs: seconds, and CPU seconds
# of the whole machine, so that whatever else runs counts, too. PAIRS and NODES change the numbers. "Without" is without mm-train at all: the
# difference holds what srun and the tasks do for placement, and what the agents hear of a step: a message a node when its tasks start, one a
# task when it ends, and one a node to the batch node.
set -u -o pipefail
here=$(dirname "$(readlink -f "$0")")
mini=$here/mini-slurm
build=$(readlink -f "${BUILD:-$here/../../build}")
pairs=${PAIRS:-15} nodes=${NODES:-128}
[ "$(id -u)" = 0 ] || { echo "placement_bench: needs root" >&2; exit 2; }
scratch=$(mktemp -d /tmp/placement-bench.XXXXXX)
chmod 755 "$scratch"
export MINI_SLURM_NAME=bench-place-$$
clean_up() {
  "$mini" down >/dev/null 2>&1
  rm -rf "$scratch"
}
trap clean_up EXIT
median() { sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

leaves=$(((nodes + 15) / 16))
{
  for ((l = 0; l < leaves; l++)); do echo "SwitchName=leaf$l Nodes=node[$((l * 16 + 1))-$((l * 16 + 16 < nodes ? l * 16 + 16 : nodes))]"; done
  echo "SwitchName=spine Switches=leaf[0-$((leaves - 1))]"
} >"$scratch/topology.conf"
# Only what is needed is copied.
mkdir "$scratch/stage"
cp "$build/spank_mm_train.so" "$build/mm-agentd" "$build/mm-place" "$scratch/stage/"
"$mini" up --nodes "$nodes" --mode loopback --cpus 8 --topology "$scratch/topology.conf" --plugin "$scratch/stage/spank_mm_train.so" \
  --agent "$scratch/stage/mm-agentd" >"$scratch/up" 2>&1 || { cat "$scratch/up"; exit 1; }
eval "$("$mini" env)"
cat >"$MINI_SLURM_HOME/launch.sh" <<'END'
#!/bin/bash
busy() { awk '/^cpu / {print $2 + $3 + $4 + $7 + $8}' /proc/stat; }
srun --mm-train=off true
for ((k = 0; k < pairs; k++)); do
  for way in off tp=8,pp=4; do
    ticks=$(busy) began=$EPOCHREALTIME
    srun --mm-train=$way true || { echo failed; continue; }  # no launch, no time
    awk -v w=$way -v s="$began" -v t="$EPOCHREALTIME" -v u=$(($(busy) - ticks)) 'BEGIN {printf "%s %.3f %.2f\n", w, t - s, u / 100}'
  done
done
END
chmod 755 "$MINI_SLURM_HOME/launch.sh"
"$mini" as-user env -C "$MINI_SLURM_HOME" pairs="$pairs" sbatch --wait -N "$nodes" --ntasks-per-node=8 --mm-train=auto -o launch.out launch.sh >/dev/null
out=$MINI_SLURM_HOME/launch.out
grep -vE '^(off|tp|failed$)' "$out" | sort | uniq -c | sort -rn | head -3
echo "launches that failed: $(grep -c '^failed$' "$out"), lines of srun: $(grep -cvE '^(off|tp|failed$)' "$out")"
for column in 2 3; do
  awk -v c=$column '$1 == "off" {print $c}' "$out" >"$scratch/off"
  awk -v c=$column '$1 ~ /^tp/ {print $c}' "$out" >"$scratch/on"
  printf 'launch of %d tasks on %d nodes, %s: with placement %s, without %s, ratio %.3f (medians of %d pairs; limit 1.10)\n' \
    $((nodes * 8)) "$nodes" "$([ $column = 2 ] && echo seconds || echo 'CPU seconds')" "$(median <"$scratch/on")" "$(median <"$scratch/off")" \
    "$(paste "$scratch/off" "$scratch/on" | awk '{print $2 / $1}' | median)" "$(wc -l <"$scratch/on")"
done
