#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What loading costs a training step: its time, beside the same without the wait for its batch. The first steps, which fill the window, are left
# out. Loading and training share the CPUs.
set -eu
BUILD=${BUILD:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$BUILD/tests/make-fixture" "$work" --preset tiny --samples 2000 --shards 8 --image-size 256 >/dev/null
cat >"$work/job.toml" <<END
[run]
dir = "$work/run"
steps = 60
[model]
path = "$work/model"
[data]
shards = "$work/data/*.tar"
global_batch = 32
[checkpoint]
every = 1000000
END
"$BUILD/mm-trainer" "$work/job.toml" >/dev/null 2>&1
python3 - "$work/run/metrics.jsonl" <<'END'
import json, statistics, sys
steps = [json.loads(line) for line in open(sys.argv[1])][10:]
whole = statistics.mean(s["step_s"] for s in steps)
wait = statistics.mean(s["data_wait_s"] for s in steps)
print("training step with data from disk: %.1f ms, without its wait for data %.1f ms: ratio %.4f, target 1.02" % (1e3 * whole, 1e3 * (whole - wait), whole / (whole - wait)))
END
