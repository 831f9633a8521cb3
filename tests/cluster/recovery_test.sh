#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Faults while mm-trainer trains under mm-run on a real Slurm, as an ordinary user; one job after another, each with a few faults. After each
# fault training goes on by itself; at its end the job's losses are bitwise those of an undisturbed run, only nodes that were hurt are drained,
# with our reason, and nothing is left running.
# The time from the fault to the next training step is printed; under MM_RECOVERY_LIMIT (15 s) is right, a hang plus its timeout.
# MM_RECOVERY_CASES chooses jobs (a list of the functions at the end).
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=/dev/null
. "$here/lib/check.sh"
# shellcheck source=/dev/null
. "$here/lib/training.sh"
export MINI_SLURM_NAME=recovery-$$
limit=${MM_RECOVERY_LIMIT:-15}
hang_timeout=6
steps=${MM_RECOVERY_STEPS:-80}

if [ "$(id -u)" != 0 ]; then test_case "recovery"; skip "needs root"; finish; fi
training_cluster 5 64

# begin JOB: a job that has trained a fifth of its steps. `faults` counts those of the job.
begin() {
  began=$SECONDS
  faults=0
  submit "$1"
  wait_until 90 trained "$1" $((steps / 5))
}

# again JOB SECONDS: training goes on so soon after the fault at $fault_at, and then for a tenth of the steps.
again() {
  local seconds before
  faults=$((faults + 1))
  wait_until 90 recovered "$1" $faults
  seconds=$(recovery_seconds "$1")
  echo "         fault to next training step: ${seconds:-unknown} s"
  [ -n "$seconds" ] && awk -v s="$seconds" -v l="$2" 'BEGIN { exit !(s < l) }' || fail "recovery took ${seconds:-unknown} s, allowed are $2 s"
  before=$(lines "$work/$1/metrics.jsonl")
  wait_until 60 trained "$1" $((before + steps / 10))
  [ "$check_state" = ok ] || show_run "$1"
}

# over JOB [NODES-THAT-MAY-BE-DRAINED]: the end of the job, and all that must hold then.
over() {
  wait_until 120 job_over
  expect_eq COMPLETED "$(job_state)" "state of the job"
  expect_eq "" "$(diff <(losses calm) <(losses "$1"))" "difference of losses"
  expect_eq "$faults" "$(restarts "$1")" "restarts"
  expect_eq "${2:-}" "$(drained)" "nodes drained or down"
  [ -z "${2:-}" ] || expect_match '^mm-agent: ' "$(reasons)" "reason"
  wait_until 30 no_ranks
  [ "$check_state" = ok ] || show_run "$1"
  "$mini" heal || exit 1
  echo "         job $1: $((SECONDS - began)) s"
}

# ---------------------------------------------------------------- jobs
calm() {
  test_case "an undisturbed run"
  began=$SECONDS
  submit calm
  wait_until 180 job_over
  expect_eq COMPLETED "$(job_state)" "state of the job"
  expect_eq "$steps" "$(lines "$work/calm/metrics.jsonl")" "steps"
  expect_eq "" "$(drained)" "nodes drained"
  expect_match "finished: 0 restarts" "$(cat "$work/calm.out")"
  echo "         job calm: $((SECONDS - began)) s"
  [ "$check_state" = ok ] || { cat "$work/calm.out" >&2; finish; }
}

ranks_and_nic() {
  test_case "a rank is killed"
  begin ranks
  fault_at=$(now)
  kill -KILL "$(rank_pid 2)"
  again ranks "$limit"

  test_case "a rank is stopped"
  fault_at=$(now)
  kill -STOP "$(rank_pid 1)"
  again ranks $((limit + hang_timeout))

  test_case "training NIC down"
  fault_at=$(now)
  "$mini" fault nic node2 eth1 down
  again ranks "$limit"
  over ranks node2
}

services_and_cable() {
  local hang_timeout=100
  test_case "the agent of the batch node is killed, then a rank"
  begin services
  "$mini" agent node1 kill
  gone() { grep -q "the agent of this node has gone" "$work/services.out"; }
  wait_until 20 gone
  fault_at=$(now)
  kill -KILL "$(rank_pid 1)"
  restarted() { grep -q "restarting in place" "$work/services.out"; }
  wait_until 30 restarted
  "$mini" agent node1 start
  again services "$limit"

  test_case "Slurm's controller is killed, then a rank: the next launch waits for it"
  # slurmctld writes its state first, which takes seconds. The training stands still for so long, or it might be over by then.
  signal_ranks STOP
  "$mini" fault ctld kill
  kill -KILL "$(rank_pid 2)"
  signal_ranks CONT
  waits() { grep -q "controller does not answer" "$work/services.out"; }
  wait_until 60 waits
  fault_at=$(now)
  "$mini" fault ctld start
  again services "$limit"

  test_case "training cable of the batch node out"
  fault_at=$(now)
  "$mini" fault cable node1 eth1 out
  again services "$limit"
  over services node1
}

