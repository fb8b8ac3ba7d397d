#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A refit down a chain of agents against the full checkpoint down the same chain.

chain.py --weft PROGRAM [--bytes 1GiB] [--changed 3] [--agents 3] [--rate 200mbit] [--work DIR] [--json]

Makes three checkpoints, starts a coordinator and agents, publishes the first step as a difference and the second one in
full, compares every file of every agent with cmp, and prints time until the last agent is PREPARED, bytes, and the
largest RssAnon + RssShmem of any agent (sampled every 10 ms, slots included) during the difference. With --rate each
process has a host of its own (tests/support/netns.py) behind links of that rate; with --rate none all are on loopback.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(TOP / "tests" / "system"), str(TOP / "tests" / "support")]

SECONDS_MAX = 1800
SAMPLE_SECONDS = 0.01


class MemorySampler(threading.Thread):
    """The largest RssAnon + RssShmem of any of some processes, in bytes."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.paths = [f"/proc/{pid}/status" for pid in pids]
        self.largest = 0
        self.stopped = threading.Event()

    def run(self):
        while not self.stopped.wait(SAMPLE_SECONDS):
            for path in self.paths:
                self.largest = max(self.largest, self._resident(path))

    @staticmethod
    def _resident(path):
        try:
            with open(path, encoding="ascii") as status:
                lines = [line for line in status if line.startswith(("RssAnon:", "RssShmem:"))]
        except OSError:
            return 0
        return sum(int(line.split()[1]) * 1024 for line in lines)

    def stop(self):
        self.stopped.set()
        self.join()
        return self.largest


def make_checkpoints(options, work):
    command = [options.weft, "bench", "make-checkpoint", str(work / "model"), "--bytes", options.bytes, "--changed",
               f"{options.changed},{options.changed}", "--seed", str(options.seed), "--json"]  # fmt: skip
    made = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=SECONDS_MAX).stdout)
    return [work / "model" / f"step-{number}" for number in range(3)], made


def publish(fleet, *arguments):
    done = fleet.publish(*arguments, timeout=SECONDS_MAX)
    if done.returncode != 0:
        raise SystemExit(f"publish failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def measure(options, work):
    import fleet as system  # needs $WEFT_BINARY

    steps, made = make_checkpoints(options, work)
    hosts = None
    if "WEFT_HOSTS" in os.environ:
        hosts = list(zip(os.environ["WEFT_HOSTS"].split(), os.environ["WEFT_HOST_ADDRESSES"].split()))
    everyone = range(options.agents)
    with system.Fleet(work / "fleet", steps[0], options.agents, shape="chain", hosts=hosts) as fleet:
        fleet.start()
        sampler = MemorySampler([fleet.processes[fleet.name(i)].pid for i in everyone])
        sampler.start()
        difference = publish(fleet, steps[0], steps[1], 2)
        fleet.wait_clean(everyone, 2, SECONDS_MAX)
        memory = sampler.stop()
        fleet.assert_bytes(everyone, steps[1])
        full = publish(fleet, steps[1], steps[2], 3, "--full")
        fleet.wait_clean(everyone, 3, SECONDS_MAX)
        fleet.assert_bytes(everyone, steps[2])
    return {
        "bytes": made["tensor_bytes"],
        "changed_percent": made["steps"][0]["changed_percent"],
        "agents": options.agents,
        "rate": options.rate,
        "difference_seconds": difference["prepare_seconds"],
        "difference_bytes": difference["wire_bytes"],
        "full_seconds": full["prepare_seconds"],
        "full_bytes": full["wire_bytes"],
        "times_faster": full["prepare_seconds"] / difference["prepare_seconds"],
        "times_smaller": difference["full_bytes"] / difference["wire_bytes"],
        "agent_memory_bytes": memory,
    }


def show(result):
    mebi = 2**20
    print(f"{result['bytes'] / mebi:.0f} MiB, {result['changed_percent']:.2f} % changed, chain of {result['agents']} agents, "
          f"{'loopback' if result['rate'] == 'none' else result['rate'] + ' links'}")  # fmt: skip
    for name in ("difference", "full"):
        print(f"  {name:<11} {result[name + '_seconds']:9.3f} s to the last PREPARED {result[name + '_bytes'] / mebi:10.1f} MiB")
    print(f"  {result['times_faster']:.1f} times faster, {result['times_smaller']:.1f} times fewer bytes")
    print(f"  largest agent during the difference: {result['agent_memory_bytes'] / mebi:.0f} MiB (RssAnon + RssShmem)")


def main(arguments):
    parser = argparse.ArgumentParser(description="A refit down a chain against the full checkpoint.")
    parser.add_argument("--weft", required=True)
    parser.add_argument("--bytes", default="1GiB")
    parser.add_argument("--changed", type=float, default=3)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--rate", default="200mbit")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", help="where to put checkpoints and agents, about six times BYTES [a temporary directory]")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    options.weft = str(pathlib.Path(options.weft).resolve())
    if options.rate != "none" and "WEFT_HOSTS" not in os.environ:
        rig = [sys.executable, "-B", str(TOP / "tests" / "support" / "netns.py"), "--hosts", str(options.agents + 1),
               "--rate", options.rate, "--"]  # fmt: skip
        return subprocess.run([*rig, sys.executable, "-B", __file__, *arguments], check=False).returncode
    os.environ["WEFT_BINARY"] = options.weft
    with tempfile.TemporaryDirectory(prefix="weft-chain-", dir=options.work) as work:
        result = measure(options, pathlib.Path(work))
    if options.json:
        print(json.dumps(result))
    else:
        show(result)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
