#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What other programs read of ours: the keys, types and values of --json, standard input as a file, exit statuses. Keys may be
# added, none of these may go.
set -u -o pipefail
here=$(dirname "$(readlink -f "$0")")
BUILD=$(realpath "${BUILD:-$here/../../build}")
# shellcheck source=../cluster/lib/check.sh
. "$here/../cluster/lib/check.sh"
scratch=$(mktemp -d /tmp/json-test.XXXXXX)
at_end rm -rf "$scratch"

# lines EXPRESSION: standard input as JSON Lines in `lines`; EXPRESSION must hold.
lines() {
  python3 -c '
import json, sys
lines = [json.loads(line) for line in sys.stdin]
def has(record, **types):
    return all(type(record.get(key)) is kind for key, kind in types.items())
if not eval(sys.argv[1]):
    sys.exit("does not hold: %s\nof %s" % (sys.argv[1], "\n".join(map(json.dumps, lines))))' "$1"
}
expect_lines() { # STATUS EXPRESSION COMMAND...: output and status of the command
  local status=$1 expression=$2 got=0
  shift 2
  "$@" >"$scratch/out" 2>"$scratch/err" || got=$?
  [ "$got" = "$status" ] || fail "'$*' exited $got, expected $status: $(tail -3 "$scratch/err")"
  expect_ok lines "$expression" <"$scratch/out"
}

test_case "mm-agent classify: from standard input and from a file"
cat >"$scratch/log" <<'END'
NVRM: Xid (PCI:0000:38:00): 79, pid=1, GPU has fallen off the bus.
usb 1-1: new high-speed USB device number 2 using xhci_hcd
END
of='all(type(l.get(k)) is t for l in lines for k, t in dict(code=str, device=str, severity=str, action=str, count=int, evidence=list).items())'
one='len(lines) == 1 and lines[0]["class"] == "gpu" and lines[0]["code"] == "79" and lines[0]["device"] == "0000:38:00.0" and lines[0]["action"] == "drain" and len(lines[0]["evidence"]) == 1'
expect_lines 0 "$of and $one" "$BUILD/mm-agent" classify --json "$scratch/log"
expect_lines 0 "$of and $one" "$BUILD/mm-agent" classify --json - <"$scratch/log"
expect_lines 0 'not lines' "$BUILD/mm-agent" classify --json - <<<'usb 1-1: new high-speed USB device number 2 using xhci_hcd'
expect_status 2 "$BUILD/mm-agent" classify --json "$scratch/absent"
expect_match "$scratch/absent" "$output"

test_case "mm-data check: a line a sample, good or bad, and exit 1 where one is bad"
"$BUILD/tests/make-fixture" "$scratch/fixture" --preset tiny --samples 8 >/dev/null || fail "make-fixture failed"
of='all(has(l, file=str, key=str, status=str) and (l["status"] != "ok" or has(l, width=int, height=int, mean_rgb=list)) and (l["status"] == "ok" or has(l, reason=str)) for l in lines)'
expect_lines 0 "$of and len(lines) == 8 and all(l['status'] == 'ok' and l['width'] == l['height'] > 0 and len(l['mean_rgb']) == 3 for l in lines)" \
  "$BUILD/mm-data" check --json "$scratch/fixture/data"
mkdir "$scratch/loose"
tar -xf "$(find "$scratch/fixture/data" -name '*.tar' | sort | head -1)" -C "$scratch/loose"
picture=$(find "$scratch/loose" -name '*.png' | sort | head -1)
cp "$picture" "$scratch/loose/whole.png"
head -c 60 "$picture" >"$scratch/loose/cut.png"
expect_lines 1 "$of and [l['status'] for l in sorted(lines, key=lambda l: l['file'])] == ['reject', 'ok'] and 'cut' in str([l for l in lines if l['status'] == 'reject'])" \
  "$BUILD/mm-data" check --json "$scratch/loose/whole.png" "$scratch/loose/cut.png"

