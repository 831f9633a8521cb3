# SPDX-License-Identifier: Apache-2.0
"""The model of `make bench-trainer` in PyTorch, as one would write it by hand: a SigLIP tower, a projector and a Llama decoder,
samples padded to the longest of the batch, torch.optim.AdamW. It is what mm-trainer is measured against where no other reference
is at hand.

  pytorch_peer.py init MODEL                       writes config.json and random weights
  pytorch_peer.py bench MODEL DATA [--threads N]   times steps, prints one JSON object
"""
import argparse, io, json, math, os, struct, tarfile, time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

CONFIG = {
    "model_type": "llava", "image_token_index": 3, "vision_feature_layer": -1, "vision_feature_select_strategy": "full",
    "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 6,
                      "num_attention_heads": 4, "image_size": 96, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh",
                      "layer_norm_eps": 1e-6, "vision_use_head": False},
    "text_config": {"model_type": "llama", "vocab_size": 264, "hidden_size": 512, "intermediate_size": 1408,
                    "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "rms_norm_eps": 1e-6,
                    "rope_theta": 10000.0, "attention_bias": False, "tie_word_embeddings": False},
}
BOS, EOS, FIRST_BYTE, IGNORED = 1, 2, 4, -100


def attend(q, k, v, causal):
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        scores = scores + torch.full(scores.shape[-2:], -math.inf).triu(1)
    return scores.softmax(-1) @ v


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads, bias, out_name, theta=None):
        super().__init__()
        self.heads, self.kv_heads, self.theta, self.out_name = heads, kv_heads, theta, out_name
        kv = width // heads * kv_heads
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, n, bias) for n in (width, kv, kv))
        setattr(self, out_name, nn.Linear(width, width, bias))

    def rotate(self, x):
        half = x.shape[-1] // 2
        angle = torch.arange(x.shape[-2])[:, None] * self.theta ** (-torch.arange(half) / half)
        first, second = x[..., :half], x[..., half:]
        return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)

    def forward(self, x):
        q, k, v = split(self.q_proj(x), self.heads), split(self.k_proj(x), self.kv_heads), split(self.v_proj(x), self.kv_heads)
        if self.theta:
            q, k = self.rotate(q), self.rotate(k)
        if self.kv_heads < self.heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        return getattr(self, self.out_name)(attend(q, k, v, self.theta is not None).transpose(1, 2).flatten(2))


class VisionLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        width = c["hidden_size"]
        self.layer_norm1, self.layer_norm2 = (nn.LayerNorm(width, c["layer_norm_eps"]) for _ in range(2))
        self.self_attn = Attention(width, c["num_attention_heads"], c["num_attention_heads"], True, "out_proj")
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, c["intermediate_size"]), "fc2": nn.Linear(c["intermediate_size"], width)})

    def forward(self, x):
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp["fc2"](F.gelu(self.mlp["fc1"](self.layer_norm2(x)), approximate="tanh"))


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return self.weight * x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()


class DecoderLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        width, wide = c["hidden_size"], c["intermediate_size"]
        self.input_layernorm, self.post_attention_layernorm = (RmsNorm(width, c["rms_norm_eps"]) for _ in range(2))
        self.self_attn = Attention(width, c["num_attention_heads"], c["num_key_value_heads"], False, "o_proj", c["rope_theta"])
        self.mlp = nn.ModuleDict({n: nn.Linear(i, o, False) for n, i, o in
                                  (("gate_proj", width, wide), ("up_proj", width, wide), ("down_proj", wide, width))})

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        y = self.post_attention_layernorm(x)
        return x + self.mlp["down_proj"](F.silu(self.mlp["gate_proj"](y)) * self.mlp["up_proj"](y))


def tree(**children):
    return nn.ModuleDict(children)


