#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints in tiers nearer than the shared file system, in real jobs: the shared file system gets no save until the last step, so what a
# restart continues from can only be a copy in memory or on a node's disk. After each fault the job completes by itself with bitwise the
# losses of an undisturbed run, and the job's end leaves no copy behind.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=/dev/null
. "$here/lib/check.sh"
BUILD=${BUILD:-$here/../../build}
export MINI_SLURM_NAME=tiers-$$
mini=$here/mini-slurm
steps=120

for program in mm-run mm-agentd mm-trainer mm-ckpt spank_mm_train.so tests/make-fixture; do
  [ -e "$BUILD/$program" ] || { echo "tiers_test: $BUILD/$program is missing: make builds it" >&2; exit 1; }
done

# ---------------------------------------------------------------- the cluster and the job
stage=$(mktemp -d /tmp/tiers-stage.XXXXXX)
at_end rm -rf "$stage"
mkdir "$stage/bin"
cp "$BUILD"/mm-run "$BUILD"/mm-agentd "$BUILD"/mm-trainer "$BUILD"/mm-ckpt "$BUILD"/spank_mm_train.so "$stage/bin/"
"$BUILD/tests/make-fixture" "$stage/fixture" --preset tiny --samples 64 >/dev/null || { echo "make-fixture failed" >&2; exit 1; }

at_end "$mini" down
"$mini" up --nodes 4 --agent "$stage/bin/mm-agentd" --plugin "$stage/bin/spank_mm_train.so" --stage "$stage/bin" || exit 1
eval "$("$mini" env)"
work=$MINI_SLURM_HOME/work
disks=$MINI_SLURM_DIR/node-tier
mkdir "$work"
cp -r "$stage/fixture" "$work/fixture"
cat >"$work/job.sh" <<END
#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1 --open-mode=append --time=20
export PATH=$MINI_SLURM_STAGE:\$PATH
exec mm-run -- mm-trainer "\$MM_TRAIN_SPEC"
END
chown -R "$MINI_SLURM_USER": "$work"

submit() { # NAME TIERS SHARED_EVERY [EVERY [COMPRESS]]: sets $job
  cat >"$work/$1.toml" <<END
[run]
dir = "$work/$1"
steps = $steps
[model]
path = "$work/fixture/model"
[data]
shards = "$work/fixture/data/*.tar"
global_batch = 24
[parallel]
threads = 1
[checkpoint]
every = ${4:-5}
node_mtbf = 0.002
tiers = $2
shared_every = $3
compress = "${5:-off}"
[recovery]
spares = 1
hang_timeout = 10
END
  job=$("$mini" as-user bash -c "cd $work && sbatch --parsable --output=$work/$1.out --mm-train=$1.toml job.sh")
}

lines() { local n=0; [ ! -e "$1" ] || n=$(wc -l <"$1"); echo "$n"; }
trained() { [ "$(lines "$work/$1/metrics.jsonl")" -ge "$2" ]; }
job_state() { scontrol show job "$job" -o | grep -o ' JobState=[^ ]*' | cut -d= -f2; }
job_over() { case $(job_state) in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) return 0 ;; *) return 1 ;; esac; }
shared_steps() { find "$work/$1/checkpoints" -maxdepth 1 -name 'step-*' | wc -l; }
node_copies() { find "$disks" -name 'rank-*.h5' -path "*/job-$job/*" | wc -l; }
has_node_copies() { [ "$(node_copies)" -gt 0 ]; }
# Descriptors of memory that agents keep.
memory_copies() {
  local pid n=0
  for pid in $(agent_pids); do n=$((n + $(find "/proc/$pid/fd" -lname '/memfd:*step-*' 2>/dev/null | wc -l))); done
  echo "$n"
}
agent_pids() {
  local pid
  for pid in /proc/[0-9]*; do
    [ "$(readlink "$pid/exe" 2>/dev/null)" != "$MINI_SLURM_STAGE/mm-agentd" ] || echo "${pid#/proc/}"
  done
}
rank_pid() { # RANK
  python3 - "$job" "$1" <<'END'
import os, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/comm") as f:
            if f.read().strip() != "mm-trainer": continue
        with open(f"/proc/{pid}/environ", "rb") as f:
            env = dict(v.split(b"=", 1) for v in f.read().split(b"\0") if b"=" in v)
    except OSError:
        continue
    if env.get(b"SLURM_JOB_ID", b"").decode() == sys.argv[1] and env.get(b"SLURM_PROCID", b"").decode() == sys.argv[2]:
        print(pid)
END
}
losses() {
  python3 - "$work/$1/metrics.jsonl" <<'END'
import json, sys
for line in open(sys.argv[1]):
    m = json.loads(line, parse_float=str)
    print(m["step"], m["loss"], m["grad_norm"], m["lr"], m["tokens"])
END
}
copies_are_gone() { [ "$(node_copies)" = 0 ] && [ "$(memory_copies)" = 0 ]; }

