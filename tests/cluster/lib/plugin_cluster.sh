# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For tests of the plugin: a cluster with or without it, jobs of the ordinary user, and what all such tests expect of the nodes.
# Wants $here (the folder of the tests), $mini and $scratch; $BUILD names the build folder.

plugin=${BUILD:-$here/../../build}/spank_mm_train.so

# A test that cannot run says why once, and ends.
need_plugin() {
  local reason=''
  [ "$(id -u)" = 0 ] || reason="needs root"
  [ -e "$plugin" ] || reason="$plugin is not built"
  [ -z "$reason" ] || { test_case "$1"; skip "$reason"; finish; }
  # The ordinary user must be able to reach it, wherever the build folder is.
  mkdir -p "$scratch/plugin"
  cp "$plugin" "$scratch/plugin/" && plugin=$scratch/plugin/spank_mm_train.so
}

# cluster_up NAME OPTIONS...; leaves $home, the ordinary user's working directory.
cluster_up() {
  export MINI_SLURM_NAME=$1
  at_end "$mini" down --name "$1"
  # shellcheck disable=SC2086  # MM_CLUSTER_MODE is one word or none
  "$mini" up ${MM_CLUSTER_MODE:+--mode $MM_CLUSTER_MODE} "${@:2}" >"$scratch/up-$1" 2>&1 || { cat "$scratch/up-$1"; return 1; }
  eval "$("$mini" env)"
  home=$MINI_SLURM_HOME
}
as_user() { "$mini" as-user env -C "$home" "$@"; }

# batch OPTIONS... <SCRIPT: submits the script on stdin, waits, and leaves its output in $home/out. Fails with the job.
batch() {
  { echo '#!/bin/bash'; cat; } >"$home/job.sh"
  chmod 755 "$home/job.sh"
  rm -f "$home/out"
  as_user sbatch --wait -o out "$@" job.sh >"$scratch/sbatch.log" 2>&1
}
batch_output() { cat "$home/out" 2>/dev/null; }

# Every node idle, none drained, none with a reason.
expect_nodes_idle() {
  wait_until 30 all_nodes_idle
  expect_eq "" "$(sinfo -h -N -o '%N %E' | awk '$2 != "none"')" "reasons on nodes"
}
all_nodes_idle() { [ "$(sinfo -h -N -o %T | sort -u)" = idle ]; }

# compile NAME: $scratch/NAME.cc with MPI, for the ordinary user.
compile_mpi() {
  mpicxx -O1 -o "$scratch/$1" "$scratch/$1.cc" && install -m 755 "$scratch/$1" "$home/$1"
}
