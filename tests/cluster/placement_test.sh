#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Placement on a real Slurm: ranks where the plan puts them, tasks on the CPUs of their GPU (on two real CPUs, with a tree that says that
# each has a GPU), the user's own choices, and the tree that the agent shares.
set -u -o pipefail
here=$(dirname "$(readlink -f "$0")")
mini=$here/mini-slurm
# shellcheck source=lib/check.sh
. "$here/lib/check.sh"
# shellcheck source=lib/plugin_cluster.sh
. "$here/lib/plugin_cluster.sh"
scratch=$(mktemp -d /tmp/placement-test.XXXXXX)
chmod 755 "$scratch"
at_end rm -rf "$scratch"
need_plugin "placement"
[ "$(nproc)" -ge 2 ] || { test_case "placement"; skip "needs two CPUs"; finish; }
place=${BUILD:-$here/../../build}/mm-place

# Names alternate between the leaves.
printf '%s\n' 'SwitchName=leaf0 Nodes=node[1,3]' 'SwitchName=leaf1 Nodes=node[2,4]' 'SwitchName=spine Switches=leaf[0-1]' >"$scratch/topology.conf"
cluster_up "placement-$$" --nodes 4 --gpus 2 --cpus 2 --plugin "$plugin" --topology "$scratch/topology.conf" || { test_case "cluster"; fail "no cluster"; finish; }
tree=$MINI_SLURM_DIR/two-cpus.xml
machines=$here/../spank_plugin/placement/machines
# Without the comment, which the reader that is built into hwloc does not take.
sed "/^<!--/d" "$machines/two-cpus.xml" >"$scratch/two-cpus.xml"
install -m 644 "$scratch/two-cpus.xml" "$tree"
cp "$MINI_SLURM_DIR/mm-train.conf" "$scratch/plain.conf"
# What a task prints of itself.
printf '#!/bin/bash\necho $LOCAL_RANK $(awk "/Cpus_allowed_list/ {print \\$2}" /proc/self/status) $1\n' >"$home/where"
chmod 755 "$home/where"

test_case "ranks are where mm-place plan puts them"
# Of the nodes nothing is known but the switches.
batch -N4 --ntasks-per-node=2 --mm-train=tp=2,pp=2 <<'END'
srun bash -c 'echo $SLURM_PROCID $SLURMD_NODENAME' | sort -n
END
plan() {
  "$place" plan "$1" --nodes 'node[1-4]' --tasks-per-node 2 --topology "$scratch/topology.conf" --xml "$2" --json 2>/dev/null |
    sed -E 's/.*"node":"([^"]*)".*"rank":([0-9]+).*/\2 \1/' | sort -n
}
expect_eq "$(plan tp=2,pp=2 "$machines/hbm-no-gpu.xml")" "$(batch_output)"
leaf=$(batch_output | awk '$1 < 4 {print $2}' | sort -u | xargs)
expect_match '^(node1 node3|node2 node4)$' "$leaf" "the data group that talks most shares a leaf"
# With two GPUs whose way to each other is slower than the network.
printf '[placement]\ntopology = "%s"\n' "$tree" >>"$MINI_SLURM_DIR/mm-train.conf"
batch -N4 --ntasks-per-node=2 --mm-train=tp=2,pp=2 <<'END'
srun bash -c 'echo $SLURM_PROCID $SLURMD_NODENAME' | sort -n
END
expect_eq "$(plan tp=2,pp=2 "$tree")" "$(batch_output)"

test_case "nodes that differ have trees of their own, and the speed that their GPUs have"
cp "$scratch/plain.conf" "$MINI_SLURM_DIR/mm-train.conf"
printf '[placement]\ntopology = "%s/tree-%%n.xml"\n' "$MINI_SLURM_DIR" >>"$MINI_SLURM_DIR/mm-train.conf"
for node in "node1 A100-SXM4-80GB" "node2 H100" "node3 H100" "node4 A100-SXM4-80GB"; do
  sed -E 's#(<object type="PCIDev"[^>]*pci_type="0302[^>]*)/>#\1><info name="PCIDevice" value="NVIDIA '"${node#* }"'"/></object>#' "$scratch/two-cpus.xml" \
    >"$MINI_SLURM_DIR/tree-${node% *}.xml"
done
batch -N4 --ntasks-per-node=1 --mm-train=pp=2 <<'END'
srun bash -c 'echo $MM_PP_RANK $SLURMD_NODENAME $MM_STAGE_SPEEDS' | sort -u
END
expect_eq "0 node2 1:1,0.31547:0.608657
0 node3 1:1,0.31547:0.608657
1 node1 1:1,0.31547:0.608657
1 node4 1:1,0.31547:0.608657" "$(batch_output)"

