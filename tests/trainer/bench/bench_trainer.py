# SPDX-License-Identifier: Apache-2.0
"""make bench-trainer: a vision-language model of 23 million parameters, float32, batches of 16, one process of two threads,
against PyTorch on the same batches; then where our time goes, memory, and two processes of one thread against one of two.

The peer is the script that MM_REFERENCE names, else ../shared/reference/reference.py where it is there, else pytorch_peer.py
beside this file. Pairs of runs alternate, so that what else the machine does meets both. MM_BENCH_PAIRS (5) says how many, MM_BENCH_STEPS (8) of
how many steps.
"""
import json, os, statistics, subprocess, sys, tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BATCH, THREADS = 16, 2
PAIRS, STEPS = int(os.environ.get("MM_BENCH_PAIRS", "5")), max(3, int(os.environ.get("MM_BENCH_STEPS", "8")))
PASSIVE = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}


def run(argv, **environment):
    """Output and peak resident size in MB."""
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, **PASSIVE, **environment}, text=True)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit("bench-trainer: %s: exit status %d" % (" ".join(argv), child.returncode))
    return out, usage.ru_maxrss / 1024


def last_json(out):
    return json.loads([line for line in out.splitlines() if line.startswith("{")][-1])


def has_torch():
    return subprocess.run([sys.executable, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0


class Peer:
    def __init__(self, folder, make_fixture):
        own = os.path.join(HERE, "pytorch_peer.py")
        shared = os.path.join(HERE, "../../../../shared/reference/reference.py")
        named = os.environ.get("MM_REFERENCE", shared if os.path.exists(shared) else "")
        self.script = named or own
        self.model, self.data = os.path.join(folder, "model"), os.path.join(folder, "data")
        if named:
            run([sys.executable, named, "init", self.model, "--preset", "vlm-small"])
            run([sys.executable, named, "data", self.data, "--image-size", "96"])
        else:
            print("the reference is absent (MM_REFERENCE): the peer is the project's own PyTorch script")
            run([sys.executable, own, "init", self.model])
            run([make_fixture, os.path.join(folder, "fixture"), "--image-size", "96", "--samples", "256"])
            self.data = os.path.join(folder, "fixture/data")
        self.setting = None

    def bench(self, setting, steps=STEPS):
        blas, torch_threads = setting
        out, memory = run([sys.executable, self.script, "bench", self.model, self.data, "--batch", str(BATCH), "--dtype", "float32",
                           "--steps", str(steps), "--threads", str(torch_threads)], OPENBLAS_NUM_THREADS=str(blas))
        return last_json(out)["images_per_s"], memory

    def choose(self):
        speeds = {s: self.bench(s, min(5, STEPS))[0] for s in ((1, 1), (1, 2), (2, 1), (2, 2))}
        for (blas, torch_threads), speed in speeds.items():
            print("peer, OPENBLAS_NUM_THREADS=%d, torch threads %d: %.2f images/s" % (blas, torch_threads, speed))
        self.setting = max(speeds, key=speeds.get)


def spread(values):
    return "%.3g (%.3g to %.3g)" % (statistics.median(values), min(values), max(values))


def breakdown(ours, peak):
    step = ours["fastest_step_s"]
    products = [o for o in ours["operations"] if o["flops"] > 0 and "attention" not in o["name"]]
    product_seconds = sum(o["seconds"] for o in products)
    product_rate = sum(o["flops"] for o in products) / product_seconds / 1e9
    print("\nfastest step: %.0f ms, %.1f GF carried out; %d rows" % (step * 1e3, ours["flops"] / 1e9, ours["rows"]))
    print("%-26s %6s %9s %7s %9s" % ("operation", "calls", "ms", "step", "GF/s"))
    rest = step
    for o in ours["operations"]:
        rest -= o["seconds"]
        rate = "%9.1f" % (o["flops"] / o["seconds"] / 1e9) if o["flops"] else ""
        print("%-26s %6d %9.1f %6.1f%% %s" % (o["name"], o["calls"], o["seconds"] * 1e3, 100 * o["seconds"] / step, rate))
    print("%-26s %6s %9.1f %6.1f%%" % ("what no timer covers", "", rest * 1e3, 100 * rest / step))
    print("multiply-add peak, measured: %.1f GF/s on %d threads" % (peak, ours["threads"]))
    print("matrix products: %.1f GF/s, %.1f %% of the peak (aim: 70)" % (product_rate, 100 * product_rate / peak))
    print("whole step:      %.1f GF/s, %.1f %% of the peak (aim: 60)" % (ours["flops"] / step / 1e9, 100 * ours["flops"] / step / 1e9 / peak))
    print("what is not a matrix product: %.1f %% of the step (aim: at most 20)" % (100 * (1 - product_seconds / step)))
    print("allocations of a step after the first two: %d" % ours["allocations"])


def train(build, peer, folder, ranks, threads):
    """Seconds of a step of mm-trainer, reading and decoding included."""
    job = os.path.join(folder, "job-%d.toml" % ranks)
    with open(job, "w") as out:
        out.write('[run]\ndir = "%s/run-%d"\nsteps = %d\n[model]\npath = "%s"\n[data]\nshards = "%s/*.tar"\nglobal_batch = %d\n'
                  '[parallel]\nzero = 1\nthreads = %d\n[checkpoint]\nevery = 1000\n' %
                  (folder, ranks, STEPS, peer.model, peer.data, BATCH, threads))
    launch = ["mpirun", "-n", str(ranks), "--oversubscribe", "--allow-run-as-root"] if ranks > 1 else []
    run(launch + [os.path.join(build, "mm-trainer"), job])
    with open("%s/run-%d/metrics.jsonl" % (folder, ranks)) as lines:
        seconds = [json.loads(line)["step_s"] for line in lines]
    subprocess.run(["rm", "-r", "%s/run-%d" % (folder, ranks)], check=True)
    return statistics.median(seconds[2:])


def main():
    build = sys.argv[1]
    sys.stdout.reconfigure(line_buffering=True)
    if not has_torch():
        raise SystemExit("bench-trainer: python3-torch is not installed: there is no peer to measure against")
    with tempfile.TemporaryDirectory(prefix="mm-bench.") as folder:
        peer = Peer(folder, os.path.join(build, "tests/make-fixture"))
        peer.choose()
        mine = [os.path.join(build, "tests/train-step"), peer.model, peer.data + "/*.tar", "--batch", str(BATCH),
                "--micro-batch", str(BATCH), "--steps", str(STEPS), "--threads", str(THREADS)]
        ours, theirs, memory = [], [], []
        for pair in range(PAIRS):
            ours.append(last_json(run(mine)[0]))
            speed, megabytes = peer.bench(peer.setting)
            theirs.append(speed)
            memory.append(megabytes)
            print("pair %d: ours %.2f, peer %.2f images/s" % (pair + 1, ours[-1]["images_per_s"], speed))
        speeds = [o["images_per_s"] for o in ours]
        print("\nimages/s: ours %s, peer %s" % (spread(speeds), spread(theirs)))
        print("ratio: %s (aim: 1.5)" % spread([a / b for a, b in zip(speeds, theirs)]))
        own_memory = statistics.median(o["peak_rss_mb"] for o in ours)
        print("peak resident size: ours %.0f MB, peer %.0f MB, %.0f %% (aim: at most 70)" %
              (own_memory, statistics.median(memory), 100 * own_memory / statistics.median(memory)))
        breakdown(min(ours, key=lambda o: o["fastest_step_s"]), max(o["fma_peak_gflops"] for o in ours))
        one, two = [], []
        for _ in range(min(PAIRS, 3)):
            one.append(train(build, peer, folder, 1, 2))
            two.append(train(build, peer, folder, 2, 1))
        print("\nmm-trainer, one process of two threads: %s s a step; two processes of one thread, zero 1: %s s" % (spread(one), spread(two)))
        print("two processes against one: %s (aim: at most 1.1)" % spread([b / a for a, b in zip(one, two)]))


if __name__ == "__main__":
    main()
