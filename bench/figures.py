#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of one machine, without a fleet: what `./dev bench` prints.

figures.py --build DIR [--bytes 512MiB] [--changed 1,3,5] [--passes 3] [--work DIR] [--json]

For each density: a generated pair, then bytes per changed element and the times of diff, verify and apply, as the median
(and spread) of several passes. Beside each, in the same run, what the machine can do with the same files and as many threads
and no work on the bytes (bench_apply_bandwidth): read them (verify), compare them (diff, verify --against), read, write back and
sync them (apply). Ratios are reference over weft, 1 is the speed of the machine; the time that the program takes to start
(`weft --version`) is taken off. Files are in the page cache.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

SECONDS_MAX = 1800


def timed(command):
    begin = time.monotonic()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return seconds, done.stdout


def several(passes, prepare, command):
    """Median and spread of the seconds, and the last output."""
    seconds = []
    for _ in range(passes):
        prepare()
        took, output = timed(command)
        seconds.append(took)
    return statistics.median(seconds), max(seconds) - min(seconds), output


# what -> (title, its reference)
STEPS = {"verify": ("verify", "read"), "against": ("verify --against", "compare"), "diff": ("diff -o", "compare"),
         "apply": ("apply", "rewrite")}  # fmt: skip


def measure(options, percent, work):
    weft, bandwidth = options.build / "weft", options.build / "bench" / "bench_apply_bandwidth"
    base, target, node, delta = work / "pair" / "base", work / "pair" / "target", work / "node", work / "step.weft"
    _, output = timed([weft, "bench", "make-checkpoint", work / "pair", "--bytes", options.bytes, "--changed", percent,
                       "--seed", options.seed, "--json"])  # fmt: skip
    made = json.loads(output)
    row = {"changed_percent": made["steps"][0]["changed_percent"], "bytes": made["tensor_bytes"]}

    def nothing():
        pass

    def fresh_node():
        shutil.rmtree(node, ignore_errors=True)
        shutil.copytree(base, node)
        os.sync()

    def no_delta():
        delta.unlink(missing_ok=True)

    def take(name, prepare, command):
        row[f"{name}_seconds"], row[f"{name}_spread"], output = several(options.passes, prepare, command)
        return output

    def take_reference(name, prepare, *arguments):
        seconds = []
        for _ in range(options.passes):
            prepare()
            seconds.append(json.loads(timed([bandwidth, name, *arguments])[1])["seconds"])
        row[f"{name}_seconds"], row[f"{name}_spread"] = statistics.median(seconds), max(seconds) - min(seconds)

    take("start", nothing, [weft, "--version"])
    take_reference("read", nothing, base)
    take_reference("compare", nothing, base, target)
    diff = json.loads(take("diff", no_delta, [weft, "diff", base, target, "-o", delta, "--json"]))
    row["delta_bytes"] = delta.stat().st_size
    for key in ("bytes_per_changed", "bound_bytes_per_changed", "ratio_to_bound"):
        row[key] = diff[key]
    take_reference("rewrite", fresh_node, node)
    take("apply", fresh_node, [weft, "apply", node, delta, "--json"])
    take("verify", nothing, [weft, "verify", node, "--json"])
    take("against", nothing, [weft, "verify", node, "--against", target, "--json"])
    for name, (_, reference) in STEPS.items():
        row[f"{name}_ratio"] = row[f"{reference}_seconds"] / max(1e-9, row[f"{name}_seconds"] - row["start_seconds"])
    shutil.rmtree(work / "pair")
    return row


def show(rows):
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown processor")
    print(f"{cpu}, {os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}, "
          f"{rows[0]['bytes'] / 2**20:.0f} MiB of BF16")  # fmt: skip
    print(f"{'changed':>8} {'delta MiB':>10} {'B/change':>9} {'x bound':>8} {'x smaller':>10}")
    for row in rows:
        print(f"{row['changed_percent']:7.2f}% {row['delta_bytes'] / 2**20:10.2f} {row['bytes_per_changed']:9.3f} "
              f"{row['ratio_to_bound']:8.3f} {row['bytes'] / row['delta_bytes']:10.1f}")  # fmt: skip
    print(f"\n{'changed':>8} {'':18} {'s, median ± spread':>19} {'GB/s':>6}   {'reference':18} {'s':>13} {'ratio':>6}")
    for row in rows:
        for name, (title, reference) in STEPS.items():
            print(f"{row['changed_percent']:7.2f}% {title:18} {row[f'{name}_seconds']:11.3f} ± {row[f'{name}_spread']:5.3f} "
                  f"{row['bytes'] / 1e9 / max(1e-9, row[f'{name}_seconds'] - row['start_seconds']):6.2f}   {reference:10} "
                  f"{row[f'{reference}_seconds']:13.3f} ± {row[f'{reference}_spread']:5.3f} {row[f'{name}_ratio']:6.2f}")  # fmt: skip
    print(f"start of the program: {rows[0]['start_seconds']:.3f} s, taken off for GB/s and ratio")


def main(arguments):
    # A request to end ends the running command and removes the checkpoints.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description="Figures of one machine, without a fleet.")
    parser.add_argument("--build", required=True, type=pathlib.Path, help="release build: weft and bench/bench_apply_bandwidth")
    parser.add_argument("--bytes", default="512MiB")
    parser.add_argument("--changed", default="1,3,5")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--seed", default=1)
    parser.add_argument("--work", help="where to put checkpoints, about five times BYTES [a temporary directory]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    options.build = options.build.resolve()
    rows = []
    for percent in options.changed.split(","):
        with tempfile.TemporaryDirectory(prefix="weft-figures-", dir=options.work) as work:
            rows.append(measure(options, percent, pathlib.Path(work)))
    if options.json:
        print(json.dumps(rows))
    else:
        show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
