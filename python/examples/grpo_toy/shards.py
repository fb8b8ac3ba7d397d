# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism of the toy over two ranks: what each one keeps, computes and publishes.

Kept in FP32: rows of the padded vocabulary, q, k and v fused by groups, gate and up fused, o and down cut on their
columns, norms as weight minus one.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import linear, silu

import toy_model as toy
import weft

SIZE = 2
ROWS = toy.PADDED_WORDS // SIZE
QUERIES = toy.HEADS // toy.GROUPS  # per group
GROUPS = toy.GROUPS // SIZE
INNER = toy.INNER // SIZE


def cut(whole, rank):
    """A rank's shard of the whole FP32 tensors: name -> parameter."""
    def rows(name, each):
        return whole[name][rank * each:(rank + 1) * each]

    embed = torch.zeros(toy.PADDED_WORDS, toy.HIDDEN)
    embed[:toy.WORDS] = whole["embed"]
    held = {"embed": embed[rank * ROWS:(rank + 1) * ROWS], "norm": whole["norm"] - 1}
    for layer in range(toy.LAYERS):
        at = f"layers.{layer}."
        block = GROUPS * toy.WIDTH
        held.update({
            at + "qkv": torch.cat([rows(at + "q", QUERIES * block), rows(at + "k", block), rows(at + "v", block)]),
            at + "o": whole[at + "o"].chunk(SIZE, 1)[rank], at + "down": whole[at + "down"].chunk(SIZE, 1)[rank],
            at + "gate_up": torch.cat([rows(at + "gate", INNER), rows(at + "up", INNER)]),
            at + "norm_attention": whole[at + "norm_attention"] - 1, at + "norm_mlp": whole[at + "norm_mlp"] - 1})
    return {name: torch.nn.Parameter(tensor.clone()) for name, tensor in held.items()}


def boxes(base, rank):
    """The same cut as a box file: the only thing that weft is told about it."""
    made = weft.Boxes(base, tensor=(rank, SIZE))
    made.vocabulary("embed", "embed", padded_rows=toy.PADDED_WORDS)
    made.replicated("norm", "norm")
    for layer in range(toy.LAYERS):
        at = f"layers.{layer}."
        made.attention(at + "qkv", at + "q", at + "k", at + "v", query_heads=toy.HEADS, groups=toy.GROUPS,
                       head_width=toy.WIDTH)
        made.row_parallel(at + "o", at + "o")
        made.gate_up(at + "gate_up", at + "gate", at + "up")
        made.row_parallel(at + "down", at + "down")
        made.replicated(at + "norm_attention", at + "norm_attention")
        made.replicated(at + "norm_mlp", at + "norm_mlp")
    return str(made)


def publish(publisher, version, held):
    """One refit of this rank's shard."""
    mine = {each.name for each in publisher.shard_tensors}  # a norm is published by one of the ranks
    with publisher.refit(version) as refit:
        for name, parameter in held.items():
            if name not in mine:
                continue
            if "norm" in name:
                refit.put_residual(name, norm_converter(parameter), parameter, elementwise=True)
            else:
                refit.put(name, parameter, cast=True)
    return refit.stats


def norm_converter(parameter):
    stored = parameter.detach()

    def convert(first, buffer):
        values = (1 + stored[first:first + len(buffer) // 2]).to(torch.bfloat16)
        buffer[:] = toy.raw(values)

    return convert


def export(held, rank):
    """The whole BF16 checkpoint on rank 0, gathered without weft: what every rollout must have."""
    whole = {}
    for name, parameter in held.items():
        parts = [torch.empty_like(parameter) for _ in range(SIZE)] if rank == 0 else None
        dist.gather(parameter.detach(), parts, dst=0)
        if rank == 0:
            whole[name] = parts
    if rank != 0:
        return None
    tensors = {"embed": torch.cat(whole["embed"])[:toy.WORDS]}
    for name, parts in whole.items():
        at, kind = name[:name.rfind(".") + 1], name[name.rfind(".") + 1:]
        if "norm" in kind:
            tensors[name] = 1 + parts[0]
        elif kind in ("o", "down"):
            tensors[name] = torch.cat(parts, 1)
        elif kind == "gate_up":
            tensors[at + "gate"] = torch.cat([part[:INNER] for part in parts])
            tensors[at + "up"] = torch.cat([part[INNER:] for part in parts])
        elif kind == "qkv":
            block = GROUPS * toy.WIDTH
            split = [part.split([QUERIES * block, block, block]) for part in parts]
            tensors.update({at + each: torch.cat([part[i] for part in split]) for i, each in enumerate("qkv")})
    return {name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}


class CopyIn(torch.autograd.Function):
    """The same input on all ranks; their gradients are added."""

    @staticmethod
    def forward(_, x):
        return x

    @staticmethod
    def backward(_, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient


class SumOut(torch.autograd.Function):
    """The sum of all ranks' parts."""

    @staticmethod
    def forward(_, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(_, gradient):
        return gradient


class JoinOut(torch.autograd.Function):
    """All ranks' last dimensions, one behind the other."""

    @staticmethod
    def forward(context, x):
        context.width = x.shape[-1]
        parts = [torch.empty_like(x) for _ in range(SIZE)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, -1)

    @staticmethod
    def backward(context, gradient):
        return gradient[..., dist.get_rank() * context.width:][..., :context.width].contiguous()


def logits(held, tokens, rank):
    """The forward pass in FP32, over both ranks."""
    local = tokens - rank * ROWS
    here = (local >= 0) & (local < ROWS)
    hidden = SumOut.apply(held["embed"][local.clamp(0, ROWS - 1)] * here.unsqueeze(-1))
    for layer in range(toy.LAYERS):
        at = f"layers.{layer}."
        x = CopyIn.apply(toy.normalise(hidden, 1 + held[at + "norm_attention"]))
        block = GROUPS * toy.WIDTH
        q, k, v = linear(x, held[at + "qkv"]).split([QUERIES * block, block, block], -1)
        attended = toy.attend(*(each.unflatten(-1, (-1, toy.WIDTH)) for each in (q, k, v)))
        hidden = hidden + SumOut.apply(linear(attended, held[at + "o"]))
        x = CopyIn.apply(toy.normalise(hidden, 1 + held[at + "norm_mlp"]))
        gate, up = linear(x, held[at + "gate_up"]).split(INNER, -1)
        hidden = hidden + SumOut.apply(linear(silu(gate) * up, held[at + "down"]))
    last = CopyIn.apply(toy.normalise(hidden, 1 + held["norm"]))
    return JoinOut.apply(linear(last, held["embed"]))[..., :toy.WORDS]
