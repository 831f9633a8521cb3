#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# spank_mm_train.so on a real Slurm: what sbatch, salloc and srun refuse, the order of ranks, the environment of tasks, and that neither a user's
# mistake nor a broken site file ever costs a node or a job that does not ask for mm-train.
set -u -o pipefail
here=$(dirname "$(readlink -f "$0")")
mini=$here/mini-slurm
# shellcheck source=lib/check.sh
. "$here/lib/check.sh"
# shellcheck source=lib/plugin_cluster.sh
. "$here/lib/plugin_cluster.sh"
scratch=$(mktemp -d /tmp/plugin-test.XXXXXX)
chmod 755 "$scratch"
at_end rm -rf "$scratch"
need_plugin "plugin"

# node1 and node4 share a switch, so the switch tree's order is not Slurm's.
printf '%s\n' 'SwitchName=leaf0 Nodes=node[1,4]' 'SwitchName=leaf1 Nodes=node[2,3]' 'SwitchName=spine Switches=leaf[0-1]' >"$scratch/topology.conf"
cluster_up "plugin-$$" --nodes 4 --gpus 2 --plugin "$plugin" --topology "$scratch/topology.conf" || { test_case "cluster"; fail "no cluster"; finish; }
mode=$MINI_SLURM_MODE

cat >"$home/job.toml" <<'END'
[model]
path = "model"
[data]
shards = "data/*.tar"
global_batch = 8
[parallel]
tp = 2
[recovery]
spares = 1
hang_timeout = 7
requeue = "off"
END
printf '#!/bin/bash\nexit 0\n' >"$home/ok.sh"
chmod 755 "$home/ok.sh"

test_case "the plugin exports only what Slurm looks up, and needs libc alone"
expect_eq "" "$(nm -D --defined-only "$plugin" | awk '{print $3}' | grep -vE '^(plugin_(name|type|version)|spank_plugin_version|slurm_spank_(init|init_post_opt|local_user_init|task_init|task_post_fork|task_exit))$')"
expect_eq "" "$(ldd "$plugin" | awk '{print $1}' | grep -vE '^(linux-vdso|libc|libm)\.so|ld-linux')"

# refused MESSAGE OPTIONS...: sbatch ends with status 1, the message, and no job.
refused() {
  local message=$1
  shift
  expect_status 1 as_user sbatch "$@" </dev/null
  expect_match "mm-train: .*$message" "$output"
  [[ $output != *Submitted* ]] || fail "a job was submitted: $output"
}
test_case "sbatch refuses a mistake in the value"
sed 's/tp = 2/tpp = 2/' "$home/job.toml" >"$home/unknown.toml"
refused 'unknown.toml.*parallel.tpp.*parallel.tp' --mm-train=unknown.toml ok.sh
refused 'missing.toml: no such job file' --mm-train=missing.toml ok.sh
refused 'tq' --mm-train=tq=2 ok.sh
refused 'needs a value' --mm-train= ok.sh
echo '[model' >"$home/broken.toml"
refused 'broken.toml' --mm-train=broken.toml ok.sh
refused 'unknown.toml' --mm-train=auto --mm-train=unknown.toml ok.sh
sed '/^tp = 2/a dtype = "bfloat16"' "$home/job.toml" >"$home/bfloat16.toml"
refused 'bfloat16.toml.*parallel.dtype' --mm-train=bfloat16.toml ok.sh
sed '/^tp = 2/a backend = "cuda"' "$home/job.toml" >"$home/cuda.toml"
refused 'cuda.toml.*parallel.backend' --mm-train=cuda.toml ok.sh

test_case "a swallowed script is refused at once, even with an open stdin"
mkfifo "$scratch/open"
exec {hold}<>"$scratch/open"
expect_status 1 timeout 20 "$mini" as-user env -C "$home" sbatch --mm-train ok.sh <&"$hold"
expect_match 'did you mean --mm-train=auto ok.sh' "$output"
exec {hold}>&-

test_case "sbatch refuses a layout that contradicts the command line, the script or both"
refused '8 tasks are not a multiple of tp 3' -N4 --ntasks-per-node=2 --mm-train=tp=3 ok.sh
refused '8 tasks are not a multiple of tp 3' -n 8 --mm-train=tp=3 --wrap hostname
printf '#!/bin/bash\n#SBATCH -N 4 --ntasks-per-node=2\n#SBATCH --mm-train=tp=3\n' >"$home/tp3.sh"
refused '8 tasks are not a multiple of tp 3' tp3.sh
refused '6 tasks are not a multiple of tp 4.*of 8 tasks, 2 on 1 spare node' --mm-train=tp=4,spares=1 tp3.sh
refused 'spares 4 of 4 nodes' -N4 -n4 --mm-train=spares=4 ok.sh
refused 'dp 3 \(6 tasks\) does not divide data.global_batch 8' -N4 --ntasks-per-node=2 --mm-train=job.toml ok.sh
refused 'heterogeneous' --mm-train=auto -N1 : -N1 ok.sh