class Model(nn.Module):
    """Modules are nested so that parameters have the names of the Hugging Face format."""

    def __init__(self, config):
        super().__init__()
        v, t = config["vision_config"], config["text_config"]
        self.image_token, self.patches = config["image_token_index"], (v["image_size"] // v["patch_size"]) ** 2
        self.vision_tower = tree(vision_model=tree(
            embeddings=tree(patch_embedding=nn.Conv2d(3, v["hidden_size"], v["patch_size"], v["patch_size"]),
                            position_embedding=nn.Embedding(self.patches, v["hidden_size"])),
            encoder=tree(layers=nn.ModuleList(VisionLayer(v) for _ in range(v["num_hidden_layers"]))),
            post_layernorm=nn.LayerNorm(v["hidden_size"])))
        self.multi_modal_projector = tree(linear_1=nn.Linear(v["hidden_size"], t["hidden_size"]),
                                          linear_2=nn.Linear(t["hidden_size"], t["hidden_size"]))
        self.language_model = tree(
            model=tree(embed_tokens=nn.Embedding(t["vocab_size"], t["hidden_size"]),
                       layers=nn.ModuleList(DecoderLayer(t) for _ in range(t["num_hidden_layers"])),
                       norm=RmsNorm(t["hidden_size"], t["rms_norm_eps"])),
            lm_head=nn.Linear(t["hidden_size"], t["vocab_size"], False))

    def forward(self, pixels, captions):
        tower, text = self.vision_tower["vision_model"], self.language_model["model"]
        x = tower["embeddings"]["patch_embedding"](pixels).flatten(2).transpose(1, 2)
        x = x + tower["embeddings"]["position_embedding"].weight
        for layer in tower["encoder"]["layers"]:
            x = layer(x)
        images = self.multi_modal_projector["linear_2"](F.gelu(self.multi_modal_projector["linear_1"](x)))

        rows = [[BOS] + [self.image_token] * self.patches + [FIRST_BYTE + b for b in caption] + [EOS] for caption in captions]
        ids = nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], batch_first=True)
        labels = torch.full_like(ids, IGNORED)
        for i, row in enumerate(rows):
            labels[i, self.patches:len(row) - 1] = torch.tensor(row[self.patches + 1:])
        x = text["embed_tokens"](ids)
        x = torch.cat([x[:, :1], images, x[:, 1 + self.patches:]], 1)
        for layer in text["layers"]:
            x = layer(x)
        logits = self.language_model["lm_head"](text["norm"](x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def write_model(folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump(CONFIG, out, indent=1)
    torch.manual_seed(1)
    header, blobs, at = {}, [], 0
    for name, p in sorted(Model(CONFIG).state_dict().items()):
        blob = p.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(p.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_model(folder):
    with open(os.path.join(folder, "config.json")) as file:
        model = Model(json.load(file))
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = bytearray(file.read())
    state = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            state[name] = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin).view(entry["shape"])
    model.load_state_dict(state)
    return model


def read_data(folder):
    from PIL import Image
    samples = {}
    for name in sorted(n for n in os.listdir(folder) if n.endswith(".tar")):
        with tarfile.open(os.path.join(folder, name)) as tar:
            for member in tar:
                key, kind = member.name.rsplit(".", 1)
                samples.setdefault((name, key), {})[kind] = tar.extractfile(member).read()
    pixels = lambda png: np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), np.float32).transpose(2, 0, 1) / 127.5 - 1
    return [(pixels(s["png"]), s["txt"]) for s in samples.values()]


def bench(args):
    torch.set_num_threads(args.threads)
    model, data = read_model(args.model), read_data(args.data)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0}],
                                  lr=1e-3, betas=(0.9, 0.95))
    times = []
    for step in range(args.steps):
        begin = time.perf_counter()
        batch = [data[(step * args.batch + i) % len(data)] for i in range(args.batch)]
        loss = model(torch.from_numpy(np.stack([b[0] for b in batch])), [b[1] for b in batch])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 1.0)
        optimizer.step()
        times.append(time.perf_counter() - begin)
    median = sorted(times[2:])[len(times[2:]) // 2]
    print(json.dumps({"median_step_s": median, "images_per_s": args.batch / median, "loss": loss.item()}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("init").add_argument("model")
    b = verbs.add_parser("bench")
    b.add_argument("model")
    b.add_argument("data")
    b.add_argument("--steps", type=int, default=8)
    b.add_argument("--batch", type=int, default=16)
    b.add_argument("--threads", type=int, default=2)
    b.add_argument("--dtype", choices=["float32"], default="float32")
    args = parser.parse_args()
    write_model(args.model) if args.verb == "init" else bench(args)


if __name__ == "__main__":
    main()
