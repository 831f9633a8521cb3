#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# mm-trainer under a real srun: one rank, and dp = 4 on four nodes, give the numbers of the reference, step by step. The reference's numbers
# are frozen in tests/trainer/fixtures (see freeze_reference.py there); the model and the data are made anew by make-fixture.
set -u -o pipefail
here=$(dirname "$(readlink -f "$0")")
mini=$here/mini-slurm
BUILD=${BUILD:-$here/../../build}
# shellcheck source=lib/check.sh
. "$here/lib/check.sh"
# shellcheck source=lib/plugin_cluster.sh
. "$here/lib/plugin_cluster.sh"
scratch=$(mktemp -d /tmp/trainer-test.XXXXXX)
chmod 755 "$scratch"
at_end rm -rf "$scratch"
need_plugin "mm-trainer under srun"

cluster_up "trainer-$$" --nodes 4 --plugin "$plugin" || { test_case "cluster"; fail "no cluster"; finish; }
install -m 755 "$BUILD/mm-trainer" "$home/mm-trainer"
"$BUILD/tests/make-fixture" "$home/fixture" --preset tiny --samples 64 >/dev/null || { test_case "fixture"; fail "make-fixture failed"; finish; }
chmod -R a+rX "$home/fixture"
cat >"$home/job.toml" <<'END'
[run]
steps = 20
[model]
path = "fixture/model"
[data]
shards = "fixture/data/*.tar"
shuffle = false
global_batch = 8
[parallel]
threads = 1
END

# distance RUN TOLERANCE: the largest relative distance of loss and grad_norm from the fixture; fails above the tolerance.
distance() {
  python3 - "$here/../trainer/fixtures/tiny.json" "$home/$1/metrics.jsonl" "$2" <<'END'
import json, sys
want = json.load(open(sys.argv[1]))["steps"]
got = [json.loads(line) for line in open(sys.argv[2])]
assert [m["step"] for m in got] == [m["step"] for m in want], "steps differ: %s" % [m["step"] for m in got]
assert all(g["tokens"] == w["tokens"] and abs(g["lr"] - w["lr"]) <= 1e-15 for g, w in zip(got, want)), "lr or tokens differ"
worst = max(abs(g[k] - w[k]) / abs(w[k]) for g, w in zip(got, want) for k in ("loss", "grad_norm"))
print("%.1e" % worst)
sys.exit(worst > float(sys.argv[3]))
END
}

for ranks in 1 4; do
  for dtype in float64 float32; do
    tolerance=1e-9
    [ $dtype = float64 ] || tolerance=1e-4
    test_case "dp=$ranks, $dtype: within $tolerance of the reference over 20 steps"
    batch -N4 --ntasks-per-node=1 --mm-train=job.toml <<END || fail "the job failed: $(batch_output)"
srun --mpi=pmix -N$ranks -n$ranks ./mm-trainer job.toml --set run.dir=run-$ranks-$dtype --set parallel.dtype=$dtype
END
    expect_ok distance "run-$ranks-$dtype" $tolerance
    echo "         distance from the reference: $(distance "run-$ranks-$dtype" $tolerance)"
  done
done

# Layouts over MPI, a rank a node. The plugin knows the job file's layout; the trainer is told another.
while read -r name settings; do
  test_case "$name on four nodes: within 1e-9 of the reference over 20 steps"
  sets=""
  for s in $settings; do sets="$sets --set parallel.$s"; done
  batch -N4 --ntasks-per-node=1 --mm-train=job.toml <<END || fail "the job failed: $(batch_output)"
srun --mpi=pmix -N4 -n4 ./mm-trainer job.toml --set run.dir=run-$name --set parallel.dtype=float64 --set parallel.micro_batch=2 $sets
END
  expect_ok distance "run-$name" 1e-9
  echo "         distance from the reference: $(distance "run-$name" 1e-9)"
done <<'END'
tp4 tp=4
tp2-cp2-zero2 tp=2 cp=2 zero=2
dp2-pp2-interleaved-zero3 pp=2 virtual=2 zero=3
tp2-pp2-recompute tp=2 pp=2 recompute=full
pp2-encoder-dp2 pp=2 encoder.dp=2
dp2-zero3-encoder-tp2 zero=3 encoder.tp=2
END

test_case "the nodes are idle and undrained afterwards"
expect_nodes_idle
finish
