#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# read_checkpoint.py RUN/checkpoints/step-N [ROLE]: prints name, type and shape of each tensor; read() gives them as numpy arrays.
# It trusts the files: run `mm-ckpt verify` before. bfloat16 comes as float32. What is compressed needs HDF5's Blosc plugin.
import glob
import sys

import h5py
import numpy as np


def read(step, role="param"):
    out = {}
    for path in sorted(glob.glob(step + "/rank-*.h5")):
        with h5py.File(path, "r") as f:
            for d in (d for name in f["t"].values() for d in name.get(role, {}).values()):
                raw = np.empty(d.shape, "<u2" if d.attrs["dtype"] in ("bfloat16", b"bfloat16") else d.dtype)
                if d.chunks:  # compressed: the library opens it (filter 32001), and converts nothing
                    d.id.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, d.id.get_type())
                elif d.size:  # straight from the file: the library would convert bfloat16 slowly
                    raw[...] = np.memmap(path, raw.dtype, "r", d.id.get_offset(), d.size).reshape(d.shape)
                if d.attrs["dtype"] in ("bfloat16", b"bfloat16"):
                    raw = (np.atleast_1d(raw).astype("<u4") << 16).view("<f4").reshape(d.shape)
                whole = out.setdefault(d.attrs["name"], np.empty(d.attrs["global_shape"], raw.dtype))
                whole[tuple(slice(o, o + n) for o, n in zip(d.attrs["offset"], d.shape))] = raw
    return out


if __name__ == "__main__":
    for name, array in read(*sys.argv[1:]).items():
        print(name, array.dtype, array.shape)
