#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# mm-trainer on the files of the PyTorch reference itself: its pictures, its weights. The model and the data set of the other tests are the
# project's own, see tests/trainer/fixtures.
set -u -o pipefail
here=$(dirname "$(readlink -f "$0")")
BUILD=$(realpath "${BUILD:-$here/../../build}")
reference=$here/../../../shared/reference/reference.py
# shellcheck source=../cluster/lib/check.sh
. "$here/../cluster/lib/check.sh"
scratch=$(mktemp -d /tmp/reference-test.XXXXXX)
at_end rm -rf "$scratch"
export OPENBLAS_NUM_THREADS=1

distance() { # NAME: the largest relative distance of loss and grad_norm; fails above 1e-9
  /usr/bin/python3 - "$1.reference" "run-$1/metrics.jsonl" <<'END'
import json, sys
want, got = ([json.loads(line) for line in open(path)] for path in sys.argv[1:])
assert len(want) == 20 and [m["step"] for m in got] == [m["step"] for m in want], "steps differ"
assert all(g["tokens"] == w["tokens"] and abs(g["lr"] - w["lr"]) <= 1e-15 for g, w in zip(got, want)), "lr or tokens differ"
worst = max(abs(g[k] - w[k]) / abs(w[k]) for g, w in zip(got, want) for k in ("loss", "grad_norm"))
print("%.1e" % worst)
sys.exit(worst > 1e-9)
END
}

cd "$scratch" || exit 1
for preset in vlm-tiny clip-tiny; do
  test_case "$preset on the reference's own data and weights, 20 steps in double: within 1e-9"
  [ -e "$reference" ] || { skip "no reference.py beside the project"; continue; }
  /usr/bin/python3 -c 'import torch' 2>/dev/null || { skip "python3-torch is not installed"; continue; }
  [ -d data ] || expect_ok /usr/bin/python3 "$reference" data data
  expect_ok /usr/bin/python3 "$reference" init "$preset" --preset "$preset"
  /usr/bin/python3 "$reference" train "$preset" data --steps 20 --batch 8 --dtype float64 --threads 1 >"$preset.reference" ||
    fail "the reference failed"
  cat >"$preset.toml" <<END
[run]
dir = "run-$preset"
steps = 20
[model]
path = "$preset"
[data]
shards = "data/*.tar"
shuffle = false
global_batch = 8
[parallel]
dtype = "float64"
END
  expect_ok "$BUILD/mm-trainer" "$preset.toml"
  expect_ok distance "$preset"
  echo "         distance from the reference: $output"
done
finish
