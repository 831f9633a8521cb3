#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Faults while mm-trainer trains under mm-run on a real Slurm, as an ordinary user. After each: the job has completed by itself, its losses
# are bitwise those of an undisturbed run, only nodes that were hurt are drained, with our reason, and nothing is left running.
# The time from the fault to the next training step is printed; under MM_RECOVERY_LIMIT (15 s) is right, a hang plus its timeout.
# MM_RECOVERY_CASES chooses faults (a list of the functions at the end).
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=/dev/null
. "$here/lib/check.sh"
BUILD=${BUILD:-$here/../../build}
export MINI_SLURM_NAME=recovery-$$
mini=$here/mini-slurm
limit=${MM_RECOVERY_LIMIT:-15}
hang_timeout=6
steps=${MM_RECOVERY_STEPS:-250}

if [ "$(id -u)" != 0 ]; then test_case "recovery"; skip "needs root"; finish; fi
for program in mm-run mm-agentd mm-agent mm-trainer spank_mm_train.so tests/make-fixture; do
  [ -e "$BUILD/$program" ] || { echo "recovery_test: $BUILD/$program is missing: make builds it" >&2; exit 1; }
done

# ---------------------------------------------------------------- the cluster and the job
stage=$(mktemp -d /tmp/recovery-stage.XXXXXX)
at_end rm -rf "$stage"
mkdir "$stage/bin"
cp "$BUILD"/mm-run "$BUILD"/mm-agentd "$BUILD"/mm-agent "$BUILD"/mm-trainer "$BUILD"/spank_mm_train.so "$stage/bin/"
"$BUILD/tests/make-fixture" "$stage/fixture" --preset tiny --samples 64 >/dev/null || { echo "make-fixture failed" >&2; exit 1; }

at_end "$mini" down
"$mini" up --nodes 5 --agent "$stage/bin/mm-agentd" --plugin "$stage/bin/spank_mm_train.so" --stage "$stage/bin" || exit 1
eval "$("$mini" env)"
work=$MINI_SLURM_HOME/work
mkdir "$work"
cp -r "$stage/fixture" "$work/fixture"
cat >"$work/job.sh" <<END
#!/bin/bash
#SBATCH --nodes=5 --ntasks-per-node=1 --open-mode=append --time=20
export PATH=$MINI_SLURM_STAGE:\$PATH OMP_NUM_THREADS=1
exec mm-run -- mm-trainer "\$MM_TRAIN_SPEC"
END
chown -R "$MINI_SLURM_USER": "$work"

job_file() { # NAME; $max_restarts and $shards may say otherwise
  cat >"$work/$1.toml" <<END
[run]
dir = "$work/$1"
steps = $steps
[model]
path = "$work/fixture/model"
[data]
shards = "$work/fixture/data/${shards:-*.tar}"
global_batch = 32
[parallel]
threads = 1
[checkpoint]
every = 5
[recovery]
spares = 1
max_restarts = ${max_restarts:-10}
hang_timeout = $hang_timeout
END
}

submit() { # NAME: sets $job
  job_file "$1"
  job=$("$mini" as-user bash -c "cd $work && sbatch --parsable --output=$work/$1.out --mm-train=$1.toml job.sh")
}

now() { printf '%s' "$EPOCHREALTIME"; }
lines() { local n=0; [ ! -e "$1" ] || n=$(wc -l <"$1"); echo "$n"; }
trained() { [ "$(lines "$work/$1/metrics.jsonl")" -ge "$2" ]; }
job_field() { scontrol show job "$job" -o | grep -o " $1=[^ ]*" | cut -d= -f2; }
job_state() { job_field JobState; }
job_over() { case $(job_state) in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) return 0 ;; *) return 1 ;; esac; }

