# SPDX-License-Identifier: Apache-2.0
"""The toy: a decoder with grouped attention, its checkpoint, and its forward pass in plain torch.

The checkpoint is BF16 and has the names that a runtime would know: embed (tied with the head), and per layer q, k, v, o,
gate, up, down and two norms. What a trainer keeps in memory looks different (shards.py).
"""

import hashlib
import json
import math
import os
import pathlib

import torch

WORDS, HIDDEN, HEADS, GROUPS, WIDTH, INNER, LAYERS = 250, 64, 4, 2, 16, 128, 2
PADDED_WORDS = 256
PROMPT, COMPLETION = 4, 8


def names():
    """Checkpoint tensor -> shape."""
    shapes = {"embed": (WORDS, HIDDEN), "norm": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes.update({
            f"layers.{layer}.q": (HEADS * WIDTH, HIDDEN), f"layers.{layer}.k": (GROUPS * WIDTH, HIDDEN),
            f"layers.{layer}.v": (GROUPS * WIDTH, HIDDEN), f"layers.{layer}.o": (HIDDEN, HEADS * WIDTH),
            f"layers.{layer}.gate": (INNER, HIDDEN), f"layers.{layer}.up": (INNER, HIDDEN),
            f"layers.{layer}.down": (HIDDEN, INNER), f"layers.{layer}.norm_attention": (HIDDEN,),
            f"layers.{layer}.norm_mlp": (HIDDEN,)})
    return shapes


def initial(seed):
    """The FP32 master, whole; norms as they are used (about 1)."""
    numbers = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in names().items():
        if "norm" in name:
            tensors[name] = 1 + 0.05 * torch.randn(shape, generator=numbers)
        else:
            tensors[name] = torch.randn(shape, generator=numbers) * (0.5 / math.sqrt(shape[-1]))
    return tensors


def normalise(hidden, weight):
    return hidden * torch.rsqrt(hidden.float().square().mean(-1, keepdim=True) + 1e-6).to(hidden.dtype) * weight


def attend(q, k, v):
    """Causal; q [batch, time, heads, width], k and v with fewer heads."""
    repeat = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(repeat, 2), v.repeat_interleave(repeat, 2)
    scores = torch.einsum("bthw,bshw->bhts", q, k).float() / math.sqrt(WIDTH)
    time = q.shape[1]
    mask = torch.ones(time, time, dtype=torch.bool).tril()
    chances = scores.masked_fill(~mask, -1e9).softmax(-1).to(q.dtype)
    return torch.einsum("bhts,bshw->bthw", chances, v).reshape(*q.shape[:2], -1)


def logits(weights, tokens):
    """The whole model in the weights' own type: what a rollout computes, and the trainer's BF16 model."""
    hidden = weights["embed"][tokens]
    for layer in range(LAYERS):
        part = {name: weights[f"layers.{layer}.{name}"] for name in
                ("q", "k", "v", "o", "gate", "up", "down", "norm_attention", "norm_mlp")}
        x = normalise(hidden, part["norm_attention"])
        q, k, v = (torch.nn.functional.linear(x, part[name]).unflatten(-1, (-1, WIDTH)) for name in "qkv")
        hidden = hidden + torch.nn.functional.linear(attend(q, k, v), part["o"])
        x = normalise(hidden, part["norm_mlp"])
        gate, up = (torch.nn.functional.linear(x, part[name]) for name in ("gate", "up"))
        hidden = hidden + torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, part["down"])
    return torch.nn.functional.linear(normalise(hidden, weights["norm"]), weights["embed"]).float()


def probe():
    """Fixed tokens that everybody computes logits for."""
    return torch.randint(WORDS, (2, PROMPT + COMPLETION), generator=torch.Generator().manual_seed(7))


def reward(completions):
    """What the policy is to learn: words of the first half."""
    return (completions < WORDS // 2).float().mean(-1)


def raw(tensor):
    """The bits of a tensor."""
    tensor = tensor.detach().contiguous()
    return tensor.view(torch.int16 if tensor.element_size() == 2 else torch.int32).numpy().tobytes()


def digests(weights):
    return {name: hashlib.sha256(raw(tensor)).hexdigest() for name, tensor in weights.items()}


def write_checkpoint(folder, weights):
    """BF16 safetensors, without weft."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    header, bodies, offset = {}, [], 0
    for name in sorted(weights):
        bodies.append(raw(weights[name]))
        end = offset + len(bodies[-1])
        header[name] = {"dtype": "BF16", "shape": list(weights[name].shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text + b"".join(bodies))
    return folder


def write_whole(path, value):
    """So that a reader sees all of it or nothing."""
    path = pathlib.Path(path)
    torch.save(value, path.with_suffix(".part"))
    os.replace(path.with_suffix(".part"), path)
