#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Python adds to C++: put() of a model in many tensors, and changes() of one refit, against a fleet on loopback.

python_calls.py --build DIR [--bytes 1GiB] [--tensors 1000] [--changed 3] [--runs 4] [--work DIR]

C++ (bench_publisher_calls) and Python take turns with the same tensors: each opens a publisher and puts everything three
times; the first of them warms up, and none is committed. Overhead: the ratio of the medians. Then Python commits once, and both
go through what the node's journal says has changed, in turns. GB/s: bytes of the values alone, and with their offsets.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy

TOP = pathlib.Path(__file__).resolve().parents[1]
PUTS = 3
UNITS = {"MiB": 2**20, "GiB": 2**30}


def bytes_of(text):
    return int(float(text[:-3]) * UNITS[text[-3:]])


def make_pair(work, options):
    """Two checkpoints that differ in a share of their elements by one unit in the last place."""
    numbers = numpy.random.default_rng(1)
    count = bytes_of(options.bytes) // options.tensors // 2
    header = {f"layers.{i:04}.weight": {"dtype": "BF16", "shape": [count], "data_offsets": [2 * count * i, 2 * count * (i + 1)]}
              for i in range(options.tensors)}
    text = json.dumps(header).encode()
    tensors = {}
    for folder in ("base", "target"):
        (work / folder).mkdir()
    with open(work / "base" / "model.safetensors", "wb") as base, open(work / "target" / "model.safetensors", "wb") as target:
        for file in (base, target):
            file.write(len(text).to_bytes(8, "little") + text)
        for name in header:
            bits = numbers.normal(0, 0.02, count).astype(numpy.float32).view(numpy.uint32)
            values = (bits >> 16).astype(numpy.uint16)
            values.tofile(base)
            values[numbers.random(count) < options.changed / 100] += numpy.uint16(1)
            values.tofile(target)
            tensors[name] = values
    return tensors


class Native:
    """bench_publisher_calls, asked line by line."""

    def __init__(self, program, work, address):
        self.process = subprocess.Popen([program, work / "base", work / "target", address], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if not answer or answer[0] == "error":
            raise RuntimeError(f"{line}: {' '.join(answer)}")
        return [float(word) for word in answer]

    def puts(self):
        self.ask("open")
        seconds = [self.ask("put 2")[0] for _ in range(PUTS)]
        self.ask("close")
        return seconds[1:]

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def python_puts(weft, address, work, tensors):
    seconds = []
    with weft.Publisher(address, work / "base") as publisher:
        for _ in range(PUTS):
            refit = publisher.refit(2)
            begun = time.perf_counter()
            for name, tensor in tensors.items():
                refit.put(name, tensor)
            seconds.append(time.perf_counter() - begun)
            refit.abort()
    return seconds[1:]


def python_changes(weft, weights):
    begun = time.perf_counter()
    elements = values = 0
    for change in weft.WeightView(weights).changes(2, since=1):
        offsets, array = change.offsets.numpy(), change.values.numpy()
        elements += offsets.size
        values += array.nbytes
    return time.perf_counter() - begun, elements, values


def measure(options, work):
    sys.path[:0] = [str(options.build.resolve() / "python"), str(TOP / "tests" / "system")]
    os.environ["WEFT_BINARY"] = str(options.build.resolve() / "weft")
    import fleet as fleets
    import weft

    tensors = make_pair(work, options)
    with fleets.Fleet(work / "fleet", work / "base", agent_count=1) as fleet:
        fleet.start()
        native = Native(options.build.resolve() / "bench" / "bench_publisher_calls", work, fleet.address)
        cpp, python = [], []
        for _ in range(options.runs):
            cpp += native.puts()
            python += python_puts(weft, fleet.address, work, tensors)
        with weft.Publisher(fleet.address, work / "base") as publisher:
            with publisher.refit(2) as refit:
                for name, tensor in tensors.items():
                    refit.put(name, tensor)
        fleet.wait_clean([0], 2, seconds=120)
        weights = fleet.weights_dir(0)
        told = [(native.ask(f"changes {weights} 1 2"), python_changes(weft, weights)) for _ in range(options.runs + 1)][1:]
        native.close()
    _, elements, values = told[0][1]
    if [elements, values] != told[0][0][1:] or elements != refit.stats.changed_elements:
        raise RuntimeError(f"not the same changes: {told[0]}, {refit.stats}")
    size = sum(tensor.nbytes for tensor in tensors.values())
    report("put, C++", cpp, size)
    report("put, Python", python, size)
    print(f"Python over C++: {statistics.median(python) / statistics.median(cpp) - 1:+.1%} (goal: at most 5 %)")
    for name, place in (("C++", 0), ("Python", 1)):
        seconds = statistics.median(each[place][0] for each in told)
        print(f"changes(), {name}: {elements} elements in {seconds:.3f} s: {values / seconds / 1e9:.2f} GB/s of values, "
              f"{(values + 8 * elements) / seconds / 1e9:.2f} GB/s with offsets")


def report(name, seconds, size):
    middle = statistics.median(seconds)
    print(f"{name}: {middle:.3f} s ({min(seconds):.3f} to {max(seconds):.3f}, {len(seconds)} runs), {size / middle / 1e9:.2f} GB/s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build" / "release")
    parser.add_argument("--bytes", default="1GiB")
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--changed", type=float, default=3)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--work")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-calls-", dir=options.work) as name:
        measure(options, pathlib.Path(name))


if __name__ == "__main__":
    main()
