#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A refit down a chain of agents against the full checkpoint down the same chain.

chain.py --weft PROGRAM [--bytes 1GiB] [--changed 3] [--agents 3] [--rate 200mbit] [--repeats 3] [--work DIR] [--json]

Makes checkpoints, starts a coordinator and agents, publishes some steps as differences and the last one in full, compares
every file of every agent with cmp, and copies the last checkpoint down the same hosts with plain sockets
(plain_relay.py: no compression, no checks, no syncs). Prints time until the last agent is PREPARED (for the copy: until
the last host has the last byte), bytes, CPU seconds, and the largest RssAnon + RssShmem of any agent (sampled every
10 ms, slots included) during the first difference. With --rate each process has a host of its own
(tests/support/netns.py) behind links of that rate; with --rate none all are on loopback.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

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


class CpuMeter:
    """CPU seconds, user and system, that some processes and ended children of this one have used since it was made."""

    def __init__(self, pids):
        self.pids = pids
        self.before = self._now()

    def _now(self):
        ticks = os.sysconf("SC_CLK_TCK")
        own = os.times()
        used = own.children_user + own.children_system
        for pid in self.pids:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
            used += (int(fields[11]) + int(fields[12])) / ticks
        return used

    def seconds(self):
        return self._now() - self.before


def make_checkpoints(options, work):
    changed = ",".join([str(options.changed)] * (options.repeats + 1))
    command = [options.weft, "bench", "make-checkpoint", str(work / "model"), "--bytes", options.bytes, "--changed",
               changed, "--seed", str(options.seed), "--json"]  # fmt: skip
    made = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=SECONDS_MAX).stdout)
    return [work / "model" / f"step-{number}" for number in range(options.repeats + 2)], made


