#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Prints a line for each tensor box of the HDF5 files given: name, role, dtype, global shape, offset, shape, and its raw bytes
# in hexadecimal. Raw bytes of bfloat16 come from the file itself: the library's conversion to float32 is slow.
import json
import sys

import h5py
import numpy

for path in sys.argv[1:]:
    def visit(_, dataset):
        if not isinstance(dataset, h5py.Dataset):
            return
        a = dataset.attrs
        offset = dataset.id.get_offset()
        if dataset.chunks:  # compressed, so read through the filter
            raw = numpy.empty(dataset.shape, f"V{dataset.id.get_type().get_size()}")
            dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, dataset.id.get_type())
        elif a["dtype"] == b"bfloat16" or a["dtype"] == "bfloat16":
            raw = numpy.memmap(path, "<u2", "r", offset, dataset.shape or (1,)) if dataset.size else numpy.zeros(0, "<u2")
            converted = numpy.asarray(dataset[()], dtype="<f4").reshape(-1)
            widened = (numpy.array(raw, dtype="<u4").reshape(-1) << 16).view("<f4")
            assert numpy.array_equal(converted, widened, equal_nan=True), dataset.name
        else:
            raw = dataset[()]
        text = lambda v: v.decode() if isinstance(v, bytes) else str(v)
        print(json.dumps([text(a["name"]), text(a["role"]), text(a["dtype"]), [int(x) for x in a["global_shape"]],
                          [int(x) for x in a["offset"]], list(dataset.shape), numpy.asarray(raw).tobytes().hex()]))

    with h5py.File(path, "r") as f:
        f["t"].visititems(visit)
