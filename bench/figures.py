#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of one machine, without a fleet: what `./dev bench` prints.

figures.py --weft PROGRAM [--bytes 256MiB] [--changed 1,3,5] [--passes 3] [--work DIR] [--json]

For each density: a generated pair, then bytes per changed element and the times of diff, verify and apply, as the median
(and spread) of several passes, beside cp and cmp of the same files in the same run. Files are in the page cache.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
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


def measure(options, percent, work):
    weft, pair = options.weft, work / "pair"
    base, target, node, delta = pair / "base", pair / "target", work / "node", work / "step.weft"
    seconds, output = timed([weft, "bench", "make-checkpoint", pair, "--bytes", options.bytes, "--changed", percent,
                             "--seed", options.seed, "--json"])  # fmt: skip
    made = json.loads(output)
    row = {"changed_percent": made["steps"][0]["changed_percent"], "bytes": made["tensor_bytes"], "make_seconds": seconds}

    def nothing():
        pass

    def fresh_node():
        shutil.rmtree(node, ignore_errors=True)
        shutil.copytree(base, node)

    def no_delta():
        delta.unlink(missing_ok=True)

    def take(name, prepare, command):
        row[f"{name}_seconds"], row[f"{name}_spread"], output = several(options.passes, prepare, command)
        return output

    diff = json.loads(take("diff", no_delta, [weft, "diff", base, target, "-o", delta, "--json"]))
    row["delta_bytes"] = delta.stat().st_size
    row["bytes_per_changed"] = diff["bytes_per_changed"]
    take("apply", fresh_node, [weft, "apply", node, delta, "--json"])
    take("verify", nothing, [weft, "verify", node, "--json"])
    timed([weft, "verify", node, "--against", target])
    take("cp", lambda: shutil.rmtree(work / "copy", ignore_errors=True), ["cp", "-r", base, work / "copy"])
    files = sorted(path.name for path in base.glob("*.safetensors"))
    take("cmp", nothing, ["sh", "-c", "; ".join(f"cmp '{node / name}' '{target / name}'" for name in files)])
    shutil.rmtree(pair)
    return row


def show(rows):
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown processor")
    print(f"{cpu}, {os.cpu_count()} cores, Linux {platform.release()}, {rows[0]['bytes'] / 2**20:.0f} MiB of BF16; "
          "times are s, median ± spread")  # fmt: skip
    names = ("diff", "apply", "verify", "cp", "cmp")
    print(f"{'changed':>8} {'delta MiB':>10} {'B/changed':>10} {'x smaller':>10} " + " ".join(f"{n:>14}" for n in names))
    for row in rows:
        times = " ".join(f"{row[f'{n}_seconds']:7.2f} ± {row[f'{n}_spread']:4.2f}" for n in names)
        print(f"{row['changed_percent']:7.2f}% {row['delta_bytes'] / 2**20:10.2f} {row['bytes_per_changed']:10.3f} "
              f"{row['bytes'] / row['delta_bytes']:10.1f} {times}")  # fmt: skip


def main(arguments):
    parser = argparse.ArgumentParser(description="Figures of one machine, without a fleet.")
    parser.add_argument("--weft", required=True, type=pathlib.Path)
    parser.add_argument("--bytes", default="256MiB")
    parser.add_argument("--changed", default="1,3,5")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--seed", default=1)
    parser.add_argument("--work", help="where to put checkpoints, about five times BYTES [a temporary directory]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    options.weft = options.weft.resolve()
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