# Process ids of the trainer's ranks of the job, with the node of each: "PID NODE RANK".
ranks() {
  python3 - "$job" <<'END'
import os, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/comm") as f:
            if f.read().strip() != "mm-trainer": continue
        with open(f"/proc/{pid}/environ", "rb") as f:
            env = dict(v.split(b"=", 1) for v in f.read().split(b"\0") if b"=" in v)
    except OSError:
        continue
    if env.get(b"SLURM_JOB_ID", b"").decode() == sys.argv[1] and b"SLURM_PROCID" in env:
        print(pid, env[b"SLURMD_NODENAME"].decode(), env[b"SLURM_PROCID"].decode())
END
}
rank_pid() { ranks | awk -v r="$1" '$3 == r { print $1; exit }'; }
signal_ranks() { ranks | while read -r pid _; do kill -"$1" "$pid" 2>/dev/null || true; done; }
no_ranks() { [ -z "$(ranks)" ]; }

# Step, loss, grad_norm, lr and tokens of a run, as written.
losses() {
  python3 - "$work/$1/metrics.jsonl" <<'END'
import json, sys
for line in open(sys.argv[1]):
    m = json.loads(line, parse_float=str)
    print(m["step"], m["loss"], m["grad_norm"], m["lr"], m["tokens"])
END
}

# How long after the fault (at $fault_at) the next training step was finished: incidents.jsonl tells when the recovery was over.
recovery_seconds() {
  python3 - "$work/$1/incidents.jsonl" "$fault_at" <<'END'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
ends = [i["time"] + i["lost_seconds"] for i in lines if i["event"] == "restart" and "step_after" in i]
print("%.1f" % (min(e for e in ends if e > float(sys.argv[2])) - float(sys.argv[2])))
END
}
restarts() { grep -c '"event":"restart"' "$work/$1/incidents.jsonl" 2>/dev/null || true; }
drained() { sinfo -h -N -o '%N %T %E' | awk '$2 ~ /drain|down/ { print $1 }' | sort -u | paste -sd,; }
reasons() { sinfo -h -N -o '%N %T %E' | awk '$2 ~ /drain|down/' | cut -d' ' -f3- | sort -u; }

# after NAME NODES-THAT-MAY-BE-DRAINED SECONDS-ALLOWED
after() {
  local seconds
  wait_until 180 job_over
  expect_eq COMPLETED "$(job_state)" "state of the job"
  expect_eq "" "$(diff <(losses calm) <(losses "$1"))" "difference of losses"
  seconds=$(recovery_seconds "$1")
  echo "         fault to next training step: ${seconds:-unknown} s"
  [ -n "$seconds" ] && awk -v s="$seconds" -v l="$3" 'BEGIN { exit !(s < l) }' || fail "recovery took ${seconds:-unknown} s, allowed are $3 s"
  expect_eq 1 "$(restarts "$1")" "restarts"
  expect_eq "$2" "$(drained)" "nodes drained or down"
  [ -z "$2" ] || expect_match '^mm-agent: ' "$(reasons)" "reason"
  wait_until 30 no_ranks
  if [ "$check_state" = failed ]; then
    scontrol show job "$job" >&2
    tail -n 40 "$work/$1.out" >&2
    cat "$work/$1/incidents.jsonl" >&2
    grep -h . "$MINI_SLURM_DIR"/log/agent-* | tail -n 40 >&2
  fi
  "$mini" heal || exit 1
}

# begin NAME [STEPS]: a job that has trained a third of its steps; the fault follows at once.
begin() {
  submit "$1"
  wait_until 90 trained "$1" "${2:-$((steps / 3))}"
}

# ---------------------------------------------------------------- cases
calm() {
  test_case "an undisturbed run"
  submit calm
  wait_until 180 job_over
  expect_eq COMPLETED "$(job_state)" "state of the job"
  expect_eq "$steps" "$(lines "$work/calm/metrics.jsonl")" "steps"
  expect_eq "" "$(drained)" "nodes drained"
  expect_match "finished: 0 restarts" "$(cat "$work/calm.out")"
  [ "$check_state" = ok ] || { cat "$work/calm.out" >&2; finish; }
}

nic() {
  test_case "training NIC down"
  begin nic
  fault_at=$(now)
  "$mini" fault nic node2 eth1 down
  after nic node2 "$limit"
}

cable() {
  test_case "training cable of the batch node out"
  begin cable
  fault_at=$(now)
  "$mini" fault cable node1 eth1 out
  after cable node1 "$limit"
}

middle() {
  test_case "middle node silent"
  begin middle
  fault_at=$(now)
  "$mini" fault silent node3 on
  after middle node3 "$limit"
}

