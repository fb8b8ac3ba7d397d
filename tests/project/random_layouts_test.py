# SPDX-License-Identifier: Apache-2.0
"""Random shard layouts against numpy, bit for bit.

A checkpoint of random bits is cut up with numpy the way trainers do it (tensor-, expert- and pipeline-parallel ranks,
replicas, padding, transposes, interleaves); the projection must put it together again. Nothing here knows about boxes.
usage: random_layouts_test.py PROBE [--seed N] [--seconds S]
"""
import argparse
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import numpy

WORDS = {"U8": numpy.uint8, "BF16": numpy.uint16, "F32": numpy.uint32, "F64": numpy.uint64}


class Case:
    """One model, its shards, and the commands that describe them to the probe."""

    def __init__(self, seed, directory):
        self.dice = random.Random(seed)
        self.bits = numpy.random.default_rng(seed)
        self.directory = directory
        self.tensors = {}
        self.dtypes = {}
        self.dtype = self.dice.choice(list(WORDS))
        self.tp = self.dice.choice([1, 2, 3, 4, 8])
        self.ep = self.dice.choice([1, 2, 4])
        self.pp = self.dice.choice([1, 2])
        self.replicas = self.dice.choice([1, 1, 2])
        self.ranks = [(p, e, t, r) for p in range(self.pp) for e in range(self.ep) for t in range(self.tp)
                      for r in range(self.replicas)]
        self.commands = {rank: [] for rank in self.ranks}

    def size(self, low, high):
        return self.dice.randint(low, high)

    def tensor(self, name, *shape):
        self.dtypes[name] = self.dtype
        bits = self.bits.integers(0, 256, int(numpy.prod(shape)) * numpy.dtype(WORDS[self.dtype]).itemsize, numpy.uint8)
        self.tensors[name] = bits.view(WORDS[self.dtype]).reshape(shape)
        return self.tensors[name]

    def shard(self, rank, source, array, command):
        folder = self.directory / "-".join(map(str, rank))
        folder.mkdir(exist_ok=True)
        (folder / source).write_bytes(numpy.ascontiguousarray(array).tobytes())
        self.commands[rank].append(command)

    def holders(self, stage, experts=False):
        """Ranks of a stage. What is not an expert is held by one expert-parallel rank here."""
        return [rank for rank in self.ranks if rank[0] == stage and (experts or rank[1] == 0)]

    def layer(self, stage, number):
        width = self.size(1, 24)
        parts = [self.norm, self.column, self.row, self.gate_up, self.attention, self.mamba, self.grouped, self.flat,
                 self.experts, self.fused_experts, self.by_box_file, self.derived]
        for part in self.dice.sample(parts, self.size(3, len(parts))):
            part(stage, f"l{number}.{part.__name__}", width)

    def norm(self, stage, name, width):
        weight = self.tensor(name, width)
        for rank in self.holders(stage):
            self.shard(rank, name, weight, f"replicated {name} {name}")

    def column(self, stage, name, width):
        weight = self.tensor(name, self.tp * self.size(1, 9), width)
        for rank in self.holders(stage):
            self.shard(rank, name, numpy.split(weight, self.tp)[rank[2]], f"column {name} {name}")

    def row(self, stage, name, width):
        weight = self.tensor(name, self.size(1, 30), self.tp * self.size(1, 9), *([width] if width % 2 else []))
        for rank in self.holders(stage):
            self.shard(rank, name, numpy.split(weight, self.tp, axis=1)[rank[2]], f"row {name} {name}")

    def gate_up(self, stage, name, width):
        rows = self.tp * self.size(1, 9)
        gate, up = self.tensor(name + ".g", rows, width), self.tensor(name + ".u", rows, width)
        for rank in self.holders(stage):
            fused = numpy.concatenate([numpy.split(gate, self.tp)[rank[2]], numpy.split(up, self.tp)[rank[2]]])
            self.shard(rank, name, fused, f"gate_up {name} {name}.g {name}.u")

    def grouped(self, stage, name, width):
        experts, half = self.size(1, 5), self.tp * self.size(1, 4)
        weight = self.tensor(name, experts, 2 * half, width)
        for rank in self.holders(stage):
            gate, up = weight[:, :half], weight[:, half:]
            parts = [numpy.split(each, self.tp, axis=1)[rank[2]] for each in (gate, up)]
            self.shard(rank, name, numpy.concatenate(parts, axis=1), f"grouped {name} {name}")

    def attention(self, stage, name, width):
        divisors = [g for g in range(1, 9) if self.tp % g == 0 or g % self.tp == 0]
        groups, head = self.dice.choice(divisors), self.size(1, 5)
        heads = groups * self.size(1, 3)
        while heads % self.tp:
            heads += groups
        query = self.tensor(name + ".q", heads * head, width)
        key, value = (self.tensor(f"{name}.{n}", groups * head, width) for n in "kv")
        per_group = heads // groups
        for rank in self.holders(stage):
            mine = range(rank[2] * heads // self.tp, (rank[2] + 1) * heads // self.tp)
            blocks = []
            for group in sorted({h // per_group for h in mine}):
                blocks += [query[h * head:(h + 1) * head] for h in mine if h // per_group == group]
                blocks += [each[group * head:(group + 1) * head] for each in (key, value)]
            self.shard(rank, name, numpy.concatenate(blocks),
                       f"attention {name} {name}.q {name}.k {name}.v {heads} {groups} {head}")

    def mamba(self, stage, name, width):
        rows = [self.tp * self.size(1, 5) for _ in range(self.size(1, 4))]
        weight = self.tensor(name, sum(rows), width)
        components = numpy.split(weight, numpy.cumsum(rows)[:-1])
        for rank in self.holders(stage):
            parts = [numpy.split(each, self.tp)[rank[2]] for each in components]
            self.shard(rank, name, numpy.concatenate(parts), f"concatenated {name} {name} {' '.join(map(str, rows))}")

    def vocabulary(self, stage, name, width):
        words = self.size(1, 60)
        padded = -(-words // self.tp) * self.tp + self.tp * self.size(0, 2)
        weight = self.tensor(name, words, width)
        filler = numpy.zeros((padded - words, width), weight.dtype)
        for rank in self.holders(stage):
            part = numpy.split(numpy.concatenate([weight, filler]), self.tp)[rank[2]]
            self.shard(rank, name, part, f"vocabulary {name} {name} {padded}")

    def flat(self, stage, name, width):
        """FSDP: the tensor as one row, cut anywhere; the replicas of a part are those of the rank."""
        shape = [self.size(1, 6) for _ in range(self.size(1, 3))] + [width]
        weight = self.tensor(name, *shape)
        cuts = sorted(self.size(0, weight.size) for _ in range(self.tp - 1))
        edges = [0, *cuts, weight.size]
        for rank in self.holders(stage):
            begin, end = edges[rank[2]], edges[rank[2] + 1]
            pad = self.bits.integers(0, 9, 3).astype(weight.dtype)
            part = numpy.concatenate([pad, weight.reshape(-1)[begin:end]])
            if begin < end:
                self.shard(rank, name, part, f"flat {name} 3 {name} {begin} {end - begin}")

    def stack(self, weights, rank, transposed):
        local = len(weights) // self.ep
        mine = weights[rank[1] * local:(rank[1] + 1) * local]
        return numpy.stack([each.T if transposed else each for each in mine])

    def experts(self, stage, name, width):
        experts, rows, transposed = self.ep * self.size(1, 3), self.size(1, 7), self.size(0, 1)
        if self.dice.random() < 0.5:
            weights, target = [self.tensor(f"{name}.{e}.w", rows, width) for e in range(experts)], name + ".{}.w"
        else:
            weights, target = list(self.tensor(name, experts, rows, width)), name
        for rank in self.holders(stage, experts=True):
            self.shard(rank, name, self.stack(weights, rank, transposed), f"stack {name} {target} {transposed} 0")

    def fused_experts(self, stage, name, width):
        experts, rows = self.ep * self.size(1, 3), self.size(1, 7)
        transposed, interleaved = self.size(0, 1), self.size(0, 1)
        fused = []
        for expert in range(experts):
            gate, up = (self.tensor(f"{name}.{expert}.{n}", rows, width) for n in "gu")
            rows_of = numpy.stack([gate, up], axis=1).reshape(2 * rows, width) if interleaved else numpy.concatenate(
                [gate, up])
            fused.append(rows_of)
        for rank in self.holders(stage, experts=True):
            self.shard(rank, name, self.stack(fused, rank, transposed),
                       f"stack_gate_up {name} {name}.{{}}.g {name}.{{}}.u {transposed} {interleaved}")

    def by_box_file(self, stage, name, width):
        """Rank 0 of the stage holds a transposed copy and says so in a file."""
        rows = self.size(1, 9)
        weight = self.tensor(name, rows, width)
        path = self.directory / f"{name}.boxes"
        path.write_text(f'weft-boxes 1\nsource "{name}" {weight.size}\n'
                        f'box "{name}" 0 -> "{name}" 0 ({rows} 1 {width}) ({width} {rows} 1)\n')
        self.shard((stage, 0, 0, 0), name, weight.T, f"boxes {path}")

    def derived(self, stage, name, width):
        """Rank 0 of the stage has an exporter of its own: any order of axes, then halves of rows swapped."""
        shape = [self.size(1, 4), self.size(1, 4), 2 * width]
        order = self.dice.sample(range(3), 3)

        def export(held):
            out = held.reshape([shape[a] for a in order]).transpose(numpy.argsort(order))
            return numpy.concatenate([out[..., width:], out[..., :width]], axis=-1)

        numbers = numpy.arange(int(numpy.prod(shape)), dtype=numpy.uint64)
        index = export(numbers).reshape(-1)
        weight = self.tensor(name, *shape)
        held = numpy.empty_like(weight.reshape(-1))
        held[index] = weight.reshape(-1)
        assert (export(held) == weight).all()
        path = self.directory / f"{name}.index"
        path.write_bytes(index.tobytes())
        self.shard((stage, 0, 0, 0), name, held, f"derive {name} {name} {path} {held.size}")

    def build(self):
        self.vocabulary(0, "embed", self.size(1, 12))
        for number in range(self.pp):
            self.layer(number % self.pp, number)
        if self.dice.random() < 0.3:  # one tensor of several chunks
            self.dtype = "BF16"
            self.row(0, "big", 0 if self.tp == 1 else self.size(300, 400) * 2 + 1)

    def text(self):
        lines = [f"tensor {name} {self.dtypes[name]} {' '.join(map(str, array.shape))}"
                 for name, array in sorted(self.tensors.items())]
        for (p, e, t, r), commands in self.commands.items():
            folder = self.directory / f"{p}-{e}-{t}-{r}"
            lines.append(f"producer {folder} {t} {self.tp} {e} {self.ep} {r} {self.replicas}")
            lines += commands
        return "\n".join(lines) + "\n"

    def expected(self):
        return b"".join(self.tensors[name].tobytes() for name in sorted(self.tensors, key=str.encode))


def run(probe, seed, damage=False):
    """None, or what went wrong."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        case = Case(seed, directory)
        case.build()
        (directory / "commands").write_text(case.text())
        done = subprocess.run([probe, directory / "commands", directory / "out"], capture_output=True, text=True,
                              timeout=60, check=False)
        if done.returncode:
            return f"seed {seed}: {done.stderr.strip()}"
        expected = bytearray(case.expected())
        if damage:
            expected[len(expected) // 2] ^= 1
        return None if (directory / "out").read_bytes() == expected else f"seed {seed}: other bytes than numpy's"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("probe")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    if arguments.seed is not None:
        found = run(arguments.probe, arguments.seed)
        sys.exit(found)
    if run(arguments.probe, 1, damage=True) is None:
        sys.exit("a flipped bit was not noticed")
    begin, count = time.monotonic(), 0
    while count < 60 or (time.monotonic() - begin < arguments.seconds and count < 1000):
        count += 1
        found = run(arguments.probe, count)
        if found:
            sys.exit(f"{found}\nrepeat: {sys.argv[0]} {arguments.probe} --seed {count}")
        if time.monotonic() - begin > 200:
            break
    print(f"{count} layouts")


if __name__ == "__main__":
    main()
