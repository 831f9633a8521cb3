#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# A job without --mm-train behaves as if the plugin were absent: the environment of every rank of an MPI program, and of the batch script, is
# the same on a cluster with the plugin and on one without.
set -u -o pipefail
here=$(dirname "$(readlink -f "$0")")
mini=$here/mini-slurm
# shellcheck source=lib/check.sh
. "$here/lib/check.sh"
# shellcheck source=lib/plugin_cluster.sh
. "$here/lib/plugin_cluster.sh"
scratch=$(mktemp -d /tmp/plugin-absent-test.XXXXXX)
chmod 755 "$scratch"
at_end rm -rf "$scratch"
need_plugin "plugin absent"

cat >"$scratch/environment.cc" <<'END'
// Prints each rank's environment, rank by rank.
#include <mpi.h>
#include <unistd.h>
#include <cstdio>
int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  char name[32];
  std::snprintf(name, sizeof name, "env.%d", rank);
  std::FILE* out = std::fopen(name, "w");
  for (char** e = environ; *e != nullptr; ++e) std::fprintf(out, "%s\n", *e);
  std::fclose(out);
  MPI_Finalize();
  return 0;
}
END

# What differs between any two jobs (SLURM_PMIXP_ABORT_AGENT_PORT and OMPI_MCA_orte_precondition_transports are drawn anew by PMIx and OpenMPI), and what names the instance of the private Slurm: its folder, ports and addresses, and their checksums.
comparable() {
  grep -vE '^(SLURM_JOB_ID|SLURM_JOBID|SLURM_TASK_PID|SLURM_SRUN_COMM_PORT|SLURM_STEP_LAUNCHER_PORT|PMIX_[A-Z0-9_]*)=|^(SLURM_PMIXP_ABORT_AGENT_PORT|OMPI_MCA_orte_precondition_transports)=' |
    sed -E "s#$MINI_SLURM_DIR#DIR#g; s#$MINI_SLURM_NAME#NAME#g; s#198\.1[89]\.[0-9]+\.#NET.#g; s#^SLURM_WORKING_CLUSTER=mini:[^:]*:[0-9]+:#SLURM_WORKING_CLUSTER=mini:HOST:PORT:#" |
    sort
}

# run_on NAME OPTIONS...: the job on a cluster of its own; leaves NAME.0 ... NAME.7, NAME.batch and NAME.status in $scratch.
run_on() {
  local as=$1 rank
  shift
  cluster_up "$as-$$" --nodes 4 "$@" || return 1
  compile_mpi environment || return 1
  batch -N4 --ntasks-per-node=2 <<'END'
env >env.batch
SLURM_PMIX_FENCE=ring srun --mpi=pmix ./environment
END
  echo $? >"$scratch/$as.status"
  for rank in 0 1 2 3 4 5 6 7 batch; do comparable <"$home/env.$rank" >"$scratch/$as.$rank"; done
  "$mini" down >/dev/null 2>&1
}

test_case "the same job runs with and without the plugin"
run_on without || fail "no run without the plugin"
run_on with --plugin "$plugin" || fail "no run with the plugin"
expect_eq 0 "$(cat "$scratch/without.status")" "job without the plugin"
expect_eq 0 "$(cat "$scratch/with.status")" "job with the plugin"

test_case "every rank and the batch script have the same environment"
for rank in 0 1 2 3 4 5 6 7 batch; do
  [ -s "$scratch/with.$rank" ] || fail "rank $rank left no environment"
  expect_eq "" "$(diff "$scratch/without.$rank" "$scratch/with.$rank")" "rank $rank"
done
expect_eq "" "$(cat "$scratch"/with.* | grep -E '^(SLURM_)?MM_TRAIN' | grep -v '^MM_TRAIN_CONF=')"
[ "$(wc -l <"$scratch/with.0")" -gt 40 ] || fail "rank 0 has only $(wc -l <"$scratch/with.0") variables"

finish