last() {
  test_case "last node of the step silent"
  begin last
  fault_at=$(now)
  "$mini" fault silent node4 on
  after last node4 "$limit"
}

# The requeued run may need one more launch (what Slurm's PMIx left of the torn down one); it must still end by itself with the same losses.
first() {
  test_case "batch node silent: the job is requeued and continues"
  begin first
  fault_at=$(now)
  "$mini" fault silent node1 on
  after first node1 "$limit"
  expect_match "the job was requeued" "$(cat "$work/first.out")"
}

killed() {
  test_case "a rank is killed"
  begin killed
  fault_at=$(now)
  kill -KILL "$(rank_pid 2)"
  after killed "" "$limit"
}

stopped() {
  test_case "a rank is stopped"
  begin stopped
  fault_at=$(now)
  kill -STOP "$(rank_pid 1)"
  after stopped "" $((limit + hang_timeout))
}

slurmd() {
  test_case "slurmd killed: training goes on, and the next launch avoids the node"
  begin slurmd
  "$mini" fault slurmd node2 kill
  reported() { grep -q "node2.*training goes on" "$work/slurmd.out"; }
  wait_until 20 reported
  local before
  before=$(lines "$work/slurmd/metrics.jsonl")
  wait_until 20 trained slurmd $((before + 3))
  fault_at=$(now)
  kill -KILL "$(rank_pid 3)"
  avoided() { grep -q "node2 is avoided" "$work/slurmd.out"; }
  wait_until 30 avoided
  # Slurm holds a job in COMPLETING until the slurmd of each of its nodes has said so.
  ended() { grep -q "mm-run: finished" "$work/slurmd.out"; }
  wait_until 120 ended
  "$mini" fault slurmd node2 start
  after slurmd "" "$limit"
}

blind() {
  test_case "the agent of the batch node is killed, then a rank"
  begin blind
  "$mini" agent node1 kill
  gone() { grep -q "the agent of this node has gone" "$work/blind.out"; }
  wait_until 20 gone
  fault_at=$(now)
  kill -KILL "$(rank_pid 1)"
  restarted() { grep -q "restarting in place" "$work/blind.out"; }
  wait_until 30 restarted
  "$mini" agent node1 start
  after blind "" "$limit"
}

controller() {
  test_case "Slurm's controller is killed, then a rank: the next launch waits for it"
  local hang_timeout=100
  begin controller
  # slurmctld writes its state first, which takes seconds. The training stands still for so long, or it might be over by then.
  signal_ranks STOP
  "$mini" fault ctld kill
  kill -KILL "$(rank_pid 2)"
  signal_ranks CONT
  waits() { grep -q "controller does not answer" "$work/controller.out"; }
  wait_until 60 waits
  fault_at=$(now)
  "$mini" fault ctld start
  after controller "" "$limit"
}

gives_up() {
  test_case "a rank is killed, and no restart is allowed: the job fails, and says why"
  local max_restarts=0
  begin given_up
  kill -KILL "$(rank_pid 1)"
  wait_until 60 job_over
  expect_eq FAILED "$(job_state)" "state of the job"
  expect_match 'giving up: rank 1 on node2 was killed by signal 9 .*max_restarts' "$(cat "$work/given_up.out")"
  expect_eq 0 "$(restarts given_up)" "restarts"

  test_case "shards that are not there: an error of the user's, never restarted, the exit status passed on"
  local shards=none-\*.tar
  submit no_shards
  wait_until 60 job_over
  expect_eq 3:0 "$(job_field ExitCode)" "exit status of the job"
  expect_match 'none-.*giving up' "$(tr '\n' ' ' <"$work/no_shards.out")"
  expect_eq "" "$(drained)" "nodes drained or down"
}

calm
cases=${MM_RECOVERY_CASES:-nic cable middle last first killed stopped slurmd blind controller gives_up}
for fault in $cases; do
  if [ "$MINI_SLURM_MODE" != netns ] && [[ $fault =~ ^(nic|cable|middle|last|first)$ ]]; then
    test_case "$fault"
    skip "namespaces are not allowed here: nodes have no links"
    continue
  fi
  $fault
done
finish