test_case "nodes that are slower make a stage of their own, whose speed its ranks are told"
cp "$scratch/plain.conf" "$MINI_SLURM_DIR/mm-train.conf"
printf '[placement]\nspeeds = ["node[2-3]=0.5"]\n' >>"$MINI_SLURM_DIR/mm-train.conf"
batch -N4 --ntasks-per-node=2 --mm-train=tp=2,pp=2 <<'END'
srun bash -c 'echo $MM_PP_RANK $SLURMD_NODENAME $MM_STAGE_SPEEDS' | sort -u
srun --mm-train=tp=2 bash -c 'echo "${MM_STAGE_SPEEDS:-none}"' | sort -u
END
expect_eq "0 node1 1:1,0.5:0.5
0 node4 1:1,0.5:0.5
1 node2 1:1,0.5:0.5
1 node3 1:1,0.5:0.5
none" "$(batch_output)"
cp "$scratch/plain.conf" "$MINI_SLURM_DIR/mm-train.conf"
printf '[placement]\ntopology = "%s"\n' "$tree" >>"$MINI_SLURM_DIR/mm-train.conf"

test_case "a task is on the CPUs of its GPU, and knows GPU and NIC"
batch -N1 --ntasks-per-node=2 --gpus-per-node=2 --mm-train=tp=2 <<'END'
srun bash -c './where "$MM_GPU $MM_NIC $CUDA_VISIBLE_DEVICES"' | sort
END
expect_eq $'0 1 0000:10:00.0 mlx5_1 0,1\n1 0 0000:20:00.0 mlx5_0 0,1' "$(batch_output)"

test_case "the user's binding stays, and verbose says so"
batch -N1 --ntasks-per-node=2 --gpus-per-node=2 --mm-train=tp=2 <<'END'
srun --mm-train=tp=2,verbose --cpu-bind=map_cpu:0,1 ./where 2>said | sort
SLURM_CPU_BIND=none srun ./where 2>/dev/null | sort
cat said
END
out=$(batch_output)
expect_eq $'0 0\n1 1\n0 0-1\n1 0-1' "$(head -4 <<<"$out" | sed 's/ $//')"
expect_match "--cpu-bind is the user's choice: it stays" "$out"
expect_match "node1: rank 0: GPU 0000:10:00.0, NIC mlx5_1, CPUs 0 \(the user's choice\)" "$out"

test_case "a hint is the user's choice, too: Slurm's binding stays"
batch -N1 -n2 --gpus-per-node=2 --mm-train=tp=2 <<'END'
srun --mm-train=off --hint=nomultithread ./where | sed 's/^ */- /' | awk '{print $NF}' | sort >without
srun --mm-train=tp=2,verbose --hint=nomultithread ./where 2>said | awk '{print $NF}' | sort >with
diff without with && cat said
END
expect_match "--hint is the user's choice: it stays" "$(batch_output)"

test_case "as many CPUs as --cpus-per-task says"
batch -N1 -n2 --gpus-per-node=2 --mm-train=auto <<'END'
srun -n1 -c2 --overlap ./where
srun -n2 -c1 --overlap ./where | sort
END
expect_eq $'0 0-1\n0 1\n1 0' "$(batch_output | sed 's/ $//')"

test_case "narrowed GPUs: the GPU is the one that is left"
batch -N1 -n2 --gpus-per-node=2 --mm-train=auto <<'END'
unset SLURM_GPUS_PER_NODE
srun --gpus-per-task=1 bash -c 'echo $SLURM_PROCID $MM_GPU' 2>/dev/null | sort
END
expect_eq $'0 0000:10:00.0\n1 0000:20:00.0' "$(batch_output)"
batch -N1 -n2 --gpus-per-node=2 --mm-train=auto <<'END'
srun --gpu-bind=map_gpu:1,0 bash -c 'echo $SLURM_PROCID $MM_GPU' 2>/dev/null | sort
END
expect_eq $'0 0000:20:00.0\n1 0000:10:00.0' "$(batch_output)" "--gpu-bind"

test_case "memory of the GPU's NUMA node is preferred, unless the user has bound it"
if [ -r /proc/self/numa_maps ]; then
  batch -N1 -n2 --gpus-per-node=2 --mm-train=tp=2 <<'END'
for choice in "" --mem-bind=none; do
  srun $choice bash -c 'echo $LOCAL_RANK $(grep -om1 "prefer:0" /proc/self/numa_maps)' 2>/dev/null | sort
done
END
  # This machine may have no second node, the tree's: then the first task's memory stays as it is.
  expect_eq $'1 prefer:0\n1' "$(batch_output | grep ^1)"
else
  skip "no /proc/self/numa_maps"
fi

test_case "in mm-run's hands a lost node's ranks alone move"
batch -N4 --ntasks-per-node=1 --mm-train=pp=3,spares=1 <<'END'
exec 9>id
export MM_RUN_STEP_FD=9
MM_NODES=node[1-3] srun -N3 -n3 bash -c 'echo $SLURM_PROCID $SLURMD_NODENAME' | sort -n
MM_NODES=node1,node4,node3 srun -N3 -n3 bash -c 'echo $SLURM_PROCID $SLURMD_NODENAME' | sort -n
END
out=$(batch_output)
expect_eq 6 "$(grep -c node <<<"$out")"
expect_eq "$(head -3 <<<"$out" | sed 's/node2/node4/')" "$(tail -3 <<<"$out")"

