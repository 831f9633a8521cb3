#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks at the heartbeats of a job's agents on a loopback mini-slurm, for mesh_test.sh.

mesh.py MM-AGENT STATE NODES traffic    each agent has few peers, and what they cost
mesh.py MM-AGENT STATE NODES silence    kills slurmd and agent of a node in the middle, and waits for the verdict
"""
import json
import os
import signal
import subprocess
import sys
import time

agent, state, nodes, what = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
FEW, SECONDS = 7, 10


def ask(node, *words):
    out = subprocess.run([agent, "--socket", f"{state}/run/agent-node{node}.sock", *words, "--json"], capture_output=True, text=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def pid_of(name):
    return int(open(f"{state}/pid/{name}").read().split()[0])


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_verdict(event):
    return event["kind"] == "incident" and event["class"] == "node" and event["action"] == "drain"


def traffic():
    looked = range(1, nodes + 1, max(1, nodes // 16))
    before = {k: ask(k, "status")[0]["datagrams"]["sent"] for k in looked}
    pids = [pid_of(f"agent-node{k}") for k in looked]
    spent, munge, began = sum(map(cpu_seconds, pids)), cpu_seconds(pid_of("munged")), time.time()
    time.sleep(SECONDS)  # what is measured
    spent, munge, took = sum(map(cpu_seconds, pids)) - spent, cpu_seconds(pid_of("munged")) - munge, time.time() - began
    status = {k: ask(k, "status")[0] for k in looked}
    rates = [(status[k]["datagrams"]["sent"] - before[k]) / took for k in looked]
    peers = [len(status[k]["peers"]) for k in looked]
    silent = [(k, p["node"]) for k in looked for p in status[k]["peers"] if p["silent"]]
    print(f"{nodes} agents: {min(peers)} to {max(peers)} peers each, {min(rates):.0f} to {max(rates):.0f} datagrams a second sent; "
          f"an agent takes {100 * spent / took / len(pids):.2f} % of a core, munged {100 * munge / took:.0f} %")
    if max(peers) > FEW or silent:
        sys.exit(f"too many peers, or healthy ones called silent: {silent}")


def silence():
    victim = nodes // 2
    follow = subprocess.Popen([agent, "--socket", f"{state}/run/agent-node1.sock", "events", "--follow", "--json"], stdout=subprocess.PIPE, text=True)
    signal.alarm(60)
    time.sleep(1)  # so that its start is not measured
    # Slurm's side and ours at once, as where a machine loses its power.
    pids = [pid_of(f"agent-node{victim}"), pid_of(f"slurmd-node{victim}")]
    began = time.time()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for line in follow.stdout:
        event = json.loads(line)
        if is_verdict(event) and event["time"] > began:
            break
    took = time.time() - began
    follow.kill()
    print(f"one silent node of {nodes} found after {took:.2f} s (target 3 s, of which silent_ms are 2): {event['evidence'][0]}")
    if event["node"] != f"node{victim}":
        sys.exit(f"{event['node']} was blamed")
    time.sleep(2)  # for wrong ones to come
    blamed = {e["node"] for e in ask(1, "events") if is_verdict(e)}
    if blamed != {f"node{victim}"}:
        sys.exit(f"blamed: {blamed}")


{"traffic": traffic, "silence": silence}[what]()
