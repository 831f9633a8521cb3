#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench_recovery.sh [FAULTS]: from a fault to the next training step on four nodes, for each kind of fault, part by part as mm-run's books have
# it (RUN/incidents.jsonl), beside the target and what Slurm's own requeue takes before a job may start at all.
set -u
here=$(dirname "$(readlink -f "$0")")
books=$(mktemp /tmp/bench-recovery.XXXXXX)
trap 'rm -f "$books"' EXIT
MM_CHAOS_BOOKS=$books "$here/chaos" "${1:-50}" 1 kill nic cable silent stop || echo "bench-recovery: not all faults ended well, see above"
python3 - "$books" <<'END'
import json, sys
kinds = {}
for line in open(sys.argv[1]):
    kind, _, rest = line.partition(" ")
    kinds.setdefault(kind, []).append(json.loads(rest))
names = ["detect", "decide", "stop", "start", "load", "step"]
def at(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]
print("\nseconds: median / 99th of a hundred    " + "".join(f"{n:>14}" for n in names) + "           total")
def row(name, lines):
    cells = [f"{at([l['parts'].get(n, 0) for l in lines], .5):.2f} / {at([l['parts'].get(n, 0) for l in lines], .99):.2f}" for n in names]
    total = [l["lost_seconds"] for l in lines]
    print(f"{name:<10} {len(lines):>4} faults                 " + "".join(f"{c:>14}" for c in cells) + f"   {at(total, .5):.2f} / {at(total, .99):.2f}")
    return total
for kind in sorted(kinds): row(kind, kinds[kind])
prompt = [l for k, lines in kinds.items() if k != "stop" for l in lines]
if prompt:
    total = row("all but stop", prompt)
    m, p = at(total, .5), at(total, .99)
    print(f"target: median under 3 s, 99th under 10 s, a hang's timeout apart; ratio {m / 3:.2f} and {p / 10:.2f}")
    print(f"Slurm's requeue: 121 s until the job may start; ratio {m / 121:.3f}")
END