test_case "a tree that cannot be read costs no job, and is named once a node"
echo '<topology version="3.0"/>' >"$tree"
batch -N1 --ntasks-per-node=2 --mm-train=tp=2 <<'END'
srun bash -c 'echo rank $RANK' 2>&1 | sort
END
out=$(batch_output)
expect_match $'rank 0\nrank 1' "$out"
expect_eq 1 "$(grep -c 'tasks are not bound: .*two-cpus.xml: hwloc XML version 3.0' <<<"$out")"

test_case "the agent's copy is used where it is root's, and nobody else may write it"
cp "$scratch/plain.conf" "$MINI_SLURM_DIR/mm-train.conf"
install -m 644 "$scratch/two-cpus.xml" "$tree"
shared=$MINI_SLURM_DIR/run/topology-node1
expect_ok env HWLOC_XMLFILE="$tree" HWLOC_THISSYSTEM=1 "$place" share "$shared"
bound() {
  batch -N1 --ntasks-per-node=2 --gpus-per-node=2 --mm-train=tp=2 <<'END'
srun bash -c './where $MM_GPU' 2>/dev/null | sort
END
  batch_output | sed 's/ $//'
}
expect_eq $'0 1 0000:10:00.0\n1 0 0000:20:00.0' "$(bound)"
chown nobody "$shared"
expect_eq 0 "$(bound | grep -c 0000:10)" "somebody else's file"
chown root "$shared"
chmod g+w "$shared"
expect_eq 0 "$(bound | grep -c 0000:10)" "a file that a group may write"
rm -f "$shared"

test_case "verbose says how ranks were placed, and why not"
batch -N4 --ntasks-per-node=1 --mm-train=pp=2,verbose <<'END'
srun bash -c 'echo ran $RANK' 2>&1 | sort
srun -N2 -n2 true
END
out=$(batch_output)
expect_eq 4 "$(grep -c '^ran' <<<"$out")"
expect_match 'mm-train: 4 ranks on 4 nodes: modelled [0-9.]+ s of communication a step' "$out"
expect_match 'mm-train: a step on 2 of 4 nodes: Slurm.s order of ranks stays' "$out"

expect_nodes_idle

programs=${BUILD:-$here/../../build}
if [ -x "$programs/mm-run" ] && [ -x "$programs/mm-agentd" ]; then
  "$mini" down >/dev/null
  mkdir "$scratch/bin"
  cp "$programs/mm-run" "$programs/mm-agentd" "$place" "$scratch/bin/"
  cluster_up "placement-run-$$" --nodes 4 --plugin "$plugin" --topology "$scratch/topology.conf" --agent "$scratch/bin/mm-agentd" || finish

  test_case "the end of every rank is known on the batch node, with its status, though a node tells them together"
  batch -N4 --ntasks-per-node=8 --overcommit --mm-train=tp=2 <<'END'
srun --overcommit bash -c 'exit $((SLURM_PROCID % 16 == 13 ? 3 : 0))'
END
  ends() { sed -nE 's/.*"kind":"exit".*"rank":([0-9]+),"status":([0-9-]+).*/\1 \2/p' "$MINI_SLURM_DIR/agent/events-node1.jsonl" | sort -n; }
  all_told() { [ "$(ends | wc -l)" -ge 32 ]; }
  wait_until 10 all_told
  expect_eq "$(for r in {0..31}; do echo "$r $((r % 16 == 13 ? 768 : 0))"; done)" "$(ends)"

  test_case "mm-run: after a node was lost its ranks alone are elsewhere"
  printf '#!/bin/bash\necho $SLURM_PROCID $SLURMD_NODENAME >>launch.$SLURM_STEP_ID\n[ -e again ] || exec sleep 1000\n' >"$home/placed"
  printf '#!/bin/bash\n%s/bin/mm-run -- ./placed\n' "$scratch" >"$home/job.sh"
  chmod 755 "$home/placed" "$home/job.sh"
  job=$(as_user sbatch --parsable -N4 --ntasks-per-node=1 -o run.out --mm-train=pp=3,spares=1 job.sh)
  all_placed() { [ "$(cat "$home"/launch.* 2>/dev/null | wc -l)" -ge 3 ]; }
  wait_until 30 all_placed
  first=$(sort -n "$home"/launch.*)
  rm -f "$home"/launch.*
  touch "$home/again"
  lost=$(awk '$2 != "node1" {print $2; exit}' <<<"$first")
  spare=$(comm -13 <(awk '{print $2}' <<<"$first" | sort) <(printf 'node%s\n' 1 2 3 4))
  "$mini" fault nic "$lost" eth1 down
  job_over() { [ -z "$(squeue -h -j "$job")" ]; }
  wait_until 60 job_over
  expect_eq "${first/$lost/$spare}" "$(sort -n "$home"/launch.* 2>/dev/null)" "$(cat "$home/run.out")"
else
  test_case "mm-run and agents"
  skip "mm-run or mm-agentd is not built"
fi
finish
