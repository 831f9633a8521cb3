#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Talks to an mm-agentd for tests.

agent_talk.py ask SOCKET KEY=VALUE...                 one request; prints the answer's KEY=VALUE lines
agent_talk.py watch SOCKET JOB SECONDS PATTERN        watches a job; prints a line for each event but progress; ends with status 0 at the
                                                      first line that PATTERN matches, 1 when the time is over
agent_talk.py rank STEPS SECONDS                      behaves as a rank: reports STEPS steps to MM_AGENT_SOCKET, one each SECONDS, then waits;
                                                      connects again where the agent is restarted; prints what the agent asks it for;
                                                      SLOW_RANK=n names the rank that says that it works twice as long as the others
agent_talk.py send HOST PORT                          sends standard input as one UDP datagram
"""
import os
import re
import select
import socket
import sys
import time

LIMIT = 1 << 18


def connect(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.connect(path)
    return s


def parse(packet):
    pairs = {}
    for line in packet.decode().splitlines():
        key, equals, value = line.partition("=")
        if equals:
            pairs[key] = value
    return pairs


def ask(path, *message):
    s = connect(path)
    s.settimeout(20)
    s.send("\n".join(message).encode() + b"\n")
    print("\n".join(f"{k}={v}" for k, v in parse(s.recv(LIMIT)).items()))


def watch(path, job, seconds, pattern):
    s = connect(path)
    end = time.monotonic() + float(seconds)
    s.send(f"VERB=watch\nJOB={job}\n".encode())
    while True:
        left = end - time.monotonic()
        if left <= 0:
            sys.exit(1)
        s.settimeout(left)
        try:
            event = parse(s.recv(LIMIT))
        except socket.timeout:
            sys.exit(1)
        if not event:
            sys.exit("the agent has closed the connection")
        if event.get("EVENT") == "progress" and "progress" not in pattern:
            continue
        line = " ".join(f"{k}={v}" for k, v in event.items())
        print(line, flush=True)
        if re.search(pattern, line):
            return


def rank(steps, seconds):
    agent = None
    me = os.environ.get("SLURM_PROCID", "0")
    busy = float(seconds) / 2 * (2 if os.environ.get("SLOW_RANK") == me else 1)
    for step in range(int(steps) + 1):
        try:
            if agent is None:
                agent = connect(os.environ["MM_AGENT_SOCKET"])
                agent.send(b"PHASE=train\nLISTEN=1\nGROUP=all\n")
            agent.send(f"STEP={step}\nBUSY={busy}\n".encode())
            while select.select([agent], [], [], 0)[0]:
                packet = agent.recv(LIMIT)
                if not packet:
                    raise OSError
                print(f"rank {me}: " + packet.decode().replace("\n", " "), flush=True)
        except OSError:
            agent = None
        time.sleep(float(seconds))
    time.sleep(3600)


def send(host, port):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(sys.stdin.buffer.read().rstrip(b"\n"), (host, int(port)))


{"ask": ask, "watch": watch, "rank": rank, "send": send}[sys.argv[1]](*sys.argv[2:])