test_case "the command line overrides the script's layout, and salloc refuses as well"
expect_ok as_user sbatch --wait -N3 --mm-train=auto tp3.sh
expect_status 1 as_user salloc -N2 -n4 --mm-train=tp=3 true
expect_match 'mm-train: .*4 tasks are not a multiple of tp 3' "$output"
expect_ok as_user sbatch --help
expect_match '--mm-train=SPEC' "$output"
expect_nodes_idle

test_case "what only the allocation shows fails in srun, not the node"
batch -N2 --mm-train=tp=3 <<'END'
srun -n4 hostname
echo "stated $?"
srun -c4 hostname # as many as fit: 2 a node
echo "found $?"
END
out=$(batch_output)
expect_eq 2 "$(grep -c 'mm-train: .*4 tasks are not a multiple of tp 3' <<<"$out")"
expect_match 'stated 1' "$out"
expect_match 'found [1-9]' "$out"
expect_eq 0 "$(grep -c '^node' <<<"$out")" "tasks that ran"
expect_status 1 as_user srun -n4 --mm-train=tp=3 hostname
expect_match '4 tasks are not a multiple of tp 3' "$output"
expect_status 1 as_user srun -n4 --mm-train=nothing.toml hostname
expect_nodes_idle

print_all='echo $RANK $(hostname) local $LOCAL_RANK/$LOCAL_WORLD_SIZE of $WORLD_SIZE node $NODE_RANK tp $MM_TP_RANK cp $MM_CP_RANK dp $MM_DP_RANK pp $MM_PP_RANK'
test_case "4 nodes x 2 tasks: ranks follow the switch tree, and the environment is the layout"
batch -N4 --ntasks-per-node=2 --mm-train=tp=2,pp=2 <<END
srun bash -c '$print_all' | sort -n
echo "--"
srun bash -c 'echo \$MASTER_ADDR \$MASTER_PORT \$SLURM_PROCID=\$RANK \$SLURM_LOCALID=\$LOCAL_RANK \${MM_AGENT_SOCKET##*/} dist:\$SLURM_DISTRIBUTION host:\$SLURM_HOSTFILE fence:\$SLURM_PMIX_FENCE'
END
hosts=(node1 node4 node2 node3)
if [ "$mode" != netns ]; then for k in 0 1 2 3; do hosts[k]=$(hostname); done; fi
want=''
for k in 0 1 2 3 4 5 6 7; do
  want+="$k ${hosts[k / 2]} local $((k % 2))/2 of 8 node $((k / 2)) tp $((k % 2)) cp 0 dp $((k / 2 % 2)) pp $((k / 4))"$'\n'
done
expect_eq "$want--" "$(batch_output | sed '/^--$/q')"
rest=$(batch_output | sed '1,/^--$/d')
expect_eq 8 "$(grep -c ' fence:ring$' <<<"$rest")"
expect_eq 1 "$(awk '{print $1, $2}' <<<"$rest" | sort -u | wc -l)" "one master for all"
[ "$mode" = netns ] && expect_match '^node1 ' "$rest"
expect_eq "" "$(grep -vE 'dist: host: ' <<<"$rest")" "nothing of the host file reaches a task"
for k in 1 2 3 4; do expect_eq 2 "$(grep -c "agent-node$k.sock" <<<"$rest")" "tasks with node$k's agent"; done
while read -r _ _ procid localid _; do
  expect_eq "${procid%=*}" "${procid#*=}"
  expect_eq "${localid%=*}" "${localid#*=}"
done <<<"$rest"

