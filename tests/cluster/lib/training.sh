# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# A training job under mm-run on a private Slurm, for tests that hurt it: the cluster, jobs that all compute the same losses, their ranks, and
# what is right after a fault. A script sources lib/check.sh, then this file, and calls training_cluster.
#
#   training_cluster NODES SAMPLES [OPTION OF MINI-SLURM UP...]    sets $work (the ordinary user's folder) and $stage; takes all of it down at the end
#   submit NAME                       a job whose run folder is $work/NAME; sets $job. Read: $steps $max_restarts $shards $hang_timeout
#                                     $spares $every $requeue $layouts $dtype $nodes_of_job $script (job.sh, or plain.sh: srun without
#                                     mm-run) $sbatch_options
#   ranks, rank_pid, signal_ranks     the trainer's processes of $job
#   losses NAME, restarts NAME, ...   what the run has written

# shellcheck disable=SC2034  # read by the scripts
mini=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../mini-slurm
BUILD=${BUILD:-$(dirname "$mini")/../../build}

training_cluster() {
  local program nodes=$1 samples=$2
  shift 2
  for program in mm-run mm-agentd mm-agent mm-ckpt mm-trainer spank_mm_train.so tests/make-fixture; do
    [ -e "$BUILD/$program" ] || { echo "$0: $BUILD/$program is missing: make builds it" >&2; exit 1; }
  done
  stage=$(mktemp -d /tmp/training-stage.XXXXXX)
  at_end rm -rf "$stage"
  mkdir "$stage/bin"
  cp "$BUILD"/mm-run "$BUILD"/mm-agentd "$BUILD"/mm-agent "$BUILD"/mm-ckpt "$BUILD"/mm-trainer "$BUILD"/spank_mm_train.so "$stage/bin/"
  "$BUILD/tests/make-fixture" "$stage/fixture" --preset tiny --samples "$samples" >/dev/null || { echo "make-fixture failed" >&2; exit 1; }
  at_end "$mini" down
  "$mini" up --nodes "$nodes" --agent "$stage/bin/mm-agentd" --plugin "$stage/bin/spank_mm_train.so" --stage "$stage/bin" "$@" || exit 1
  eval "$("$mini" env)"
  work=$MINI_SLURM_HOME/work
  mkdir "$work"
  cp -r "$stage/fixture" "$work/fixture"
  cat >"$work/job.sh" <<END
#!/bin/bash
#SBATCH --ntasks-per-node=1 --open-mode=append
export PATH=$MINI_SLURM_STAGE:\$PATH OMP_NUM_THREADS=1
exec mm-run -- mm-trainer "\$MM_TRAIN_SPEC"
END
  sed 's/mm-run --/srun --mpi=pmix/' "$work/job.sh" >"$work/plain.sh"
  chown -R "$MINI_SLURM_USER": "$work"
}

job_file() { # NAME
  cat >"$work/$1.toml" <<END
[run]
dir = "$work/$1"
steps = $steps
[model]
path = "$work/fixture/model"
[data]
shards = "$work/fixture/data/${shards:-*.tar}"
global_batch = ${global_batch:-32}
[parallel]
threads = 1
dtype = "${dtype:-float32}"
[checkpoint]
every = ${every:-5}
[recovery]
spares = ${spares:-1}
max_restarts = ${max_restarts:-10}
hang_timeout = ${hang_timeout:-6}
requeue = "${requeue:-auto}"
${layouts:+layouts = [$layouts]}
END
}

submit() { # NAME
  job_file "$1"
  # shellcheck disable=SC2086  # words
  job=$("$mini" as-user bash -c "cd $work && sbatch --parsable --nodes=${nodes_of_job:-5} ${sbatch_options:---time=20} --output=$work/$1.out \
    --mm-train=$1.toml ${script:-job.sh}") || { fail "sbatch failed"; finish; }
}

now() { printf '%s' "$EPOCHREALTIME"; }
lines() { local n=0; [ ! -e "$1" ] || n=$(wc -l <"$1"); echo "$n"; }
trained() { [ "$(lines "$work/$1/metrics.jsonl")" -ge "$2" ]; }
job_field() { scontrol show job "$job" -o | grep -o " $1=[^ ]*" | cut -d= -f2; }
job_state() { job_field JobState; }
job_over() { case $(job_state) in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) return 0 ;; *) return 1 ;; esac; }

# Process ids of the trainer's ranks of the job, with the node of each: "PID NODE RANK".
ranks() {
  python3 - "$job" <<'END'
import os, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/comm") as f:
            if f.read().strip() != "mm-trainer": continue
        with open(f"/proc/{pid}/environ", "rb") as f:
            env = dict(v.split(b"=", 1) for v in f.read().split(b"\0") if b"=" in v)
    except OSError:
        continue
    if env.get(b"SLURM_JOB_ID", b"").decode() == sys.argv[1] and b"SLURM_PROCID" in env:
        print(pid, env[b"SLURMD_NODENAME"].decode(), env[b"SLURM_PROCID"].decode())
END
}
rank_pid() { ranks | awk -v r="$1" '$3 == r { print $1; exit }'; }
signal_ranks() { ranks | while read -r pid _; do kill -"$1" "$pid" 2>/dev/null || true; done; }
no_ranks() { [ -z "$(ranks)" ]; }

# Step, loss, grad_norm, lr and tokens of a run, as written.
losses() {
  python3 - "$work/$1/metrics.jsonl" <<'END'
import json, sys
for line in open(sys.argv[1]):
    m = json.loads(line, parse_float=str)
    print(m["step"], m["loss"], m["grad_norm"], m["lr"], m["tokens"])
END
}

# How long after the fault (at $fault_at) the next training step was finished: incidents.jsonl tells when the recovery was over.
recovery_seconds() {
  python3 - "$work/$1/incidents.jsonl" "$fault_at" <<'END'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
ends = [i["time"] + i["lost_seconds"] for i in lines if i["event"] == "restart" and "step_after" in i]
print("%.1f" % (min(e for e in ends if e > float(sys.argv[2])) - float(sys.argv[2])))
END
}
restarts() { grep -c '"event":"restart"' "$work/$1/incidents.jsonl" 2>/dev/null || true; }
recoveries() { local n; n=$(grep -c '"step_after"' "$work/$1/incidents.jsonl" 2>/dev/null); echo "${n:-0}"; }
recovered() { [ "$(recoveries "$1")" -ge "$2" ]; }
drained() { sinfo -h -N -o '%N %T %E' | awk '$2 ~ /drain|down/ { print $1 }' | sort -u | paste -sd,; }
reasons() { sinfo -h -N -o '%N %T %E' | awk '$2 ~ /drain|down/' | cut -d' ' -f3- | sort -u; }

# What there is to know of a run that went wrong.
show_run() {
  scontrol show job "$job" >&2
  tail -n 60 "$work/$1.out" >&2
  cat "$work/$1/incidents.jsonl" >&2
  grep -h . "$MINI_SLURM_DIR"/log/agent-* | tail -n 60 >&2
}
