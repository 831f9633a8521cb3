#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make bench-agent: how soon the agent sees faults, and what it costs; each beside its target, and where there is one a peer or a limit. On a
# private Slurm of four nodes. Other work on this machine makes the numbers worse, and the load is printed with them.
set -u
here=$(dirname "$(readlink -f "$0")")
BUILD=${BUILD:-$here/../../build}
mini=$here/mini-slurm
export MINI_SLURM_NAME=bench-agent-$$
[ "$(id -u)" = 0 ] || { echo "bench-agent: needs root" >&2; exit 2; }
stage=$(mktemp -d /tmp/bench-agent.XXXXXX)
trap '"$mini" down >/dev/null 2>&1; rm -rf "$stage"' EXIT
mkdir "$stage/bin"
cp "$BUILD"/mm-agentd "$BUILD"/mm-agent "$BUILD"/spank_mm_train.so "$here/lib/agent_talk.py" "$stage/bin/"

echo "load $(cut -d' ' -f1-3 /proc/loadavg) on $(nproc) CPUs"
echo
echo "A million lines, one in ten a storm of Xid 95, the rest of an ordinary boot:"
python3 - "$here/../agent/klog/ordinary.log" >"$stage/million" <<'PY'
import random, sys
lines = [l.rstrip("\n") for l in open(sys.argv[1]) if l.strip() and l[0] != "#"][1:]
random.seed(1)
for i in range(1_000_000):
    text = "NVRM: Xid (PCI:0000:19:00): 95, pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x%x,0x0). RST: Yes, D-RST: No" % (i // 7 % 29) if i % 10 == 0 else random.choice(lines)
    print("[%.6f] %s" % (5000 + i * 6e-5, text))
PY
user_seconds() { local t; TIMEFORMAT=%U; t=$({ time "$@" >"$stage/out" 2>&1; } 2>&1); echo "$t"; }
ours=$(user_seconds "$BUILD/mm-agent" classify --json "$stage/million")
count=$(python3 -c 'import json,sys; print(sum(json.loads(l)["count"] for l in open(sys.argv[1])))' "$stage/out")
peer=$(user_seconds grep -cE 'NVRM: Xid \(((PCI:)?[0-9a-fA-F:]+)\).*: ([0-9]+),|SXid|fallen off the bus|Out of memory|oom-kill|soft lockup|blocked for more than|I/O error|Remounting filesystem read-only|not responding' "$stage/million")
limit=$(user_seconds wc -l "$stage/million")
python3 - "$ours" "$peer" "$limit" "$count" <<'PY'
import sys
ours, peer, limit = map(float, sys.argv[1:4])
print("  ours %.2f s of CPU, grep -E for ten patterns %.2f s (ratio %.2f), wc -l %.2f s; %s Xids counted of 100000" % (ours, peer, ours / max(peer, 1e-3), limit, sys.argv[4]))
print("  a million lines a minute: %.1f %% of a core (target 20 %%)" % (ours / 60 * 100))
PY

"$mini" up --nodes 4 --mode netns --agent "$stage/bin/mm-agentd" --plugin "$stage/bin/spank_mm_train.so" --stage "$stage/bin" >/dev/null || exit 1
eval "$("$mini" env)"
cd "$MINI_SLURM_HOME" || exit 1
for k in 1 2 3 4; do : >>"$MINI_SLURM_DIR/kernel-node$k.log"; done  # a log that is not there yet is looked for once a second
echo
python3 - "$BUILD/mm-agent" "$MINI_SLURM_DIR" "$mini" <<'PY'
import glob, json, os, subprocess, sys, time
agent, state, mini = sys.argv[1:]
sock = lambda node: f"{state}/run/agent-{node}.sock"
ask = lambda node, *words: subprocess.run([agent, "--socket", sock(node), *words], capture_output=True, text=True).stdout
deadline = time.time() + 60
while time.time() < deadline and '"ok":true' not in ask("node1", "status", "--json"): time.sleep(0.1)

def pid_of(node):
    for f in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            if os.readlink(f) == sock(node) + ".lock": return int(f.split("/")[2])
        except OSError: pass

def usage(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    rss = next(int(l.split()[1]) for l in open(f"/proc/{pid}/status") if l.startswith("VmRSS"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), rss / 1024

pids = [pid_of(f"node{k}") for k in (1, 2, 3, 4)]
before, began = [usage(p)[0] for p in pids], time.time()
time.sleep(30)
spent = (sum(usage(p)[0] for p in pids) - sum(before)) / len(pids) / (time.time() - began) * 100
print("An idle agent, all probes, over 30 s: %.2f %% of a core (target 0.2 %%), %.1f MiB resident (target 30 MiB)" % (spent, max(usage(p)[1] for p in pids)))

class Follow:
    def __init__(self, node):
        self.process = subprocess.Popen([agent, "--socket", sock(node), "events", "--follow", "--json"], stdout=subprocess.PIPE, text=True)
    def until(self, test, patience=30):
        end = time.time() + patience
        for line in self.process.stdout:
            self.event = json.loads(line)
            if test(self.event): return time.time()
            if time.time() > end: break
        raise SystemExit("bench-agent: waited in vain")

def median(values): return sorted(values)[len(values) // 2]
# What the agent says of when it knew, and when somebody who follows its events had read it.
def told(words, known, read):
    print("%s to incident: median %.1f ms, worst %.1f ms (target 100 ms); read by a client after %.1f, worst %.1f ms" % (words, median(known), max(known), median(read), max(read)))
detect, read, drained = [], [], []
for i in range(7):
    node = f"node{2 + i % 3}"
    follow = Follow(node)
    time.sleep(0.3)  # so that its start is not measured; what happens before it listens is in the journal all the same
    bus = "0000:%02x:00" % (0x40 + i)
    line = f"[{time.clock_gettime(time.CLOCK_MONOTONIC):12.6f}] NVRM: Xid (PCI:{bus}): 79, pid=77, name=python3, GPU has fallen off the bus.\n"
    t0 = time.time()
    with open(f"{state}/kernel-{node}.log", "a") as f: f.write(line)
    t1 = follow.until(lambda e: e["kind"] == "incident" and e["device"].startswith(bus))
    detect.append((follow.event["time"] - t0) * 1000)
    read.append((t1 - t0) * 1000)
    t2 = follow.until(lambda e: e["kind"] == "action" and "drained" in str(e))
    drained.append(t2 - t1)
    follow.process.kill()
    ask(node, "clear")
told("Xid in the log", detect, read)
t0 = time.time()
for _ in range(3): subprocess.run(["scontrol", "show", "node", "--oneliner"], capture_output=True)
print("incident to drained in Slurm: median %.2f s, worst %.2f s (target 2 s; its three calls of scontrol alone take %.2f s now)" % (median(drained), max(drained), time.time() - t0))
# The flag is taken off the interface by the call that ip(8) makes as well, and the clock is read right before it.
SET_DOWN = """
import fcntl, socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
name = sys.argv[1].encode()
flags = struct.unpack("16sh", fcntl.ioctl(s, 0x8913, struct.pack("16sh", name, 0)))[1]
print(time.time(), flush=True)
fcntl.ioctl(s, 0x8914, struct.pack("16sh", name, flags & ~1))
"""
def outer_end(node):
    index = subprocess.run([mini, "exec", node, "cat", "/sys/class/net/eth1/iflink"], capture_output=True, text=True).stdout.strip()
    for name in os.listdir("/sys/class/net"):
        if open(f"/sys/class/net/{name}/ifindex").read().strip() == index: return name
def carrier(words, where):
    known, read = [], []
    for i in range(5):
        node = f"node{2 + i % 3}"
        follow = Follow(node)
        time.sleep(0.5)
        command, interface = where(node)
        t0 = float(subprocess.run([*command, "python3", "-c", SET_DOWN, interface], check=True, capture_output=True, text=True).stdout)
        read.append((follow.until(lambda e: e["kind"] == "incident" and e["class"] == "nic" and e["time"] > t0 - 1) - t0) * 1000)
        known.append((follow.event["time"] - t0) * 1000)
        follow.process.kill()
        subprocess.run([mini, "heal"], capture_output=True)
        time.sleep(1)
        ask(node, "clear")
    told(words, known, read)
carrier("interface set down", lambda node: ([mini, "exec", node], "eth1"))
carrier("carrier lost by the other end", lambda node: ([], outer_end(node)))

# Overload: a job's agents among eight busy processes for each CPU.
seconds = float(os.environ.get("MM_BENCH_OVERLOAD", "20"))
with open("job.sh", "w") as f: f.write("#!/bin/bash\nsleep 3600\n")
os.chmod("job.sh", 0o755)
subprocess.run([mini, "as-user", "sbatch", "--no-kill", "-N4", "-o", "/dev/null", "--mm-train=auto", "job.sh"], check=True, capture_output=True)
deadline = time.time() + 30
while time.time() < deadline and not all('"batch_node":' in ask(f"node{k}", "status", "--json") for k in (1, 2, 3, 4)): time.sleep(0.2)
begin = time.time()
busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(8 * os.cpu_count())] if seconds > 0 else []
time.sleep(seconds)
for b in busy: b.kill(); b.wait()
time.sleep(3)  # for verdicts that come late
wrong = [e for k in (1, 2, 3, 4) for e in map(json.loads, ask(f"node{k}", "events", "--json").splitlines())
         if e["time"] > begin and (e["kind"] == "fence" or e.get("class") in ("node", "peer", "clock"))]
print("%.0f s with %d busy processes on %d CPUs: %d false verdicts (target 0 in 600 s: MM_BENCH_OVERLOAD=600)" % (seconds, len(busy), os.cpu_count(), len(wrong)))
for e in wrong[:5]: print("  ", e)
PY
cd "$here" || exit 1
"$mini" down >/dev/null
echo
MM_MESH_NODES=${MM_MESH_NODES:-128} BUILD=$BUILD "$here/mesh_test.sh"