test_case "MM_NODES is the order, on fewer nodes, with uneven lists refused"
batch -N4 --ntasks-per-node=2 --mm-train=auto <<'END'
MM_NODES=node4,node2 srun --overlap -N2 -n4 bash -c 'echo $RANK $SLURMD_NODENAME $NODE_RANK $MASTER_ADDR ${MM_NODES-none} ${SLURM_HOSTFILE-none}' | sort -n
printf 'node3\n' >mine
SLURM_HOSTFILE=$PWD/mine MM_NODES=node1 srun --overlap -N1 -n1 bash -c 'echo $SLURMD_NODENAME ${SLURM_HOSTFILE-none}'
MM_NODES=node[1-3] srun -N3 -n4 hostname
echo "uneven $?"
MM_NODES=node[1-2] srun -N3 -n3 hostname
echo "count $?"
exec 9>step_id
MM_RUN_STEP_FD=9 MM_NODES=node1 srun -N1 -n1 bash -c 'echo $SLURM_STEP_ID ${MM_RUN_STEP_FD-none}'
END
out=$(batch_output)
master=node4
[ "$mode" = netns ] || master=127.0.0.1
expect_eq "$(printf '%s\n' "0 node4 0 $master none none" "1 node4 0 $master none none" "2 node2 1 $master none none" "3 node2 1 $master none none" \
  'node1 none')" "$(head -5 <<<"$out")"
expect_match 'MM_NODES=node\[1-3\]: 4 tasks do not spread evenly over 3 nodes' "$out"
expect_match 'uneven 1' "$out"
expect_match 'MM_NODES=node\[1-2\]: 2 nodes, but srun asks for 3' "$out"
expect_match 'count 1' "$out"
expect_eq "$(cat "$home/step_id") none" "$(tail -1 <<<"$out")" "the step's id for mm-run"

test_case "a user's own choice of nodes or order stays, and one line says so"
batch -N4 --ntasks-per-node=1 --mm-train=auto <<'END'
srun -N2 -n2 -w node[2,3] bash -c 'echo w $RANK $SLURMD_NODENAME' 2>err | sort
wc -l <err
cat err
srun -m cyclic -N4 -n4 bash -c 'echo m $RANK $SLURMD_NODENAME' | sort
printf 'node3\nnode3\nnode1\n' >mine
SLURM_HOSTFILE=$PWD/mine srun -N2 -n3 bash -c 'echo h $RANK $SLURMD_NODENAME $NODE_RANK $SLURM_DISTRIBUTION ${SLURM_HOSTFILE##*/}' | sort
END
out=$(batch_output)
expect_eq $'w 0 node2\nw 1 node3\n1' "$(head -3 <<<"$out")"
expect_match 'mm-train: -w chooses nodes or their order' "$out"
expect_match $'m 0 node1\nm 1 node2\nm 2 node3\nm 3 node4' "$out"
expect_match $'h 0 node3 0 arbitrary mine\nh 1 node3 0 arbitrary mine\nh 2 node1 1 arbitrary mine' "$out"
expect_match 'outside an allocation' "$(as_user srun -N2 --mm-train=auto hostname 2>&1)"

test_case "uneven allocations keep their counts"
batch -n5 -N4 --mm-train=auto <<'END'
srun bash -c 'echo $RANK $SLURMD_NODENAME $LOCAL_WORLD_SIZE' | sort -n
echo $SLURM_TASKS_PER_NODE
END
expect_eq $'0 node1 2\n1 node1 2\n2 node4 1\n3 node2 1\n4 node3 1\n2,1(x3)' "$(batch_output)"

test_case "the order changes nothing in how many tasks a step has, and where"
for shape in "-N2" "-N2 --ntasks-per-node=2"; do
  # shellcheck disable=SC2086  # words
  batch $shape --gpus-per-node=2 --mm-train=auto <<'END'
for options in "" "--ntasks-per-node=2" "-n4" "-c4" "-c4 --ntasks-per-node=2 -N2" "-n3" "--gpus-per-task=1 -n2"; do
  for way in off "" auto; do
    echo "$options: $(srun ${way:+--mm-train=$way} $options bash -c 'echo $SLURM_PROCID.$SLURMD_NODENAME.$SLURM_NTASKS' 2>/dev/null | sort -n | xargs)"
  done | uniq -c
done
END
  expect_eq 7 "$(grep -c '^ *3 ' <<<"$(batch_output)")" "$shape: $(batch_output)"
done

