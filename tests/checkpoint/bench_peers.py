#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# bench_peers.py FOLDER MIB: torch.save, torch.load and h5py on as many bytes, and torch's deepcopy; median of 5 after a warm-up.
import copy
import os
import sys
import time

import h5py
import torch

folder, mib = sys.argv[1], int(sys.argv[2])
os.makedirs(folder, exist_ok=True)
path = os.path.join(folder, "peer")
tensor = torch.rand(mib * (1 << 20) // 16384, 4096)
array = tensor.numpy()


def fsync(name):
    fd = os.open(name, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def torch_save():
    with open(path, "wb") as f:
        torch.save(tensor, f)
        f.flush()
        os.fsync(f.fileno())


def h5py_save():
    with h5py.File(path, "w") as f:
        f.create_dataset("w", data=array)
    fsync(path)


def drop():
    fsync(path)
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def median_of(action, before=lambda: None):
    times = []
    for _ in range(6):
        before()
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return sorted(times[1:])[2]


def rate(seconds):
    return f"{mib / 1024 / seconds:.3f} GiB/s"


print(f"peer: torch.save + fsync {rate(median_of(torch_save))}")
print(f"peer: torch.load cached {rate(median_of(lambda: torch.load(path)))}, cold {rate(median_of(lambda: torch.load(path), drop))}")
print(f"peer: h5py + fsync {rate(median_of(h5py_save))}")


def h5py_load():
    with h5py.File(path, "r") as f:
        f["w"][()]


print(f"peer: h5py read cached {rate(median_of(h5py_load))}, cold {rate(median_of(h5py_load, drop))}")
print(f"peer: torch deepcopy of {mib} MiB: {1e3 * median_of(lambda: copy.deepcopy(tensor)):.1f} ms")
os.remove(path)
