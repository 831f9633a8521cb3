#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mm-agentd on a real Slurm: what it sees, whom it blames, what it does to nodes and jobs, and whom it does not believe. Jobs belong to an
# ordinary user and hold plain ranks that report progress; recovery_test.sh has the same faults with training and mm-run.
# MM_AGENT_CASES chooses cases (a list of the functions at the end).
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=/dev/null
. "$here/lib/check.sh"
BUILD=${BUILD:-$here/../../build}
mini=$here/mini-slurm
export MINI_SLURM_NAME=agent-$$

if [ "$(id -u)" != 0 ]; then test_case "agent"; skip "needs root"; finish; fi
for program in mm-agentd mm-agent spank_mm_train.so tests/libnvidia-ml.so.1 tests/fake_clock.so; do
  [ -e "$BUILD/$program" ] || { echo "agent_test: $BUILD/$program is missing: make builds it" >&2; exit 1; }
done
stage=$(mktemp -d /tmp/agent-stage.XXXXXX)
at_end rm -rf "$stage"
mkdir "$stage/bin"
cp "$BUILD"/mm-agentd "$BUILD"/mm-agent "$BUILD"/spank_mm_train.so "$here/lib/agent_talk.py" "$stage/bin/"
cp "$BUILD/tests/libnvidia-ml.so.1" "$BUILD/tests/fake_clock.so" "$stage/"
# Each node's GPUs are those of a file, and so is what its agent's clock is ahead by.
fake_gpus=(--agent-env "FAKE_NVML=$stage/gpus-%n" --agent-env "LD_LIBRARY_PATH=$stage" --agent-env "FAKE_CLOCK=$stage/clock-%n" --agent-env "LD_PRELOAD=$stage/fake_clock.so")
at_end "$mini" down
"$mini" up --nodes 4 --mode netns --agent "$stage/bin/mm-agentd" --plugin "$stage/bin/spank_mm_train.so" --stage "$stage/bin" "${fake_gpus[@]}" || exit 1
eval "$("$mini" env)"
if [ "$MINI_SLURM_MODE" != netns ]; then test_case "agent"; skip "namespaces are not allowed here"; finish; fi
cd "$MINI_SLURM_HOME" || exit 1
talk=$MINI_SLURM_STAGE/agent_talk.py

# ---------------------------------------------------------------- helpers
agent() { local node=$1; shift; "$BUILD/mm-agent" --socket "$MINI_SLURM_DIR/run/agent-$node.sock" "$@"; }
ask() { local node=$1; shift; "$talk" ask "$MINI_SLURM_DIR/run/agent-$node.sock" "$@"; }
user_ask() { local node=$1; shift; "$mini" as-user "$talk" ask "$MINI_SLURM_DIR/run/agent-$node.sock" "$@"; }
agent_up() { agent "$1" status --json | grep -q '"ok":true'; }
agents_up() { local k; for k in 1 2 3 4; do agent_up "node$k" || return 1; done; }
# A field of `scontrol show node`: State, or Reason without Slurm's mark of who and when.
state() { scontrol show node -o "$1" | grep -o ' State=[^ ]*' | cut -d= -f2; }
reason() { scontrol show node -o "$1" | sed -n 's/.* Reason=\(.*\) \[[^ ]*@[^ ]*\].*/\1/p'; }
has_state() { [[ $(state "$1") == *$2* ]]; }
untouched() { # NODE...
  local n
  for n; do expect_match '^(IDLE|ALLOCATED|MIXED|COMPLETING)' "$(state "$n")" "$n"; expect_eq "" "$(reason "$n")" "reason of $n"; done
  for n; do [[ $(state "$n") != *DRAIN* ]] || fail "$n is drained: $(reason "$n")"; done
}
events() { agent "$1" events --json; }