test_case "a job file: absolute for the batch script, and the spares, for mm-run"
batch -N4 --ntasks-per-node=2 --mm-train=job.toml -J facts <<'END' || true
END
expect_match 'dp 3' "$(cat "$scratch/sbatch.log")"
sed -i 's/global_batch = 8/global_batch = 6/' "$home/job.toml"
batch -N4 --ntasks-per-node=2 --mm-train=job.toml <<'END'
env | grep -E '^(MM_TRAIN_(SPEC|SPARES)|MM_AGENT_SOCKET|SBATCH_NO_KILL|RANK)=' | sort
cd /
srun -N1 -n1 true && echo helper
srun -N3 -n6 -m block bash -c 'echo tp $MM_TP_RANK dp $MM_DP_RANK' 2>/dev/null | sort | uniq -c | tr -s ' '
END
out=$(batch_output)
expect_match "MM_TRAIN_SPARES=1
MM_TRAIN_SPEC=$home/job.toml" "$out"
expect_match "MM_AGENT_SOCKET=$MINI_SLURM_DIR/run/agent-node1.sock" "$out"
[[ $out != *SBATCH_NO_KILL* ]] || fail "SBATCH_NO_KILL reached the job"
expect_match $'helper\n 1 tp 0 dp 0\n 1 tp 0 dp 1\n 1 tp 0 dp 2\n 1 tp 1 dp 0' "$out"

test_case "off: nothing of mm-train is left in the step; a helper step passes"
batch -N4 --ntasks-per-node=2 --mm-train=tp=2 <<'END'
srun --mm-train=off -N1 -n1 env | grep -E '^(MM_(TRAIN|AGENT|TP)|RANK|WORLD_SIZE|MASTER|SLURM_MM_TRAIN|SLURM_PMIX_FENCE)' | grep -v MM_TRAIN_CONF
echo "--"
srun -n1 -N1 bash -c 'echo $WORLD_SIZE ${MM_TP_RANK-none}'
END
expect_eq $'--\n1 none' "$(batch_output)"

test_case "a variable that the user set is never overwritten; ours are renewed in an inner step"
batch -N2 --ntasks-per-node=1 --mm-train=auto <<'END'
export MASTER_PORT=4242 SLURM_PMIX_FENCE=tree
srun bash -c 'echo $RANK $MASTER_PORT $SLURM_PMIX_FENCE $([ ${MM_AGENT_SOCKET##*/} = agent-$SLURMD_NODENAME.sock ] && echo own)' | sort -n
MM_AGENT_SOCKET=/mine srun -n2 bash -c 'echo $MM_AGENT_SOCKET' | sort -u
srun -N1 -n1 bash -c 'echo outer $RANK $WORLD_SIZE; srun --overlap -N2 -n2 bash -c "echo inner \$RANK \$WORLD_SIZE" | sort'
END
expect_eq $'0 4242 tree own\n1 4242 tree own\n/mine\nouter 0 1\ninner 0 2\ninner 1 2' "$(batch_output | grep -v '^srun: ')"

test_case "--export=NONE and a list reach batch script and steps"
for export in NONE HOME; do
  batch -N2 --ntasks-per-node=1 --export=$export --mm-train=tp=2 <<'END'
echo $MM_TRAIN_SPEC $(basename $MM_AGENT_SOCKET)
srun --export=NONE /bin/bash -c 'echo $RANK $WORLD_SIZE $MM_TP_RANK' | sort -n
END
  expect_eq $'tp=2 agent-node1.sock\n0 2 0\n1 2 1' "$(batch_output)" "--export=$export"
done

test_case "a job that is submitted from a job starts clean"
batch -N1 --mm-train=tp=1,spares=0 <<'END'
sbatch --wait -N1 -o inner --wrap 'env | grep -E "^(MM_TRAIN_SPEC|MM_AGENT|SLURM_MM_TRAIN|MM_TRAIN_EXPORTED|SLURM_SPANK)"; echo end' >/dev/null
cat inner
END
expect_eq end "$(batch_output)"

test_case "salloc: the shell and its steps"
expect_eq "auto 0 2" "$(as_user salloc -Q -N2 --ntasks-per-node=1 --mm-train=auto bash -c 'echo $MM_TRAIN_SPEC $MM_TRAIN_SPARES $(srun bash -c "echo \$WORLD_SIZE" | sort -u)' 2>/dev/null)"

test_case "GPUs: all of the step stay visible; a narrowed task gets a warning"
batch -N1 --ntasks-per-node=2 --gpus-per-node=2 --mm-train=auto <<'END'
srun bash -c 'echo $LOCAL_RANK $CUDA_VISIBLE_DEVICES $MM_LOCAL_DEVICE $CUDA_DEVICE_ORDER' 2>&1 | sort -n
unset SLURM_GPUS_PER_NODE # wins over --gpus-per-task
srun --gpus-per-task=1 bash -c 'echo $CUDA_VISIBLE_DEVICES $MM_LOCAL_DEVICE' 2>&1 | sort
END
out=$(batch_output)
expect_eq $'0 0,1 0 PCI_BUS_ID\n1 0,1 1 PCI_BUS_ID' "$(head -2 <<<"$out")"
expect_match $'0 0\n1 0' "$out"
expect_match "Slurm lets each task see 1 of the step's 2 GPUs" "$out"

