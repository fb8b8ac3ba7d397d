#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One refit down a chain of agents against the full checkpoint down the same chain.

  tests/support/netns.py --hosts 4 --rate 200mbit -- bench/scenarios/chain_refit.py
  bench/scenarios/chain_refit.py --loopback

Times run from begin until the last member is PREPARED. While the delta is published, RssAnon +
RssShmem of every agent is sampled every 10 ms (the kernel keeps no peak of it).
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "system"))
os.environ.setdefault("WEFT_BINARY", str(ROOT / "build" / "release" / "weft"))

import fleet as rig  # noqa: E402


class MemorySampler:
    """The largest RssAnon + RssShmem of each process, in MiB."""

    def __init__(self, processes):
        self.processes = processes
        self.peaks = {name: 0 for name in processes}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def run(self):
        while not self.ended.wait(0.01):
            for name, process in self.processes.items():
                self.peaks[name] = max(self.peaks[name], self.sample(process))

    @staticmethod
    def sample(process):
        try:
            text = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            return 0
        rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        return sum(int(rows[key].split()[0]) for key in ("RssAnon", "RssShmem")) / 1024


def hosts_of_environment():
    names = os.environ.get("WEFT_HOSTS", "").split()
    addresses = os.environ.get("WEFT_HOST_ADDRESSES", "").split()
    return list(zip(names, addresses)) or None


def published(fleet, base, target, version, *more):
    result = fleet.publish(base, target, version, *more, timeout=900)
    if result.returncode != 0:
        raise SystemExit(f"publish failed: {result.stdout}{result.stderr}")
    fleet.wait_clean(range(fleet.agent_count), version, 300)
    return json.loads(result.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", default="1GiB")
    parser.add_argument("--changed", default="3")
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3, help="refits measured; the median is shown")
    parser.add_argument("--shape", default="chain")
    parser.add_argument("--loopback", action="store_true")
    parser.add_argument("--work", help="directory on the disk to be measured")
    arguments = parser.parse_args()
    hosts = None if arguments.loopback else hosts_of_environment()
    if not hosts and not arguments.loopback:
        parser.error("run it inside tests/support/netns.py, or give --loopback")
    work = pathlib.Path(tempfile.mkdtemp(prefix="weft-chain-", dir=arguments.work))
    try:
        measure(arguments, hosts, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def measure(arguments, hosts, work):
    steps = work / "steps"
    made = subprocess.run(
        [rig.BINARY, "bench", "make-checkpoint", steps, "--bytes", arguments.bytes, "--changed",
         arguments.changed, "--json"], capture_output=True, text=True, timeout=900)
    if made.returncode != 0:
        raise SystemExit(made.stdout + made.stderr)
    base, target = steps / "base", steps / "target"
    with rig.Fleet(work / "fleet", base, arguments.agents, arguments.shape, hosts=hosts) as fleet:
        fleet.start()
        agents = {n: p for n, p in fleet.processes.items() if n.startswith("node-")}
        refits, version = [], 2
        with MemorySampler(agents) as sampler:
            for run in range(arguments.runs):
                pair = (base, target) if run % 2 == 0 else (target, base)
                refits.append(published(fleet, *pair, version))
                fleet.assert_bytes(range(arguments.agents), pair[1])
                version += 1
        current, other = pair[1], pair[0]
        full = published(fleet, current, other, version, "--full")
        fleet.assert_bytes(range(arguments.agents), other)
    seconds = statistics.median(r["prepare_seconds"] for r in refits)
    wire = statistics.median(r["wire_bytes"] for r in refits)
    print(json.dumps({
        "changed_percent": 100 * refits[0]["changed_elements"] / refits[0]["total_elements"],
        "refit_seconds": [round(r["prepare_seconds"], 3) for r in refits],
        "refit_seconds_median": round(seconds, 3),
        "full_seconds": round(full["prepare_seconds"], 3),
        "times_faster": round(full["prepare_seconds"] / seconds, 1),
        "wire_bytes": wire,
        "full_bytes": refits[0]["full_bytes"],
        "bytes_ratio": round(refits[0]["full_bytes"] / wire, 1),
        "agent_memory_mib": {name: round(peak, 1) for name, peak in sampler.peaks.items()},
    }, indent=2))


if __name__ == "__main__":
    main()
