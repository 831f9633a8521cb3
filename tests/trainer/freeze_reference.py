#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Numbers of the reference implementation, for tests of the model.

  freeze_reference.py REFERENCE freeze MAKE_FIXTURE PRESET OUT.json     loss and norm of 20 steps on make-fixture's model and data, and
                                                                        per tensor the step-1 gradient's norm and three projections
  freeze_reference.py REFERENCE gradients REFERENCE_PRESET MODEL DATA BATCH OUT [SET]...
                                                                        initialises MODEL with the reference (SET: key=value of its init)
                                                                        and writes loss and gradients on the first BATCH samples of DATA

REFERENCE is the path of the script, which is imported as a module. OUT is a safetensors file of float64, with the loss as "loss".
"""
import argparse, contextlib, importlib.util, io, json, os, subprocess, sys, tempfile
import numpy as np


def load_module(path):
    spec = importlib.util.spec_from_file_location("reference", path)
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module


def gradients(reference, model, data, batch):
    import torch
    torch.set_num_threads(1)
    with open(os.path.join(model, "config.json")) as f:
        config = json.load(f)
    params = {name: torch.tensor(np.array(values)).double().requires_grad_()
              for name, values in reference.load_safetensors(os.path.join(model, "model.safetensors")).items()}
    samples = reference.read_data(data)[:batch]
    loss, tokens, _ = reference.build(config, params)(torch.tensor(np.stack([s[0] for s in samples])).double(), [s[1] for s in samples])
    loss.backward()
    return float(loss), {name: p.grad.numpy() for name, p in params.items() if p.grad is not None}


def mix(x):
    for _ in range(2):
        x = (x ^ (x >> np.uint64(32))) * np.uint64(0xd6e8feb86659fd93)
    return x ^ (x >> np.uint64(32))


def directions(name, stream, size):
    """`size` numbers in [-1, 1), as mm::fixture::hash gives them."""
    with np.errstate(over="ignore"):
        golden = np.uint64(0x9e3779b97f4a7c15)
        h = mix(np.uint64(stream) + golden)
        for c in name.encode():
            h = mix(h ^ np.uint64(c))
        bits = mix(h + np.arange(1, size + 1, dtype=np.uint64) * golden)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0 ** -52 - 1.0


def freeze(reference, make_fixture, preset, out):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([make_fixture, folder, "--preset", preset, "--samples", "64"], check=True)
        model, data = os.path.join(folder, "model"), os.path.join(folder, "data")
        loss, grads = gradients(reference, model, data, 8)
        lines = io.StringIO()
        with contextlib.redirect_stdout(lines):
            reference.run(argparse.Namespace(model=model, data=data, steps=20, batch=8, lr=1e-3, warmup=4, min_lr_ratio=0.1, weight_decay=0.1,
                                             clip=1.0, dtype="float64", threads=1, out=None), False)
    tensors = {name: [float(np.linalg.norm(g))] + [float(np.dot(g.ravel(), directions(name, k, g.size))) for k in (1, 2, 3)]
               for name, g in sorted(grads.items())}
    with open(out, "w") as f:
        f.write('{"preset": %s, "samples": 64, "batch": 8, "loss": %r,\n"steps": [\n' % (json.dumps(preset), loss))
        f.write(",\n".join(line for line in lines.getvalue().splitlines()))
        f.write('\n],\n"gradients": {\n')
        f.write(",\n".join("%s: %s" % (json.dumps(name), json.dumps(v)) for name, v in tensors.items()))
        f.write("\n}}\n")


def main():
    reference, verb, arguments = load_module(sys.argv[1]), sys.argv[2], sys.argv[3:]
    if verb == "freeze":
        freeze(reference, *arguments)
        return
    preset, model, data, batch, out, *settings = arguments
    reference.init(argparse.Namespace(model=model, preset=preset, set=settings, seed=1))
    loss, grads = gradients(reference, model, data, int(batch))
    reference.save_safetensors(out, {"loss": np.float64(loss), **grads})


if __name__ == "__main__":
    main()