test_case "training interfaces that the node has are exported"
if [ "$mode" = netns ]; then
  expect_eq "eth1 =eth1 eth1" \
    "$(as_user srun -N1 --mm-train=auto bash -c 'echo $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME $OMPI_MCA_btl_tcp_if_include' 2>/dev/null)"
else
  skip "nodes have no interfaces of their own in $mode mode"
fi

test_case "mpirun in a job: its daemons are no ranks"
cat >"$scratch/rank.cc" <<'END'
#include <mpi.h>
#include <cstdio>
#include <cstdlib>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* outer = std::getenv("RANK");
  std::printf("%d %s\n", rank, outer != nullptr ? outer : "none");
  MPI_Finalize();
}
END
if expect_ok compile_mpi rank; then
  batch -N2 --ntasks-per-node=1 --mm-train=auto <<'END'
mpirun --mca plm slurm ./rank | sort
END
  expect_eq $'0 none\n1 none' "$(batch_output)"
fi

test_case "PyTorch forms its group from the exported environment alone"
if /usr/bin/python3 -c 'import torch.distributed' 2>/dev/null; then
  cat >"$home/reduce.py" <<'END'
import torch
import torch.distributed as dist
dist.init_process_group("gloo", init_method="env://")
x = torch.tensor([float(dist.get_rank() + 1)], dtype=torch.float64)
dist.all_reduce(x)
print(dist.get_rank(), dist.get_world_size(), x.item())
END
  batch -N4 --ntasks-per-node=1 --mm-train=auto <<'END'
srun /usr/bin/python3 reduce.py 2>&1 | sort -n
END
  expect_eq $'0 4 10.0\n1 4 10.0\n2 4 10.0\n3 4 10.0' "$(batch_output)"
else
  skip "no python3-torch"
fi

test_case "--no-kill is implied, from the command line and from a #SBATCH line"
for way in argument directive; do
  if [ $way = argument ]; then option=(--mm-train=auto) line=''; else option=() line='#SBATCH --mm-train=auto'; fi
  printf '%s\n' '#!/bin/bash' "$line" 'touch started' 'until [ -e stop ]; do sleep 0.1; done' >"$home/wait.sh"
  rm -f "$home/started" "$home/stop"
  job=$(as_user sbatch --parsable -N2 -o wait.out "${option[@]}" wait.sh)
  wait_until 30 test -e "$home/started"
  last=$(scontrol show hostnames "$(squeue -h -j "$job" -o %N)" | tail -1)
  scontrol update nodename="$last" state=down reason=test
  wait_until 30 eval "[ \$(squeue -h -j $job -o %D) = 1 ]"
  expect_eq RUNNING "$(squeue -h -j "$job" -o %T)" "job without $last"
  touch "$home/stop"
  wait_until 30 eval "[ -z \"\$(squeue -h -j $job)\" ]"
  scontrol update nodename="$last" state=resume
done
expect_nodes_idle

# fake_agents MODE: on all four nodes; what arrives is in $scratch/agents.
fake_agents() {
  rm -f "$scratch/stop-agents" "$scratch/ready"
  mkfifo "$scratch/stop-agents" "$scratch/ready"
  /usr/bin/python3 "$here/lib/fake_agent.py" "$scratch/agents" "$1" "$MINI_SLURM_DIR"/run/agent-node{1,2,3,4}.sock \
    <"$scratch/stop-agents" >"$scratch/ready" &
  agents=$!
  exec {agents_input}>"$scratch/stop-agents"
  read -r -t 20 _ <"$scratch/ready" || fail "fake agents do not start"
}
no_agents() { exec {agents_input}>&-; wait "$agents"; }

test_case "job, tasks and their ends are registered with the agents, by root"
fake_agents answer
batch -N4 --ntasks-per-node=2 --mm-train=job.toml <<'END'
echo $$ >script_pid
MM_NODES=node[4,2,1] srun -N3 -n6 bash -c 'echo $$ >pid.$RANK; exit $((RANK == 5 ? 3 : 0))'
END
no_agents
job=$(sed -n 's/Submitted batch job //p' "$scratch/sbatch.log")
uid=$(id -u "$MINI_SLURM_USER")
expect_eq "agent-node1.sock uid=0  BATCH_NODE=node1 BATCH_PID=$(cat "$home/script_pid") JOB=$job NODES=node[1-4] REQUEUE=off RESTARTS=0 SPARES=1 UID=$uid VERB=job" \
  "$(grep VERB=job "$scratch/agents")"
