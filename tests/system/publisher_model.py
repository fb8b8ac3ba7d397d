# SPDX-License-Identifier: Apache-2.0
"""A small transformer layer for tests of trainer ranks: its tensors, their full export, and the shard of each rank.

Tensor-parallel shards, cut with numpy: fused attention, gate/up, row-parallel, a padded vocabulary, an FP32 master that
is cast, norms stored as weight minus one, rows of two tensors that alternate.
"""

import json

import numpy

HIDDEN, HEADS, GROUPS, WIDTH, INNER, WORDS = 256, 8, 2, 32, 1024, 1001


def to_bf16(values):
    """FP32 to BF16 bits, to nearest, ties to even."""
    bits = numpy.ascontiguousarray(values, numpy.float32).view(numpy.uint32).astype(numpy.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(numpy.uint16)


# What an array's elements are in a checkpoint: BF16 as its bits.
DTYPES = {"uint16": "BF16", "int8": "I8", "uint8": "F8_E4M3", "float32": "F32"}


def write_checkpoint(folder, tensors):
    header, offset = {}, 0
    for name in sorted(tensors):
        size = tensors[name].nbytes
        header[name] = {"dtype": DTYPES[tensors[name].dtype.name], "shape": list(tensors[name].shape),
                        "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(tensors):
            out.write(tensors[name].tobytes())
    return folder


class Model:
    """BF16 tensors as bits, an FP32 master for `o`, and the norm as weight - 1."""

    def __init__(self, seed):
        self.bits = numpy.random.default_rng(seed)
        shapes = {"embed": (WORDS, HIDDEN), "q": (HEADS * WIDTH, HIDDEN), "k": (GROUPS * WIDTH, HIDDEN),
                  "v": (GROUPS * WIDTH, HIDDEN), "gate": (INNER, HIDDEN), "up": (INNER, HIDDEN),
                  "down": (HIDDEN, INNER), "mix": (64, HIDDEN)}
        self.tensors = {name: to_bf16(self.bits.normal(0, 0.02, shape)) for name, shape in shapes.items()}
        self.master = self.bits.normal(0, 0.02, (HIDDEN, HIDDEN)).astype(numpy.float32)
        self.norm = self.bits.normal(0, 0.1, HIDDEN).astype(numpy.float32)

    def step(self):
        for array in self.tensors.values():
            flat = array.reshape(-1)
            chosen = self.bits.random(flat.size) < 0.03
            flat[chosen] += self.bits.choice(numpy.array([1, 65535], numpy.uint16), int(chosen.sum()))
        self.master += self.bits.normal(0, 1e-5, self.master.shape).astype(numpy.float32)
        self.norm += self.bits.normal(0, 1e-3, self.norm.shape).astype(numpy.float32)

    def export(self, folder):
        """The full checkpoint, without weft."""
        return write_checkpoint(folder, dict(self.tensors, o=to_bf16(self.master),
                                             norm=to_bf16(self.norm + numpy.float32(1))))

    def shard(self, rank, size):
        """What one rank has in memory: name -> (verb, array)."""
        padded = -(-WORDS // (16 * size)) * 16 * size
        embed = numpy.zeros((padded, HIDDEN), numpy.uint16)
        embed[:WORDS] = self.tensors["embed"]

        def cut(array, axis=0):
            return numpy.split(array, size, axis=axis)[rank]

        per_group = HEADS // GROUPS
        heads = range(rank * HEADS // size, (rank + 1) * HEADS // size)
        blocks = []
        for group in sorted({h // per_group for h in heads}):
            blocks += [self.tensors["q"][h * WIDTH:(h + 1) * WIDTH] for h in heads if h // per_group == group]
            blocks += [self.tensors[n][group * WIDTH:(group + 1) * WIDTH] for n in "kv"]
        held = {"embed": ("put", cut(embed)), "qkv": ("put", numpy.concatenate(blocks)),
                "gate_up": ("put", numpy.concatenate([cut(self.tensors["gate"]), cut(self.tensors["up"])])),
                "down": ("put", cut(self.tensors["down"], 1)), "o": ("cast", cut(self.master, 1))}
        if rank == size - 1:
            held["norm"] = ("residual", self.norm)
            # Rows of two tensors alternate in the checkpoint.
            held["mix_a"] = ("put", self.tensors["mix"][0::2])
            held["mix_b"] = ("put", self.tensors["mix"][1::2])
        return held


def box_file(rank, size):
    """The same cuts as boxes, written by hand from the layout."""
    rows = -(-WORDS // (16 * size)) * 16
    mine = max(0, min(WORDS - rank * rows, rows))
    sources, boxes = [f'source "embed" {rows * HIDDEN}'], []
    if mine:
        boxes.append(f'box "embed" 0 -> "embed" {rank * rows * HIDDEN} ({mine * HIDDEN} 1 1)')
    block, groups = WIDTH * HIDDEN, max(1, GROUPS // size)
    queries = HEADS // size // groups
    first = rank * GROUPS // size
    sources.append(f'source "qkv" {groups * (queries + 2) * block}')
    for group in range(groups):
        begin = group * (queries + 2) * block
        boxes.append(f'box "qkv" {begin} -> "q" {(rank * groups + group) * queries * block} ({queries * block} 1 1)')
        holders = max(1, size // GROUPS)
        for place, name in enumerate("kv"):
            if rank % holders == 0:
                boxes.append(f'box "qkv" {begin + (queries + place) * block} -> "{name}" {(first + group) * block} '
                             f'({block} 1 1)')
    half = INNER // size * HIDDEN
    sources.append(f'source "gate_up" {2 * half}')
    boxes += [f'box "gate_up" {place * half} -> "{name}" {rank * half} ({half} 1 1)'
              for place, name in enumerate(("gate", "up"))]
    for name, width in (("down", INNER), ("o", HIDDEN)):
        part = width // size
        sources.append(f'source "{name}" {HIDDEN * part}')
        boxes.append(f'box "{name}" 0 -> "{name}" {rank * part} ({HIDDEN} {part} {width}) ({part} 1 1)')
    if rank == size - 1:
        sources.append(f'source "norm" {HIDDEN}')
        boxes.append(f'box "norm" 0 -> "norm" 0 ({HIDDEN} 1 1)')
        for place, name in enumerate(("mix_a", "mix_b")):
            sources.append(f'source "{name}" {32 * HIDDEN}')
            boxes.append(f'box "{name}" 0 -> "mix" {place * HIDDEN} (32 {HIDDEN} {2 * HIDDEN}) ({HIDDEN} 1 1)')
    return "\n".join(["weft-boxes 1", *sources, *boxes]) + "\n"
