#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The cache of shards on a node's disk, in real jobs: it is the user's alone, encrypted it shows no caption and no name of a block, training
# is as without it, and the job's end leaves nothing behind, also when its ranks are killed.
set -u
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=/dev/null
. "$here/lib/check.sh"
BUILD=${BUILD:-$here/../../build}
export MINI_SLURM_NAME=cache-$$
mini=$here/mini-slurm

for program in mm-agentd mm-trainer mm-data spank_mm_train.so tests/make-fixture; do
  [ -e "$BUILD/$program" ] || { echo "cache_test: $BUILD/$program is missing: make builds it" >&2; exit 1; }
done
stage=$(mktemp -d /tmp/cache-stage.XXXXXX)
at_end rm -rf "$stage"
mkdir "$stage/bin"
cp "$BUILD"/mm-agentd "$BUILD"/mm-trainer "$BUILD"/mm-data "$BUILD"/spank_mm_train.so "$stage/bin/"
"$BUILD/tests/make-fixture" "$stage/fixture" --preset tiny --samples 64 >/dev/null || { echo "make-fixture failed" >&2; exit 1; }
at_end "$mini" down
"$mini" up --nodes 2 --agent "$stage/bin/mm-agentd" --plugin "$stage/bin/spank_mm_train.so" --stage "$stage/bin" || exit 1
eval "$("$mini" env)"
work=$MINI_SLURM_HOME/work
disks=$MINI_SLURM_DIR/node-tier
mkdir "$work"
cp -r "$stage/fixture" "$work/fixture"
cat >"$work/job.sh" <<END
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --time=10
export PATH=$MINI_SLURM_STAGE:\$PATH
case \$MM_TRAIN_SPEC in *none.toml) ;; *) srun mm-data stage "\$MM_TRAIN_SPEC" || exit 1 ;; esac
exec srun --mpi=pmix mm-trainer "\$MM_TRAIN_SPEC"
END
chown -R "$MINI_SLURM_USER": "$work"

submit() { # NAME STEPS CACHE: sets $job
  cat >"$work/$1.toml" <<END
[run]
dir = "$work/$1"
steps = $2
[model]
path = "$work/fixture/model"
[data]
shards = "$work/fixture/data/*.tar"
global_batch = 16
cache = $3
[optim]
warmup = 0
min_lr_ratio = 1.0
[parallel]
threads = 1
[checkpoint]
every = 1000000
END
  job=$("$mini" as-user bash -c "cd $work && sbatch --parsable --output=$work/$1.out --mm-train=$1.toml job.sh") || { fail "the job is not submitted"; finish; }
}
lines() { local n=0; [ ! -e "$1" ] || n=$(wc -l <"$1"); echo "$n"; }
trained() { [ "$(lines "$work/$1/metrics.jsonl")" -ge "$2" ]; }
job_state() { scontrol show job "$job" -o | grep -o ' JobState=[^ ]*' | cut -d= -f2; }
job_over() { case $(job_state) in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) return 0 ;; *) return 1 ;; esac; }
folders() { find "$disks" -type d -path "*/job-$job/cache"; }
nothing_left() { [ -z "$(find "$disks" -name "job-$job")" ]; }
losses() {
  python3 - "$work/$1/metrics.jsonl" "$2" <<'END'
import json, sys
for line in open(sys.argv[1]).readlines()[:int(sys.argv[2])]:
    m = json.loads(line)
    print(m["step"], m["loss"], m["grad_norm"], m["tokens"])
END
}
show_if_failed() { [ "$check_state" != failed ] || tail -n 30 "$work/$1.out" >&2; }

test_case "a run without a cache"
submit none 20 '{}'
wait_until 90 job_over
expect_eq COMPLETED "$(job_state)" "state of the job"
expect_eq 20 "$(lines "$work/none/metrics.jsonl")" "steps"
show_if_failed none
[ "$check_state" = ok ] || finish

test_case "an encrypted cache: staged, the user's alone, without a readable word, with the same losses"
submit sealed 100000 '{disk = 1, encrypt = true}'
wait_until 90 trained sealed 20
expect_match '4 of 4 blocks are there' "$(cat "$work/sealed.out")" "output"
expect_eq 2 "$(folders | wc -l)" "folders, one a node"
for folder in $(folders); do
  expect_eq "700 $MINI_SLURM_USER" "$(stat -c '%a %U' "$folder")" "mode and owner"
  expect_eq 5 "$(find "$folder" -type f | wc -l)" "files: 4 blocks and LOCK"
  expect_status 1 grep -rlE 'ustar|circle|square|triangle' "$folder"
done
expect_match '"cache_disk_hits":[1-9]' "$(tail -n 1 "$work/sealed/metrics.jsonl")" "metrics"
expect_match '"cache_misses":0' "$(tail -n 1 "$work/sealed/metrics.jsonl")" "metrics"
expect_eq "$(losses none 20)" "$(losses sealed 20)" "losses"
show_if_failed sealed

test_case "its ranks are killed and the job ends: nothing of it is left on any node"
scancel --signal=KILL --full "$job"
wait_until 60 job_over
wait_until 30 nothing_left
show_if_failed sealed

test_case "a cache that is not encrypted: the same losses, and nothing is left"
submit plain 20 '{disk = 1}'
wait_until 90 job_over
expect_eq COMPLETED "$(job_state)" "state of the job"
expect_eq "$(losses none 20)" "$(losses plain 20)" "losses"
wait_until 30 nothing_left
show_if_failed plain
finish