expect_eq 3 "$(grep -c VERB=task "$scratch/agents")" "all tasks of a node are one message"
expect_eq 6 "$(grep -c VERB=exit "$scratch/agents")"
for first in 0 2 4; do
  node=$(printf '%s\n' node4 node2 node1 | sed -n "$((first / 2 + 1))p")
  pids=$(cat "$home/pid.$first" "$home/pid.$((first + 1))" | paste -sd,)
  expect_eq "agent-$node.sock uid=0  HANG_TIMEOUT=7 JOB=$job LOCAL_RANK=0,1 NODES=node[1-2,4] NTASKS=6 PID=$pids QUIET=1 RANK=$first,$((first + 1)) STEP=0 UID=$uid VERB=task" \
    "$(grep "VERB=task" "$scratch/agents" | grep " RANK=$first,")"
  for rank in "$first" "$((first + 1))"; do
    expect_eq "agent-$node.sock uid=0  JOB=$job PID=$(cat "$home/pid.$rank") QUIET=1 RANK=$rank STATUS=$((rank == 5 ? 768 : 0)) STEP=0 VERB=exit" \
      "$(grep "VERB=exit" "$scratch/agents" | grep " RANK=$rank ")"
  done
done

test_case "agents that refuse or never answer hold no task up for long, and fail none"
for way in refuse silent; do
  fake_agents $way
  expect_ok batch -N2 --ntasks-per-node=4 --mm-train=auto <<'END'
srun bash -c 'echo $RANK' | sort -n | xargs
END
  no_agents
  expect_eq "0 1 2 3 4 5 6 7" "$(batch_output)" "$way"
done
fake_agents answer
batch -N2 --ntasks-per-node=1 <<'END'
srun true
END
no_agents
expect_eq "" "$(cat "$scratch/agents")" "a job without --mm-train"

test_case "a broken site file costs neither node nor job, and is named"
cp "$MINI_SLURM_DIR/mm-train.conf" "$scratch/site"
echo 'nonsense = [' >"$MINI_SLURM_DIR/mm-train.conf"
expect_ok as_user srun -N2 hostname
[[ $output != *mm-train* ]] || fail "a job without --mm-train hears of it: $output"
batch -N2 --ntasks-per-node=1 --mm-train=auto <<'END'
srun bash -c 'echo rank $RANK'
END
expect_match 'rank 0' "$(batch_output)"
expect_match 'rank 1' "$(batch_output)"
expect_match "site settings: .*mm-train.conf" "$(batch_output)"
rm "$MINI_SLURM_DIR/mm-train.conf"
expect_match 'rank 0' "$(as_user srun -N1 --mm-train=auto bash -c 'echo rank $RANK' 2>&1)"
cp "$scratch/site" "$MINI_SLURM_DIR/mm-train.conf"
expect_nodes_idle

test_case "a forged record is the user's own affair: the step runs, no node suffers"
for forged in 'value=a tp=0' 'value=a order=node[1-' 'value=a order=nowhere[1-99999999]' "value=$(head -c 70000 /dev/zero | tr '\0' x)" 'x'; do
  expect_ok as_user env SLURM_MM_TRAIN="$forged" sbatch --wait -N1 -o forged --mm-train=auto --wrap "export SLURM_MM_TRAIN='$forged'; srun -n1 true"
done
expect_nodes_idle

test_case "nobody wrote a reason, and nothing is left in memory files or environment"
expect_eq "" "$(grep -lE 'mm-train: .*(terminate|Segmentation)' "$MINI_SLURM_DIR"/log/slurmd-* 2>/dev/null)"
expect_eq "" "$(grep -hiE 'signal 11|segfault|plugin.*failed|spank.*error' "$MINI_SLURM_DIR"/log/slurmd-* | head -3)"
expect_nodes_idle

test_case "the plugin is gone, as while it is replaced: it is optional, so jobs of others run"
mv "$plugin" "$plugin.away"
expect_ok as_user srun -N2 true
batch -N2 --ntasks-per-node=1 <<'END' || fail "the job failed: $(batch_output)"
srun true
END
mv "$plugin.away" "$plugin"
expect_nodes_idle

finish