# submit [SBATCH OPTION...]: a job on all nodes, two ranks on each; leaves $job, when all ranks are registered. A job of a case before that is still
# whole goes on; one with options of its own is new.
submit() {
  if [ $# = 0 ] && [ -z "${SLOW_RANK:-}" ] && [ -n "$job" ] && has_job_state "$job" RUNNING && all_registered; then return 0; fi
  [ -z "$job" ] || restore
  cat >job.sh <<END
#!/bin/bash
echo "run \${SLURM_RESTART_COUNT:-0} on \$SLURM_JOB_NODELIST"
srun --ntasks-per-node=2 -N\$SLURM_NNODES -n\$((2 * SLURM_NNODES)) $talk rank 100000 0.1 &
wait
sleep 3600
END
  chmod 755 job.sh
  job=$("$mini" as-user sbatch --parsable --no-kill -N4 --ntasks-per-node=2 --open-mode=append -o "out.%j" --mm-train=spares=1,hang_timeout=3 "$@" job.sh) ||
    { fail "sbatch failed"; return 1; }
  wait_until 30 all_registered
}
job=
ranks_on() { agent "$1" status --json | python3 -c "
import json, sys
for j in json.load(sys.stdin)['jobs']:
    for s in j['steps']:
        for t in s['tasks']:
            if not t['ended']: print(t['rank'], t['pid'], t.get('step', -1))"; }
all_registered() {
  local k
  for k in 1 2 3 4; do agent "node$k" status --json || return 1; done | python3 -c "
import json, sys
counts = [sum(1 for j in json.loads(line)['jobs'] for s in j['steps'] for t in s['tasks'] if not t['ended'] and t.get('step', -1) > 5) for line in sys.stdin]
sys.exit(counts != [2, 2, 2, 2])"
}
pid_of() { ranks_on "$1" | awk -v r="$2" '$1 == r { print $2 }'; }
all_pids() { local k; for k in 1 2 3 4; do ranks_on "node$k" | awk '{print $2}'; done; }
gone() { local p; for p; do [ ! -e "/proc/$p" ] || grep -qs '^State:.Z' "/proc/$p/status" || [ ! -e "/proc/$p" ] || return 1; done; }
job_state() { scontrol show job -o "$1" | grep -o 'JobState=[^ ]*' | cut -d= -f2; }
has_job_state() { [ "$(job_state "$1")" = "$2" ]; }
# watch_for NODE SECONDS PATTERN, in the background until `watched`.
watch_for() {
  "$talk" watch "$MINI_SLURM_DIR/run/agent-$1.sock" "$job" "$2" "$3" >watch.log 2>&1 &
  watcher=$!
  wait_until 5 watching "$1"
}
watching() { ls -l "/proc/$watcher/fd" 2>/dev/null | grep -q socket && sleep 0.3; }
watched() { wait "$watcher" || fail "no such event: $(cat watch.log)"; }
# Slurm 22.05 may count a node as busy for ever that a job of whole nodes lost before it was cancelled; reconfigure counts anew.
restore() {
  local k
  job=
  "$mini" heal 2>/dev/null
  for k in 1 2 3 4; do agent "node$k" clear >/dev/null 2>&1; done
  scontrol reconfigure
  wait_until 20 agents_up
}

# ---------------------------------------------------------------- cases
looks_fine() {
  test_case "a healthy node: status and check, also as an ordinary user"
  wait_until 20 agents_up
  expect_ok "$mini" exec node1 "$MINI_SLURM_STAGE/mm-agent" --config "$MM_TRAIN_CONF" check
  expect_eq fine "$output"
  expect_ok "$mini" exec node1 env -u MM_AGENT_SOCKET MM_TRAIN_CONF="$MM_TRAIN_CONF" "$MINI_SLURM_STAGE/mm-agent" check
  expect_ok "$mini" exec node1 env MM_TRAIN_CONF=/nowhere.conf MM_AGENT_SOCKET="$MINI_SLURM_DIR/run/agent-node2.sock" "$MINI_SLURM_STAGE/mm-agent" status --json
  expect_match '"node":"node2"' "$output" "the agent that the environment names"
  expect_ok "$mini" as-user "$MINI_SLURM_STAGE/mm-agent" --socket "$MINI_SLURM_DIR/run/agent-node2.sock" status --json
  expect_match '"node":"node2"' "$output"
  expect_status 1 "$mini" exec node1 "$MINI_SLURM_STAGE/mm-agent" --socket /nowhere.sock check
  expect_match '/nowhere.sock' "$output"
  expect_status 2 "$BUILD/mm-agent" --socket x status --no-such-option
  expect_status 2 "$BUILD/mm-agentd" --config /nowhere.conf
}

nic_down() {
  test_case "training NIC down: told to all within a moment, drained with the evidence; management NIC: nothing"
  submit || return
  watch_for node1 10 'EVENT=incident.* NODE=node3|NODE=node3.*EVENT=incident'
  "$mini" fault nic node3 eth1 down
  watched
  expect_match 'CLASS=nic .*DEVICE=eth1' "$(cat watch.log)"
  wait_until 5 has_state node3 DRAIN
  expect_match '^mm-agent: nic eth1 carrier lost .*on node3 at .* \(incident [0-9]+\)$' "$(reason node3)"
  [[ $(state node3) != *DOWN* ]] || fail "a reachable node was set down"
  untouched node1 node2 node4
  expect_match "WHY_node3=training NIC eth1: set down" "$(user_ask node1 VERB=probe 'NODES=node[1-4]')"
  expect_match 'GOOD=node\[1-2,4\]' "$(user_ask node1 VERB=probe 'NODES=node[1-4]')"
  expect_status 1 "$mini" exec node3 "$MINI_SLURM_STAGE/mm-agent" --config "$MM_TRAIN_CONF" check --json
  expect_match 'training NIC eth1' "$output"
  restore

  test_case "cable out: the same by the loss of carrier alone"
  "$mini" fault cable node2 eth1 out
  wait_until 5 has_state node2 DRAIN
  expect_match '^mm-agent: nic eth1 carrier lost on node2' "$(reason node2)"
  restore
}

admin_reason() {
  test_case "a reason that an admin wrote is kept, word for word"
  scontrol update nodename=node2 state=drain 'reason="fan "loud" [rack 7]"'
  "$mini" fault nic node2 eth1 down
  wait_until 10 action_noted
  expect_eq 'fan "loud" [rack 7]' "$(reason node2)"
  expect_match DRAIN "$(state node2)"
  restore
}
action_noted() { events node2 | grep '"kind":"action"' | grep -q 'drained already'; }

silent() {
  test_case "a silent node is drained and set down by another, its ranks fence themselves, and are not left behind"
  submit || return
  local pids
  pids=$(ranks_on node4 | awk '{print $2}')
  watch_for node1 15 'CLASS=node'
  "$mini" fault silent node4 on
  watched
  wait_until 10 has_state node4 DOWN
  expect_match DRAIN "$(state node4)"
  expect_match '^mm-agent: node node4 silent: no heartbeat for [0-9.]+ s at (node[123],?){2,3}; slurmd port [0-9]+ (closed|does not answer) \(incident [0-9]+\)$' "$(reason node4)"
  untouched node1 node2 node3
  # shellcheck disable=SC2086  # a list
  wait_until 15 gone $pids
  wait_until 5 fenced
  local before
  before=$(reason node4)
  "$mini" fault silent node4 off
  wait_until 15 out_of_job node4
  expect_eq "$before" "$(reason node4)"
  expect_eq "" "$(agent node1 status --json | grep -o 'node4.*silent":true')" "node4 at node1"
  restore
}
fenced() { events node4 | grep '"kind":"fence"' | grep -q 'cut off from slurmctld'; }
out_of_job() { agent "$1" status --json | grep -q '"jobs":\[\]'; }

batch_node() {
  test_case "the batch node silent: a surviving agent requeues the job, which runs without it and without what was left of it"
  submit || return
  local first=$job pids
  pids=$(all_pids)
  "$mini" fault silent node1 on
  wait_until 25 grep -q '^run 1 on' "out.$job"
  expect_match 'run 1 on node\[2-4\]' "$(cat "out.$job")"
  wait_until 10 has_job_state "$job" RUNNING
  # shellcheck disable=SC2086
  wait_until 15 gone $pids
  has_state node1 DOWN || fail "node1 is $(state node1)"
  untouched node2 node3 node4
  wait_until 20 spares_used node2
  "$mini" fault silent node1 off
  wait_until 15 out_of_job node1
  expect_eq RUNNING "$(job_state "$first")"
  restore

  test_case "the batch node silent, and the job must not be requeued: cancelled, never RUNNING without a script"
  submit --no-requeue || return
  pids=$(all_pids)
  "$mini" fault silent node1 on
  wait_until 25 has_job_state "$job" CANCELLED
  # shellcheck disable=SC2086
  wait_until 15 gone $pids
  restore
}
spares_used() { agent "$1" status --json | grep -q '"restarts":1,"spares":0'; }

hang() {
  test_case "a stopped rank: one hang, and that rank is blamed"
  submit || return
  watch_for node1 20 'CLASS=app'
  local pid
  pid=$(pid_of node3 5)
  kill -STOP "$pid"
  watched
  expect_match 'EVENT=hang .*NODE=node3 .*RANK=5|EVENT=hang.*RANK=5' "$(cat watch.log)"
  expect_match 'CLASS=app .*stopped \(state T\).* RANK=5' "$(cat watch.log)"
  expect_eq 1 "$(grep -c EVENT=hang watch.log)"
  kill -CONT "$pid"
  untouched node1 node2 node3 node4
}

kill_step() {
  test_case "kill: the owner's request ends the ranks on all nodes, those of an agent that was started again too, a stranger's none; a killed step stays so"
  submit || return
  local pids pid answer
  pids=$(all_pids)
  expect_match 'ERROR=kill: only root may register|OK=0' "$(user_ask node1 VERB=exit JOB="$job" STEP=0 RANK=0 STATUS=0)"
  expect_match 'OK=0' "$(user_ask node1 VERB=task JOB="$job" STEP=0 UID=0 NODES=node1 NTASKS=1 RANK=0 PID=1)"
  answer=$(setpriv --reuid=nobody --regid=nogroup --clear-groups "$talk" ask "$MINI_SLURM_DIR/run/agent-node1.sock" VERB=kill "JOB=$job" STEP=0)
  expect_match 'ERROR=job .* does not belong to user' "$answer"
  answer=$(setpriv --reuid=nobody --regid=nogroup --clear-groups "$talk" ask "$MINI_SLURM_DIR/run/agent-node1.sock" VERB=watch "JOB=$job")
  expect_match 'OK=0' "$answer"
  # shellcheck disable=SC2086
  ! gone $pids || fail "a stranger killed"
  answer=$(user_ask node1 VERB=kill "JOB=$job" STEP=0)
  expect_match 'KILLED=8' "$answer"
  expect_match 'LATE=$' "$(grep LATE <<<"$answer")"
  # shellcheck disable=SC2086
  gone $pids || fail "ranks are there after the answer"
  # A launch that was still under way.
  sleep 3600 &
  pid=$!
  ask node2 VERB=task "JOB=$job" STEP=0 UID=0 'NODES=node[1-4]' NTASKS=8 RANK=3 LOCAL_RANK=1 "PID=$pid" HANG_TIMEOUT=0 >/dev/null
  wait_until 5 gone $pid
  restore
}

lost_exit() {
  test_case "the end of a rank is seen without Slurm's word, and told with Slurm's status"
  submit || return
  watch_for node1 10 'EVENT=exit.*RANK=7'
  kill -KILL "$(pid_of node4 7)"
  watched
  expect_match 'STATUS=9 ' "$(grep EVENT=exit watch.log | head -1)"
  local pid
  sleep 3600 &
  pid=$!
  ask node2 VERB=task "JOB=$job" STEP=77 UID=0 NODES=node2 NTASKS=1 RANK=0 LOCAL_RANK=0 "PID=$pid" HANG_TIMEOUT=0 >/dev/null
  watch_for node1 10 'EVENT=exit.*STEP=77'
  kill -KILL "$pid"
  watched
  expect_match 'STATUS=-1 ' "$(cat watch.log)"
  restore
}

agent_restart() {
  test_case "an agent killed and started again: it knows its ranks, nobody is blamed"
  submit || return
  local before
  before=$(ranks_on node3 | awk '{print $1, $2}')
  "$mini" agent node3 kill
  wait_until 10 grep_alert node1
  untouched node1 node2 node3 node4
  "$mini" agent node3 start
  wait_until 10 agent_up node3
  expect_eq "$before" "$(ranks_on node3 | awk '{print $1, $2}')"
  wait_until 10 beats_again
  untouched node1 node2 node3 node4
  expect_ok unique_numbers
}
grep_alert() { events "$1" | grep '"class":"peer"' | grep -q 'agent of node3 is silent, but slurmd port'; }
beats_again() { agent node1 status --json | grep -q '"node":"node3","heard_ms":[0-9]\{1,3\},'; }
# Numbers of incidents never repeat, whatever died in between; one may be told again when it has become worse.
unique_numbers() {
  python3 - "$MINI_SLURM_DIR/agent/events-node1.jsonl" <<'END'
import json, sys
faults = {}
for event in map(json.loads, open(sys.argv[1])):
    if event["kind"] != "incident" or event.get("origin") != "node1": continue
    fault = (event["code"], event.get("device", ""), event.get("rank"))
    if faults.setdefault(event["id"], fault) != fault: sys.exit(f"incident {event['id']} is {faults[event['id']]} and {fault}")
END
}

quiet_faults() {
  test_case "an agent stopped for seconds, munged and slurmctld away: nobody is blamed, no rank is killed"
  submit || return
  local pids pid
  pids=$(all_pids)
  pid=$(agent_pid node2)
  kill -STOP "$pid"
  sleep 4  # the fault itself: longer than silent_ms
  kill -CONT "$pid"
  "$mini" fault munged kill
  sleep 4
  "$mini" fault munged start
  "$mini" fault ctld kill
  sleep 6  # longer than fence_ms
  "$mini" fault ctld start
  wait_until 30 states_known
  untouched node1 node2 node3 node4
  # shellcheck disable=SC2086
  for pid in $pids; do [ -e "/proc/$pid" ] || fail "rank $pid was killed"; done
  wait_until 10 agents_up
  expect_eq "" "$(events node1 | grep -E '"class":"node"|"kind":"fence"')"
}

# The process whose lock guards the socket.
agent_pid() { local f; for f in /proc/[0-9]*/fd/*; do [ "$(readlink "$f")" = "$MINI_SLURM_DIR/run/agent-$1.sock.lock" ] && { f=${f#/proc/}; echo "${f%%/*}"; return; }; done; }
states_known() { local k; for k in 1 2 3 4; do [[ $(state node$k) != *UNKNOWN* ]] || return 1; done; }

slurmd_killed() {
  test_case "slurmd killed: an alert, no drain; the next launch is told to avoid the node"
  submit || return
  watch_for node1 15 'CLASS=slurm.*NODE=node2'
  "$mini" fault slurmd node2 kill
  watched
  expect_match 'ACTION=alert' "$(cat watch.log)"
  expect_match 'WHY_node2=slurmd does not listen' "$(user_ask node1 VERB=probe 'NODES=node[1-4]')"
  untouched node1 node3 node4
  expect_eq "" "$(reason node2)"
  restore
}

forged() {
  test_case "forged, stolen and repeated datagrams are refused"
  submit || return
  local port address pids credential before
  port=$(($(scontrol show node -o node2 | grep -o ' Port=[0-9]*' | cut -d= -f2) + 100))
  address=$(scontrol show node -o node2 | grep -o 'NodeAddr=[^ ]*' | cut -d= -f2)
  pids=$(all_pids)
  local order="VERB=kill
JOB=$job
STEP=0
from=node1
to=node2
run=x
count=1
kind=ask
id=1"
  before=$(refused)
  printf 'MUNGE:AwQDAACXv:' | "$talk" send "$address" "$port"
  printf '%s' "$order" | "$talk" send "$address" "$port"
  # An ordinary user's own credential, and one of root that is meant for another node.
  "$mini" as-user munge -S "$MINI_SLURM_MUNGE_SOCKET" -s "$order" | "$talk" send "$address" "$port"
  munge -S "$MINI_SLURM_MUNGE_SOCKET" -s "${order/to=node2/to=node3}" | "$talk" send "$address" "$port"
  wait_until 5 refused_more "$before" 4
  # shellcheck disable=SC2086
  for pid in $pids; do [ -e "/proc/$pid" ] || fail "a forged order killed rank $pid"; done
  # A true one counts once, however often it is sent.
  credential=$(munge -S "$MINI_SLURM_MUNGE_SOCKET" -s "${order/VERB=kill/VERB=probe}")
  before=$(refused)
  for _ in 1 2 3; do printf '%s' "$credential" | "$talk" send "$address" "$port"; done
  wait_until 5 refused_more "$before" 2
}
refused() { agent node2 status --json | grep -o '"refused":[0-9]*' | cut -d: -f2; }
refused_more() { [ "$(refused)" -ge $(($1 + $2)) ]; }

# kernel NODE MESSAGE: a line of the node's kernel log, of now.
kernel() { printf '[%12.6f] %s\n' "$(cut -d' ' -f1 /proc/uptime)" "$2" >>"$MINI_SLURM_DIR/kernel-$1.log"; }
has_event() { events "$1" | grep -q "$2"; }

kernel_log() {
  test_case "the kernel log: an Xid drains the node with its line, and jobs leave it; a program's mistake and a harmless line do nothing"
  submit || return
  watch_for node1 15 'CLASS=gpu.*NODE=node3'
  kernel node2 'mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 268269): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5), syndrome (0x305684), err(-22)'
  kernel node2 'NVRM: Xid (PCI:0000:41:00): 31, pid=79749, name=python3, Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS'
  kernel node3 'NVRM: Xid (PCI:0000:41:00): 79, pid=77, name=python3, GPU has fallen off the bus.'
  watched
  expect_match 'ACTION=drain.*CODE=79.*DEVICE=0000:41:00.0' "$(cat watch.log)"
  wait_until 10 has_state node3 DRAIN
  expect_match '^mm-agent: gpu 0000:41:00.0 NVRM: Xid .*79.*\(incident [0-9]+\)$' "$(reason node3)"
  wait_until 5 has_event node2 '"class":"app".*"code":"31"'
  expect_match 'WHY_node3=gpu 0000:41:00.0 79' "$(user_ask node1 VERB=probe 'NODES=node[1-4]')"
  expect_status 1 agent node3 check --last
  expect_match '"class":"gpu","code":"79"' "$(agent node3 history --json)"
  kernel node3 'NVRM: Xid (PCI:0000:41:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)'
  expect_match 'OK=0' "$(user_ask node3 VERB=clear)"
  untouched node1 node2 node4
  restore

  test_case "clear: takes back the agent's own drain, and nobody else's"
  scontrol update nodename=node4 state=drain reason='admin: do not touch'
  expect_status 1 agent node4 clear
  expect_eq 'admin: do not touch' "$(reason node4)"
  scontrol update nodename=node4 state=resume
  kernel node4 'NVRM: Xid (PCI:0000:41:00): 95, pid=1, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No'
  wait_until 10 has_state node4 DRAIN
  expect_ok agent node4 clear
  wait_until 5 undrained node4
  expect_eq '[]' "$(agent node4 status --json | grep -o '"incidents":\[\]' | cut -d: -f2)"
}
undrained() { [[ $(state "$1") != *DRAIN* ]]; }

gpu_probe() {
  test_case "NVML: a GPU that is lost drains its node; when a call hangs, that is told and the agent goes on"
  printf '0000:1b:00.0 temperature=40\n0000:43:00.0 temperature=41\n' >"$stage/gpus-node2"
  cp "$stage/gpus-node2" "$stage/gpus-node3"
  agent_again node2
  agent_again node3
  wait_until 15 gpus_known node2
  wait_until 15 gpus_known node3
  echo '0000:1b:00.0 temperature=40' >"$stage/gpus-node2"
  echo '0000:1b:00.0 hang=clocks' >"$stage/gpus-node3"
  wait_until 20 has_state node2 DRAIN
  expect_match '^mm-agent: gpu 0000:43:00.0 has disappeared' "$(reason node2)"
  wait_until 40 has_event node3 'probe gpu has not come back within'
  expect_match 'GPU 0000:1b:00.0: clocks' "$(events node3)"
  expect_ok agent_up node3
  untouched node3
  "$mini" exec node2 python3 -c 'import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:9440/metrics", timeout=5).read().decode())' >metrics.txt
  expect_match 'mm_gpu_temperature_celsius.gpu="0000:1b:00.0". 40' "$(cat metrics.txt)"
  expect_match 'mm_node_fit 0' "$(cat metrics.txt)"
  rm "$stage"/gpus-*
  agent_again node2
  agent_again node3
  restore
}
agent_again() { "$mini" agent "$1" kill; "$mini" agent "$1" start; wait_until 30 agent "$1" status; }
gpus_known() { "$mini" exec "$1" python3 -c 'import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:9440/metrics", timeout=5).read().decode())' 2>/dev/null | grep -q '^mm_gpus 2'; }

brake() {
  test_case "the brake: no more nodes than the share are drained within an hour; their incidents are told all the same"
  local k drained=0
  for k in 1 2 3 4; do kernel "node$k" 'NVRM: Xid (PCI:0000:41:00): 48, pid=1, name=python3, DBE (double bit error) ECC Error'; done
  wait_until 15 all_decided
  for k in 1 2 3 4; do
    if has_state "node$k" DRAIN; then drained=$((drained + 1)); fi
    has_event "node$k" '"code":"48"' || fail "node$k has not told its incident"
  done
  expect_eq 2 "$drained" "drained nodes, of 4 at a share of 0.3"
  for k in 1 2 3 4; do agent "node$k" clear >/dev/null; done
  restore
}
all_decided() { local k; for k in 1 2 3 4; do has_event "node$k" '"evidence":\["node node[1-4]: drained\|is not drained: brake' || return 1; done; }

reload() {
  test_case "SIGHUP: the configuration is read again; one with a mistake changes nothing"
  local conf=$MINI_SLURM_DIR/mm-train.conf pid
  pid=$(agent_pid node1)
  cp "$conf" conf.before
  sed -i 's/^\[network\]/dry_run = true\n[network]/' "$conf"
  kill -HUP "$pid"
  wait_until 5 is_dry node1
  echo 'nonsense = 1' >>"$conf"
  kill -HUP "$pid"
  wait_until 5 grep -q 'the configuration before stays' "$MINI_SLURM_DIR/log/agent-node1"
  kernel node1 'NVRM: Xid (PCI:0000:41:00): 64, pid=1, name=x, Failed to persist row remap table'
  wait_until 10 has_event node1 'would be drained'
  expect_eq "" "$(reason node1)"
  cp conf.before "$conf"
  kill -HUP "$pid"
  wait_until 5 is_wet node1
  agent node1 clear >/dev/null
  restore
}
is_dry() { agent "$1" status --json | grep -q '"dry_run":true'; }
is_wet() { agent "$1" status --json | grep -q '"dry_run":false'; }


slow_rank() {
  test_case "a rank that works twice as long as the others is told as a straggler, with what its node knows, then to be moved; nobody is drained"
  local conf=$MINI_SLURM_DIR/mm-train.conf
  cp "$conf" conf.before
  sed -i 's/^\[network\]/straggler_s = 20\n[network]/' "$conf"
  kill -HUP "$(agent_pid node1)"  # the batch node's, which judges
  export SLOW_RANK=5
  submit || return
  unset SLOW_RANK
  kernel node3 'nvme nvme0: I/O 22 QID 5 timeout, aborting'
  watch_for node1 60 'CODE=straggler'
  watched
  expect_match 'ACTION=alert.*rank 5 on node3 works 0.1 s a step, others that do the same 0.05 s.*RANK=5.*SCOPE=rank' "$(cat watch.log)"
  watch_for node1 30 'ACTION=restart.*CODE=straggler'
  watched
  expect_match 'rank 5 on node3 works .*NODE=node3 .*RANK=5' "$(cat watch.log)"
  cp conf.before "$conf"
  untouched node1 node2 node3 node4
  # A failure that is foretold: ranks that listen on that node are asked to save, others are not.
  kernel node2 '[Hardware Error]: Deferred error, no action required.'
  wait_until 10 grep -q 'rank [23]: ADVICE=save WHY=.*Deferred error' "out.$job"
  expect_eq "" "$(grep -E 'rank [014567]: ADVICE=save' "out.$job")"
  restore
}

controller_away() {
  test_case "slurmctld away: the incident is told at once, the drain waits for it; the agent that waits may be killed"
  submit || return
  "$mini" fault ctld kill
  watch_for node1 10 'CLASS=gpu.*NODE=node3'
  kernel node3 'NVRM: Xid (PCI:0000:51:00): 79, pid=77, name=python3, GPU has fallen off the bus.'
  watched
  "$mini" agent node3 kill
  "$mini" agent node3 start
  wait_until 20 agent node3 status
  sleep 3  # the fault itself
  "$mini" fault ctld start
  wait_until 30 states_known
  wait_until 30 has_state node3 DRAIN
  expect_match '^mm-agent: gpu 0000:51:00.0 NVRM: Xid' "$(reason node3)"
  untouched node1 node2 node4
  restore
}

killed_anywhere() {
  test_case "an agent killed at any moment around a fault: no incident is lost, the node is drained once"
  local k bus drains_before
  drains_before=$(drains node2)
  for k in 1 2 3 4 5 6 7 8; do
    bus=$(printf '0000:%02x:00' $((0x60 + k)))
    kernel node2 "NVRM: Xid (PCI:$bus): 48, pid=1, name=python3, DBE (double bit error) ECC Error"
    sleep "0.$(printf %02d $((k * k * 17 % 60)))"  # the moment of the kill, which is what is tried here
    "$mini" agent node2 kill
    "$mini" agent node2 start
  done
  wait_until 30 has_state node2 DRAIN
  for k in 1 2 3 4 5 6 7 8; do wait_until 10 has_incident node2 "$(printf '0000:%02x:00.0' $((0x60 + k)))"; done
  expect_match '^mm-agent: gpu 0000:61:00.0 NVRM: Xid' "$(reason node2)"
  sleep 3  # another drain, if there were one
  expect_eq 1 $(($(drains node2) - drains_before)) drains
  expect_ok unique_numbers
  restore
}
# How often slurmctld was told to drain the node.
drains() { grep -c "update_node: node $1 state set to DRAIN" "$MINI_SLURM_DIR/log/slurmctld"; }
has_incident() { grep '"kind":"incident"' "$MINI_SLURM_DIR/agent/events-$1.jsonl" | grep -q "\"device\":\"$2\""; }

full_disk() {
  test_case "the disk of the agent's state is full: it goes on, tells and drains; started there, it runs"
  "$mini" agent node2 stop
  # A file system of the node's own, in its own mount namespace.
  "$mini" exec node2 mount -t tmpfs -o size=2m tmpfs "$MINI_SLURM_DIR/agent"
  "$mini" exec node2 sh -c "head -c 4000000 /dev/zero >$MINI_SLURM_DIR/agent/rest" 2>/dev/null
  : >"$MINI_SLURM_DIR/kernel-node2.log"  # an agent without a state believes all of it
  "$mini" agent node2 start
  wait_until 20 agent_up node2
  kernel node2 'NVRM: Xid (PCI:0000:71:00): 79, pid=77, name=python3, GPU has fallen off the bus.'
  wait_until 10 has_state node2 DRAIN
  wait_until 5 has_event node2 '"device":"0000:71:00.0"'
  expect_ok agent node2 history
  # Killed there, it knows no numbers, and gives none twice.
  local first second
  first=$(number_of 0000:71:00.0)
  "$mini" agent node2 kill
  "$mini" agent node2 start
  wait_until 20 agent node2 status
  kernel node2 'NVRM: Xid (PCI:0000:73:00): 79, pid=77, name=python3, GPU has fallen off the bus.'
  wait_until 10 has_event node2 '"device":"0000:73:00.0"'
  second=$(number_of 0000:73:00.0)
  [ -n "$first" ] && [ -n "$second" ] && [ "$second" -gt "$first" ] || fail "incident $second after incident $first"
  # With room again, what happens next is kept.
  "$mini" exec node2 rm "$MINI_SLURM_DIR/agent/rest"
  kernel node2 'NVRM: Xid (PCI:0000:72:00): 94, pid=77, name=python3, Contained: CE User Channel (0x9). RST: No, D-RST: No'
  wait_until 5 has_event node2 '"device":"0000:72:00.0"'
  wait_until 5 "$mini" exec node2 grep -q 0000:72:00.0 "$MINI_SLURM_DIR/agent/events-node2.jsonl"
  wait_until 5 "$mini" exec node2 grep -q 0000:71:00.0 "$MINI_SLURM_DIR/agent/agent-node2.json"
  agent node2 clear >/dev/null
  "$mini" agent node2 stop
  "$mini" exec node2 umount "$MINI_SLURM_DIR/agent"
  : >"$MINI_SLURM_DIR/kernel-node2.log"  # its state of before knows nothing of these faults
  "$mini" agent node2 start
  restore
}

number_of() { events node2 | grep "\"device\":\"$1\"" | grep -o '"id":[0-9]*' | head -1 | cut -d: -f2; }

clock_jumps() {
  test_case "a clock that jumps by an hour, and back: that node says so; nobody is silent, no rank is killed, nothing is drained"
  submit || return
  local pids pid
  pids=$(all_pids)
  echo 3600 >"$stage/clock-node2"
  wait_until 10 has_event node2 '"code":"clock_skew"'
  expect_match 'the clock of node2 is 3600.. s ahead of those of most of its peers|the clock of node2 is 3599.. s ahead' "$(events node2)"
  echo 0 >"$stage/clock-node2"
  wait_until 10 has_event node2 'the clock is with its peers again'
  echo -3600 >"$stage/clock-node3"
  wait_until 10 has_event node3 '3600.. s behind\|3599.. s behind'
  rm "$stage"/clock-*
  wait_until 10 has_event node3 'the clock is with its peers again'
  expect_eq "" "$(events node1 | grep -E '"class":"peer"|silent: no heartbeat|"node":"node[14]".*clock_skew|clock_skew.*"node":"node[14]"')"
  # shellcheck disable=SC2086
  for pid in $pids; do [ -e "/proc/$pid" ] || fail "rank $pid was killed"; done
  untouched node1 node2 node3 node4
}

for c in ${MM_AGENT_CASES:-looks_fine nic_down admin_reason silent batch_node hang forged clock_jumps quiet_faults agent_restart kill_step lost_exit slurmd_killed kernel_log gpu_probe brake reload slow_rank controller_away killed_anywhere full_disk}; do
  "$c"
done
finish
