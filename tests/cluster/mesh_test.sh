#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The agents of many nodes in one job: heartbeats go to few, whatever the number of nodes; one silent node is found, and nobody else. MM_MESH_NODES
# is the number of nodes (default 16; `make bench-agent` takes 128). Says what the mesh costs and how soon the node was found.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=/dev/null
. "$here/lib/check.sh"
BUILD=${BUILD:-$here/../../build}
mini=$here/mini-slurm
nodes=${MM_MESH_NODES:-16}
export MINI_SLURM_NAME=mesh-$$

if [ "$(id -u)" != 0 ]; then test_case "mesh"; skip "needs root"; finish; fi
stage=$(mktemp -d /tmp/mesh-stage.XXXXXX)
at_end rm -rf "$stage"
mkdir "$stage/bin"
for program in mm-agentd mm-agent spank_mm_train.so; do cp "$BUILD/$program" "$stage/bin/" || exit 1; done
at_end "$mini" down
"$mini" up --nodes "$nodes" --mode loopback --cpus 2 --agent "$stage/bin/mm-agentd" --plugin "$stage/bin/spank_mm_train.so" --stage "$stage/bin" >/dev/null || exit 1
eval "$("$mini" env)"
cd "$MINI_SLURM_HOME" || exit 1

agent() { local node=$1; shift; "$BUILD/mm-agent" --socket "$MINI_SLURM_DIR/run/agent-$node.sock" "$@"; }
in_job() { agent "$1" status --json | grep -q '"batch_node":'; }
all_in_job() { local k; for ((k = nodes; k >= 1; k--)); do in_job "node$k" || return 1; done; }

test_case "$nodes agents: each beats to a few"
cat >job.sh <<'END'
#!/bin/bash
sleep 3600
END
chmod 755 job.sh
"$mini" as-user sbatch --parsable --no-kill -N"$nodes" -o /dev/null --mm-train=auto job.sh >/dev/null || fail "sbatch failed"
wait_until 120 all_in_job
expect_ok python3 "$here/lib/mesh.py" "$BUILD/mm-agent" "$MINI_SLURM_DIR" "$nodes" traffic
printf '%s\n' "$output"

test_case "$nodes agents: one silent node is found, and nobody else"
expect_ok python3 "$here/lib/mesh.py" "$BUILD/mm-agent" "$MINI_SLURM_DIR" "$nodes" silence
printf '%s\n' "$output"
finish