def publish(fleet, *arguments):
    done = fleet.publish(*arguments, timeout=SECONDS_MAX)
    if done.returncode != 0:
        raise SystemExit(f"publish failed: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def plain_copy(options, work, hosts, checkpoint):
    """Seconds until the last of a chain of sockets has the last byte of the checkpoint."""
    files = sorted(checkpoint.glob("*.safetensors"))
    total = sum(file.stat().st_size for file in files)
    program = [sys.executable, "-B", str(TOP / "bench" / "scenarios" / "plain_relay.py")]
    addresses = [address for _, address in hosts[1:]] if hosts else [f"127.0.0.{2 + i}" for i in range(options.agents)]

    def on_host(place, command):
        return ["ip", "netns", "exec", hosts[place][0], *command] if hosts else command

    hops = []
    try:
        for i in reversed(range(options.agents)):
            command = [*program, "receive", addresses[i], "7500", str(total), str(work / f"copy-{i}"), *addresses[i + 1 : i + 2]]
            hops.insert(0, subprocess.Popen(on_host(i + 1, command), stdout=subprocess.PIPE, text=True))
            if hops[0].stdout.readline() != "listening\n":
                raise SystemExit(f"plain_relay.py does not listen on {addresses[i]}")
        begun = time.monotonic()
        command = [*program, "send", addresses[0], "7500", *map(str, files)]
        subprocess.run(on_host(0, command), check=True, timeout=SECONDS_MAX)
        for hop in hops:
            if hop.wait(SECONDS_MAX) != 0:
                raise SystemExit("the plain copy failed")
        seconds = time.monotonic() - begun
    finally:
        for hop in hops:
            hop.kill()
            hop.wait()
    subprocess.run(f"cat {' '.join(map(str, files))} | cmp - {work / f'copy-{options.agents - 1}'}", shell=True, check=True)
    for i in range(options.agents):
        (work / f"copy-{i}").unlink()
    return seconds


def measure(options, work):
    import fleet as system  # needs $WEFT_BINARY

    steps, made = make_checkpoints(options, work)
    hosts = None
    if "WEFT_HOSTS" in os.environ:
        hosts = list(zip(os.environ["WEFT_HOSTS"].split(), os.environ["WEFT_HOST_ADDRESSES"].split()))
    everyone = range(options.agents)
    differences, cpu_seconds = [], []
    with system.Fleet(work / "fleet", steps[0], options.agents, shape="chain", hosts=hosts) as fleet:
        fleet.start()
        sampler = MemorySampler([fleet.processes[fleet.name(i)].pid for i in everyone])
        sampler.start()
        for number in range(options.repeats):
            meter = CpuMeter([process.pid for process in fleet.processes.values()])
            differences.append(publish(fleet, steps[number], steps[number + 1], number + 2))
            cpu_seconds.append(meter.seconds())
            fleet.wait_clean(everyone, number + 2, SECONDS_MAX)
            if number == 0:
                memory = sampler.stop()
            fleet.assert_bytes(everyone, steps[number + 1])
        full = publish(fleet, steps[-2], steps[-1], options.repeats + 2, "--full")
        fleet.wait_clean(everyone, options.repeats + 2, SECONDS_MAX)
        fleet.assert_bytes(everyone, steps[-1])
    copy_seconds = plain_copy(options, work, hosts, steps[-1])
    seconds = [difference["prepare_seconds"] for difference in differences]
    wire_bytes = statistics.median(difference["wire_bytes"] for difference in differences)
    return {
        "bytes": made["tensor_bytes"],
        "changed_percent": made["steps"][0]["changed_percent"],
        "agents": options.agents,
        "rate": options.rate,
        "difference_seconds": statistics.median(seconds),
        "difference_seconds_each": seconds,
        "difference_bytes": wire_bytes,
        "difference_cpu_seconds": statistics.median(cpu_seconds),
        "full_seconds": full["prepare_seconds"],
        "full_bytes": full["wire_bytes"],
        "copy_seconds": copy_seconds,
        "times_faster_than_full": full["prepare_seconds"] / statistics.median(seconds),
        "times_faster_than_copy": copy_seconds / statistics.median(seconds),
        "times_smaller": differences[0]["full_bytes"] / wire_bytes,
        "agent_memory_bytes": memory,
    }


def show(result):
    mebi = 2**20
    print(f"{result['bytes'] / mebi:.0f} MiB, {result['changed_percent']:.2f} % changed, chain of {result['agents']} agents, "
          f"{'loopback' if result['rate'] == 'none' else result['rate'] + ' links'}")  # fmt: skip
    each = ", ".join(f"{seconds:.3f}" for seconds in result["difference_seconds_each"])
    rows = [
        ("difference", result["difference_seconds"], result["difference_bytes"], f"  median of {each}"),
        ("full refit", result["full_seconds"], result["full_bytes"], f"  {result['times_faster_than_full']:.1f} times as long"),
        ("plain copy", result["copy_seconds"], result["bytes"], f"  {result['times_faster_than_copy']:.1f} times as long"),
    ]
    for name, seconds, byte_count, note in rows:
        print(f"  {name:<11}{seconds:9.3f} s to the last agent {byte_count / mebi:9.1f} MiB{note}")
    print(f"  {result['times_smaller']:.1f} times fewer bytes; {result['difference_cpu_seconds']:.2f} CPU seconds of all "
          f"processes until the commit; largest agent {result['agent_memory_bytes'] / mebi:.0f} MiB (RssAnon + RssShmem)")  # fmt: skip


def main(arguments):
    parser = argparse.ArgumentParser(description="A refit down a chain against the full checkpoint.")
    parser.add_argument("--weft", required=True)
    parser.add_argument("--bytes", default="1GiB")
    parser.add_argument("--changed", type=float, default=3)
    parser.add_argument("--agents", type=int, default=3)
    parser.add_argument("--rate", default="200mbit")
    parser.add_argument("--repeats", type=int, default=3, help="differences published one after the other [3]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", help="where to put checkpoints and agents, about ten times BYTES [a temporary directory]")
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
