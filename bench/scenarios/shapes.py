#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Relays behind shaped links: what a chain, a fan-out and stripes make of a link's rate.

shapes.py --node PROGRAM [--provider net] [--rate 200mbit] [--frames 256] [--cases hop,chain,fan-out,striped] [--repeats 1] [--json]

PROGRAM is weft_relay_node (build/release/tests): one relay without anything around it, in a process and on a host of its
own (tests/support/netns.py), behind a link of the given rate in each direction. The producer sends frames of a million
bytes; every node compares every byte. Per case: seconds until the last node has the last frame, goodput of that node,
and the ratio to what is possible: chain of 8 over one hop (of the same run), fan-out 3 over a third of one hop, stripes
over 8 as time over bytes / rate. Each repeat is a refit of its own after a warm-up, medians count.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "support"))
from netns import bits_per_second  # noqa: E402

PAYLOAD_BYTES = 1_000_000
LOST_MS = 5000
ALARM_MS = 85_000
CASES = {"hop": ("chain", 1), "chain": ("chain", 8), "fan-out": ("star", 3), "striped": ("striped(2)", 8)}


class Node:
    """One relay process; each line told is answered by one line."""

    def __init__(self, program, provider, number, host, address):
        self.name = f"node-{number}"
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", host, program, self.name, provider, str(LOST_MS), "0", address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # fmt: skip
        ready = self.hear().split()
        if ready[:1] != ["ready"]:
            raise SystemExit(f"{self.name}: {' '.join(ready)}")
        self.endpoint = " ".join([self.name, *ready[1:]])

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().strip()  # it ends by itself after 100 s

    def ask(self, line, expected):
        self.tell(line)
        self.expect(expected)

    def expect(self, expected):
        answer = self.hear()
        if answer != expected:
            raise SystemExit(f"{self.name}: {answer!r}, not {expected!r}")

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(15)


def run_case(options, name):
    """Seconds until the last node has all frames."""
    shape, agents = CASES[name]
    hosts = list(zip(os.environ["WEFT_HOSTS"].split(), os.environ["WEFT_HOST_ADDRESSES"].split()))
    nodes = []
    try:
        for number in range(agents + 1):
            nodes.append(Node(options.node, options.provider, number, *hosts[number]))
        endpoints = " ".join(node.endpoint for node in nodes)
        for number, node in enumerate(nodes):
            node.tell(f"enter 1 {shape} 1 {agents} {number} {endpoints}")
        for node in nodes:
            node.expect("entered")
        warm = 16
        nodes[0].ask(f"send {warm} {PAYLOAD_BYTES}", f"sent {warm}")
        nodes[0].ask("drain 40000", "drained")
        for node in nodes[1:]:
            node.ask(f"wait {warm} {ALARM_MS}", f"frames {warm}")
        total = warm + options.frames
        begun = time.monotonic()
        nodes[0].tell(f"send {options.frames} {PAYLOAD_BYTES}")
        for node in nodes[1:]:
            node.tell(f"wait {total} {ALARM_MS}")
        for node in nodes[1:]:
            node.expect(f"frames {total}")
        return time.monotonic() - begun
    finally:
        for node in nodes:
            node.stop()


def figures(options, seconds):
    sent_bytes = options.frames * PAYLOAD_BYTES
    ideal = sent_bytes * 8 / bits_per_second(options.rate)
    rows = []
    for name, took in seconds.items():
        row = {"case": name, "shape": CASES[name][0], "agents": CASES[name][1], "seconds": round(took, 3),
               "mbit_per_second": round(sent_bytes * 8 / took / 1e6, 1), "time_over_ideal": round(took / ideal, 3)}
        if "hop" in seconds and name != "hop":
            share = 3 if name == "fan-out" else 1
            row["goodput_over_hop"] = round(seconds["hop"] * share / took, 3)
        rows.append(row)
    return {"provider": options.provider, "rate": options.rate, "frames": options.frames, "repeats": options.repeats,
            "cases": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--node", required=True)
    parser.add_argument("--provider", default="net")
    parser.add_argument("--rate", default="200mbit")
    parser.add_argument("--frames", type=int, default=256)
    parser.add_argument("--cases", default="hop,chain,fan-out,striped")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases = options.cases.split(",")
    unknown = [name for name in cases if name not in CASES]
    if unknown:
        parser.error(f"no cases: {', '.join(unknown)}; there are {', '.join(CASES)}")
    if "WEFT_HOSTS" not in os.environ:
        hosts = 1 + max(CASES[name][1] for name in cases)
        rig = [sys.executable, "-B", str(TOP / "tests" / "support" / "netns.py"), "--hosts", str(hosts), "--rate",
               options.rate, "--", sys.executable, "-B", *sys.argv]  # fmt: skip
        raise SystemExit(subprocess.run(rig, check=False).returncode)
    took = {name: [] for name in cases}
    for _ in range(options.repeats):
        for name in cases:
            took[name].append(run_case(options, name))
    result = figures(options, {name: statistics.median(each) for name, each in took.items()})
    if options.json:
        print(json.dumps(result))
        return
    print(f"{result['frames']} frames of a million bytes over {result['provider']}, links of {result['rate']}")
    for row in result["cases"]:
        print(f"{row['case']:8} {row['shape']:11} {row['agents']} agents: {row['seconds']:7.3f} s, "
              f"{row['mbit_per_second']:6.1f} Mbit/s, time over bytes / rate {row['time_over_ideal']:.3f}"
              + (f", goodput over one hop's {row['goodput_over_hop']:.3f}" if "goodput_over_hop" in row else ""))


if __name__ == "__main__":
    main()