# over NAME [healed]: the job has completed as the undisturbed one, and nothing is kept of it; on a node that was cut off, when it is back.
over() {
  wait_until 120 job_over
  expect_eq COMPLETED "$(job_state)" "state of the job"
  expect_eq "" "$(diff <(losses calm) <(losses "$1"))" "difference of losses"
  [ "${2:-}" != healed ] || "$mini" heal || exit 1
  wait_until 30 copies_are_gone
  expect_eq "" "$(find "$disks" -mindepth 2 -name "job-$job")" "folders of the job on nodes' disks"
  if [ "$check_state" = failed ]; then
    tail -n 40 "$work/$1.out" >&2
    grep -h . "$MINI_SLURM_DIR"/log/agent-* | tail -n 40 >&2
  fi
  "$mini" heal || exit 1
}
# begin NAME TIERS [EVERY [COMPRESS]]: a job that has trained a third of its steps, and has saved nothing on the shared file system.
begin() {
  submit "$1" "$2" 0 "${3:-5}" "${4:-off}"
  wait_until 90 trained "$1" $((steps / 3))
  expect_eq 0 "$(shared_steps "$1")" "steps on the shared file system"
}
# It did continue from a copy, and did not begin anew.
expect_continued() { expect_match 'continues at step [1-9]' "$(cat "$work/$1.out")" "output"; }

# ---------------------------------------------------------------- cases
test_case "an undisturbed run with every tier"
submit calm '["memory", "node", "peer"]' 4
wait_until 120 job_over
expect_eq COMPLETED "$(job_state)" "state of the job"
expect_eq "$steps" "$(lines "$work/calm/metrics.jsonl")" "steps"
expect_eq 2 "$(shared_steps calm)" "steps on the shared file system"
wait_until 30 copies_are_gone
expect_eq "" "$(grep -h 'copies of checkpoints\|no copy' "$work/calm.out")" "tiers that were left out"
[ "$check_state" = ok ] || { cat "$work/calm.out" >&2; finish; }

test_case "a rank is killed: training continues from memory"
begin memory '["memory"]'
expect_eq 0 "$(node_copies)" "copies on disks"
[ "$(memory_copies)" -gt 0 ] || fail "no memory is kept by the agents"
kill -KILL "$(rank_pid 1)"
over memory
expect_continued memory

test_case "a rank is killed: training continues from the node's disk, saved as often as saves cost and nodes fail"
begin disk '["node"]' '"auto"'
wait_until 20 has_node_copies
kill -KILL "$(rank_pid 2)"
over disk
expect_continued disk
expect_match 'checkpoints every [0-9.]+ s: one stops training for' "$(cat "$work/disk.out")" "output"

test_case "a node is lost: training continues from another node's copy, which is compressed"
begin peer '["node", "peer"]' 5 on
"$mini" fault silent node3 on
over peer healed
expect_continued peer
expect_match '"stored":[0-9]+' "$("$BUILD/mm-ckpt" info --json "$work/peer")" "mm-ckpt info"
expect_eq 1 "$("$BUILD/mm-ckpt" info "$work/peer" | grep -c 'compressed to')" "steps that are compressed"

test_case "a node loses its training NIC: what only it has is taken from it before it is left"
begin left '["memory", "node"]'
"$mini" fault nic node2 eth1 down
over left
expect_match 'checkpoints on node2: [1-9][0-9]* files' "$(cat "$work/left.out")" "output"
expect_continued left
expect_eq "" "$(find "$work/left/checkpoints" -name .scavenged)" "what was taken from the node"

finish
