#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Launches of an MPI step in a row, none of which may fail: with Slurm's default fence of PMIx about 3 % die in MPI_Init, so this shows that the
# plugin's choice (SLURM_PMIX_FENCE=ring) reaches every step. MM_LAUNCHES sets how many (default 200).
set -u -o pipefail
here=$(dirname "$(readlink -f "$0")")
mini=$here/mini-slurm
# shellcheck source=lib/check.sh
. "$here/lib/check.sh"
# shellcheck source=lib/plugin_cluster.sh
. "$here/lib/plugin_cluster.sh"
scratch=$(mktemp -d /tmp/launch-test.XXXXXX)
chmod 755 "$scratch"
at_end rm -rf "$scratch"
launches=${MM_LAUNCHES:-200}
need_plugin "launches"

cluster_up "launch-$$" --nodes 4 --plugin "$plugin" || { test_case "cluster"; fail "no cluster"; finish; }
cat >"$scratch/ring.cc" <<'END'
// Exits 0 if the ranks meet and agree on a sum.
#include <mpi.h>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return sum == size * (size - 1) / 2 ? 0 : 1;
}
END

test_case "$launches launches of 4 ranks on 4 nodes"
if expect_ok compile_mpi ring; then
  began=$EPOCHREALTIME
  batch -N4 --ntasks-per-node=1 --mm-train=auto --export=ALL,launches="$launches" <<'END'
for ((k = 1; k <= launches; k++)); do
  srun --mpi=pmix ./ring >"log.$k" 2>&1 || { echo "launch $k: status $?"; cat "log.$k"; }
  rm -f "log.$k"
done
echo done
END
  printf '%d launches in %.0f s\n' "$launches" "$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')"
  expect_eq done "$(batch_output)"
  expect_nodes_idle
fi

finish