slurmd_and_last() {
  local hang_timeout=100
  test_case "slurmd killed: training goes on, and the next launch avoids the node"
  begin slurmd
  # It takes the agent seconds to be sure of it. The training stands still for so long, or it might be over by then.
  signal_ranks STOP
  "$mini" fault slurmd node2 kill
  reported() { grep -q "node2.*training goes on" "$work/slurmd.out"; }
  wait_until 20 reported
  signal_ranks CONT
  local before
  before=$(lines "$work/slurmd/metrics.jsonl")
  wait_until 20 trained slurmd $((before + 3))
  fault_at=$(now)
  kill -KILL "$(rank_pid 3)"
  avoided() { grep -q "node2 is avoided" "$work/slurmd.out"; }
  wait_until 30 avoided
  "$mini" fault slurmd node2 start
  again slurmd "$limit"

  test_case "last node of the step silent, and its ranks go to a node that is well again"
  fault_at=$(now)
  "$mini" fault silent node4 on
  again slurmd "$limit"
  over slurmd node4
}

middle() {
  test_case "middle node silent"
  begin middle
  fault_at=$(now)
  "$mini" fault silent node3 on
  again middle "$limit"
  over middle node3
}

# The requeued run may need one more launch (what Slurm's PMIx left of the torn down one); it must still end by itself with the same losses.
first() {
  test_case "batch node silent: the job is requeued and continues"
  begin first
  fault_at=$(now)
  "$mini" fault silent node1 on
  again first "$limit"
  faults=$(restarts first)
  over first node1
  expect_match "the job was requeued" "$(cat "$work/first.out")"
}

# A job has a minute at least, of which an admin takes a part; most of the rest the training stands still.
time_limit() {
  local hang_timeout=100 spares=0 nodes_of_job=4 sbatch_options=--time=1 end
  test_case "a time limit of a minute, made shorter: saved before its end, and requeued"
  begin limit
  signal_ranks STOP
  end=$((EPOCHSECONDS + 25))
  expect_ok scontrol update jobid="$job" EndTime="$(date -d "@$end" +%FT%T)"
  near() { [ $((end - EPOCHSECONDS)) -le 13 ]; }
  wait_until 60 near
  signal_ranks CONT
  faults=1
  wait_until 60 recovered limit 1
  expect_match "the job's time is over soon: [0-9]+ steps are done" "$(cat "$work/limit.out")"
  expect_match "the agents requeue the job" "$(cat "$work/limit.out")"
  expect_eq 1 "$(job_field Restarts)" "Slurm's count of runs"

  test_case "asked to end as by preemption: saved, requeued, and continued to the bit; its output goes on"
  wait_until 60 trained limit $(($(lines "$work/limit/metrics.jsonl") + steps / 10))
  "$mini" as-user scancel --signal=TERM "$job"
  faults=2
  wait_until 60 recovered limit 2
  expect_match "asked to stop: [0-9]+ steps are done" "$(cat "$work/limit.out")"
  over limit
  expect_eq 2 "$(grep -c "saved, asks for requeue" "$work/limit.out")" "runs that say that they were requeued"
}

unattended() {
  local hang_timeout=100 spares=0 nodes_of_job=4 script=plain.sh
  test_case "plain srun, and a training NIC down: the agents requeue the job without the node"
  begin plain
  faults=''  # mm-run keeps these books
  "$mini" fault nic node2 eth1 down
  requeued() { [ "$(job_field Restarts)" = 1 ]; }
  wait_until 30 requeued
  over plain node2
  expect_match '(^|,)node2' "$(job_field ExcNodeList)" "nodes that the job leaves"
}

smaller() {
  local dtype=float64 steps=60 spares=0 nodes_of_job=2 hang_timeout=20 undisturbed
  test_case "no spare, and a node is lost: goes on with fewer replicas, and the losses are those of the whole"
  submit whole
  undisturbed=$job
  layouts='"same"' begin fewer
  fault_at=$(now)
  "$mini" fault nic "$(ranks | awk '$3 == 1 { print $2 }')" eth1 down
  again fewer "$limit"
  wait_until 60 job_over
  expect_eq COMPLETED "$(job_state)" "state of the job"
  expect_match "going on with 1 nodes in place of 2" "$(cat "$work/fewer.out")"
  job=$undisturbed wait_until 60 job_over
  expect_eq "" "$(paste -d' ' <(losses whole) <(losses fewer) | awk '
    function far(a, b) { return (a - b) ^ 2 > (1e-9 * a) ^ 2 }
    $1 != $6 || $5 != $10 || far($2, $7) || far($3, $8)')" "steps that differ by more than 1e-9"
  expect_eq "$steps" "$(lines "$work/fewer/metrics.jsonl")" "steps"
  [ "$check_state" = ok ] || show_run fewer
  "$mini" heal || exit 1
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
cases=${MM_RECOVERY_CASES:-ranks_and_nic services_and_cable slurmd_and_last middle first time_limit unattended smaller gives_up}
for job_case in $cases; do
  if [ "$MINI_SLURM_MODE" != netns ] && [[ $job_case =~ ^(ranks_and_nic|services_and_cable|slurmd_and_last|middle|first|unattended|smaller)$ ]]; then
    test_case "$job_case"
    skip "namespaces are not allowed here: nodes have no links"
    continue
  fi
  $job_case
done
finish