test_case "mm-data index: the version that it published, and the same one where nothing is new"
of='len(lines) == 1 and has(lines[0], folder=str, version=str, number=int, published=bool, shards=int, samples=int, bytes=int, hashed=int, reused=int, kept=int, seconds=float) and lines[0]["samples"] == 8'
expect_lines 0 "$of and lines[0]['published'] and lines[0]['parent'] is None" "$BUILD/mm-data" index --json "$scratch/fixture/data"
expect_lines 0 "$of and not lines[0]['published'] and lines[0]['hashed'] == 0" "$BUILD/mm-data" index --json "$scratch/fixture/data"
expect_lines 0 'lines[0]["version"] and lines[0]["indexed"] == lines[0]["shards"]' "$BUILD/mm-data" stats --json "$scratch/fixture/data/*.tar"
rm "$scratch"/fixture/data/*.mmidx "$scratch"/fixture/data/dataset*.json

test_case "mm-place node: a line a GPU"
machine=$here/../spank_plugin/placement/machines/hgx-8gpu.xml
expect_lines 0 'len(lines) == 8 and all(has(l, gpu=str, numa=int, nics=list, cpuset=str) and l["nics"] for l in lines) and len({l["gpu"] for l in lines}) == 8' \
  "$BUILD/mm-place" node --json "$machine"
echo '<topology version="9.0"></topology>' >"$scratch/new.xml"
expect_status 2 "$BUILD/mm-place" node --json "$scratch/new.xml"
expect_match "new.xml" "$output"

test_case "mm-place plan: a line a rank"
expect_lines 0 'sorted(l["rank"] for l in lines) == list(range(16)) and all(has(l, rank=int, node=str, local_rank=int, gpu=str, nic=str, numa=int, cpuset=str, tp=int, pp=int, dp=int, cp=int) for l in lines) and {(l["tp"], l["pp"], l["dp"]) for l in lines} == {(t, p, d) for t in range(4) for p in range(2) for d in range(2)}' \
  "$BUILD/mm-place" plan --json tp=4,pp=2 --nodes 'n[1-2]' --xml "$machine" --topology /dev/null
expect_status 2 "$BUILD/mm-place" plan --json tp=3 --nodes 'n[1-2]' --xml "$machine" --topology /dev/null
expect_match 16 "$output" "the numbers"

test_case "mm-trainer: metrics of each step with 17 digits; mm-ckpt on what it saved"
cat >"$scratch/job.toml" <<END
[run]
dir = "$scratch/run"
steps = 4
[model]
path = "$scratch/fixture/model"
[data]
shards = "$scratch/fixture/data/*.tar"
global_batch = 4
[checkpoint]
every = 2
END
expect_ok "$BUILD/mm-trainer" "$scratch/job.toml"
expect_lines 0 '[l["step"] for l in lines] == [0, 1, 2, 3] or [l["step"] for l in lines] == [1, 2, 3, 4]' cat "$scratch/run/metrics.jsonl"
expect_lines 0 'all(has(l, step=int, loss=float, grad_norm=float, lr=float, tokens=int) for l in lines)' cat "$scratch/run/metrics.jsonl"
expect_eq 1 "$(find "$scratch/run/tensorboard" -name 'events.out.tfevents.*' -size +400c | wc -l)" "event files"
expect_lines 0 'len(lines) == 2' "$BUILD/mm-ckpt" ls --json "$scratch/run"
expect_lines 0 'len(lines) >= 1' "$BUILD/mm-ckpt" verify --json "$scratch/run"
newest=$(find "$scratch/run" -name 'rank-*.h5' | sort | tail -1)
printf 'x' | dd of="$newest" bs=1 seek="$(($(stat -c %s "$newest") / 2))" conv=notrunc status=none
expect_status 1 "$BUILD/mm-ckpt" verify --all "$scratch/run"
expect_status 1 "$BUILD/mm-ckpt" verify "$scratch/run"
expect_match 'step-0*4' "$output" "which one"
expect_ok "$BUILD/mm-ckpt" export --safetensors "$scratch/exported" "$scratch/run" --step 2
[ -e "$scratch/exported/config.json" ] || fail "no config.json in the exported folder"
expect_ok "$BUILD/mm-trainer" "$scratch/job.toml" --set "run.dir=$scratch/quiet" --set log.tensorboard=false
[ ! -e "$scratch/quiet/tensorboard" ] || fail "event files though they are switched off"
expect_status 2 "$BUILD/mm-trainer" "$scratch/job.toml" --set run.stepz=3
expect_match 'run.steps' "$output" "the nearest key"
expect_status 3 "$BUILD/mm-trainer" "$scratch/job.toml" --set "data.shards=$scratch/none-*.tar" --set "run.dir=$scratch/other"
expect_match 'none-' "$output" "the shards that are not there"
finish
