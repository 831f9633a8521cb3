#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Stands for the agents of several nodes: fake_agent.py LOG MODE SOCKET...

Every message that arrives becomes a line of LOG: the socket's name, the peer's uid, and KEY=VALUE words in order of their keys. MODE is what a
request gets: `answer` is OK=1 (nothing where it says QUIET=1), `refuse` is OK=0 with an error, `silent` is nothing. Prints `ready` when it
listens; ends with its stdin, when it has read what was sent before.
"""
import os
import selectors
import socket
import struct
import sys

log = open(sys.argv[1], "w", buffering=1)
mode = sys.argv[2]
answers = {"answer": b"OK=1\n", "refuse": b"OK=0\nERROR=no room\n"}
selector = selectors.DefaultSelector()
selector.register(sys.stdin, selectors.EVENT_READ)
names = {}
for path in sys.argv[3:]:
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    os.chmod(path, 0o666)
    listener.listen(64)
    selector.register(listener, selectors.EVENT_READ, path)
print("ready", flush=True)
ending = False
while True:
    ready = selector.select(0 if ending else None)
    if ending and not ready:
        for path in sys.argv[3:]:
            os.unlink(path)
        sys.exit(0)
    for key, _ in ready:
        if key.fileobj is sys.stdin:
            ending = True
            selector.unregister(sys.stdin)
            continue
        if key.data is not None:
            peer, _ = key.fileobj.accept()
            names[peer] = os.path.basename(key.data)
            selector.register(peer, selectors.EVENT_READ)
            continue
        peer = key.fileobj
        try:
            packet = peer.recv(1 << 17)
        except ConnectionResetError:  # it is gone and did not read its answers; what it said is behind that
            continue
        if not packet:
            selector.unregister(peer)
            peer.close()
            continue
        _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        print(names[peer], f"uid={uid}", *sorted(packet.decode().split("\n")), file=log)
        if mode in answers and not (mode == "answer" and b"QUIET=1" in packet):
            peer.send(answers[mode])
