#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pause that a reader sees while refits are applied, and what an apply takes in time and memory.

pause.py --build DIR [--bytes 1GiB] [--changed 3] [--refits 50] [--mode double_buffer|in_place] [--agent-toml LINES] [--json]

One agent on loopback takes refits to and fro between two checkpoints. In each, a reader asks for the right to read every
0.1 ms (`weft_weight_reader gap`) from before the publisher starts until the agent has applied and synced; then another one
for as long without a refit. Pause: the longest time without the right, minus the median of the times without a refit. The
99th percentile of all refits counts. The first refits of two sets copy the standby and are not counted. Beside it, per
refit: from the last frame to PREPARED (`node.prove_seconds`), from COMMIT to published and synced
(`node.apply_seconds`), and the largest RssAnon + RssShmem of the agent, sampled every 10 ms.

What the machine itself does to such a reader is measured in the same run (`plain_...`): after each refit dd writes and syncs as
many bytes as the model has, while one process spins for as long as the agent has computed. No weft writes then. And
real-time threads of the reader's process, one per processor, tell when nothing at all could run (`machine_ms`: in the longest
gap; `own_...`: gaps less that time); where they are not allowed it is -1 and nothing is subtracted.
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
import urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(TOP / "tests" / "system"), str(TOP / "bench" / "scenarios")]

import fleet as fleets  # noqa: E402
from chain import MemorySampler  # noqa: E402

SECONDS_MAX = 1800
WARM_UP = 2
IDLE_SECONDS_MAX = 5


def percentile(values, share):
    """The smallest value that this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, -(-len(ordered) * share // 100) - 1)]


class Reader:
    """A `gap` reader; stop() gives what it found: the longest gap, and what that was made of."""

    def __init__(self, program, weights):
        self.process = subprocess.Popen([program, "gap", weights], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop(self):
        out, _ = self.process.communicate(timeout=60)
        found = json.loads(out)
        if found.get("error"):
            raise RuntimeError(f"the reader failed: {found['error']}")
        return found


def cpu_seconds(pid):
    """User and system time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.build = options.build.resolve()
        fleets.BINARY = str(self.build / "weft")
        self.reader = str(self.build / "tests" / "weft_weight_reader")
        self.samples = []

    def make_model(self):
        subprocess.run([fleets.BINARY, "bench", "make-checkpoint", self.work, "--bytes", self.options.bytes,
                        "--changed", str(self.options.changed)], check=True, timeout=SECONDS_MAX, stdout=subprocess.DEVNULL)
        self.sides = [self.work / "base", self.work / "target"]

    def start(self):
        self.port = fleets.free_port()
        self.fleet = fleets.Fleet(self.work / "fleet", self.sides[0], agent_count=1,
                                  double_buffer=self.options.mode == "double_buffer",
                                  agent_toml=self.options.agent_toml)
        self.fleet.start_coordinator()
        # Verifying 4 GiB takes a while.
        process = self.fleet.start_agent(0, extra_toml=f'http.listen = "127.0.0.1:{self.port}"')
        self.fleet.wait_joined([0], SECONDS_MAX)
        return process.pid

    def node(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status.json", timeout=30) as page:
            return json.load(page)

    def applied(self, version):
        page = self.node()
        return page["node"] if page["members"][0]["version"] == version else None

    def read_while(self, work):
        reader = Reader(self.reader, self.fleet.weights_dir(0))
        begun = time.monotonic()
        work()
        took = time.monotonic() - begun
        return reader.stop(), took

    def publish(self, number):
        version = number + 2
        done = self.fleet.publish(self.sides[number % 2], self.sides[(number + 1) % 2], version, timeout=SECONDS_MAX)
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        self.last = fleets.wait_until("it is applied", lambda: self.applied(version), SECONDS_MAX)

    def plain_load(self, seconds):
        """As much computing and writing as an apply, by programs that know nothing of weft."""
        blocks = sum(path.stat().st_size for path in self.sides[0].glob("*.safetensors")) >> 20
        spin = subprocess.Popen([sys.executable, "-c", f"import time\nwhile time.process_time() < {seconds}: pass"])
        copy = subprocess.Popen(["dd", "if=/dev/zero", f"of={self.work / 'plain'}", "bs=1M", f"count={blocks}",
                                 "conv=notrunc,fdatasync"], stderr=subprocess.DEVNULL)  # fmt: skip
        if copy.wait(SECONDS_MAX) != 0 or spin.wait(SECONDS_MAX) != 0:
            raise RuntimeError("the plain load failed")

    def refit(self, number, pid):
        before = cpu_seconds(pid)
        busy, took = self.read_while(lambda: self.publish(number))
        computed = cpu_seconds(pid) - before
        node = self.last
        sample = {"prepare_seconds": node["prove_seconds"], "apply_seconds": node["apply_seconds"], "cpu_seconds": computed}
        plain = None
        if self.options.plain:
            plain, _ = self.read_while(lambda: self.plain_load(min(computed, IDLE_SECONDS_MAX)))
        idle, _ = self.read_while(lambda: time.sleep(min(took, IDLE_SECONDS_MAX)))
        for name, found in (("refit", busy), ("plain", plain), ("idle", idle)):
            if found:
                sample[name] = found
        return sample

    def run(self):
        self.make_model()
        pid = self.start()
        try:
            for number in range(WARM_UP):
                self.refit(number, pid)
            memory = MemorySampler([pid])
            memory.start()
            for number in range(WARM_UP, WARM_UP + self.options.refits):
                self.samples.append(self.refit(number, pid))
            largest = memory.stop()
            self.fleet.assert_bytes([0], self.sides[(WARM_UP + self.options.refits) % 2])
        finally:
            self.fleet.stop_all()
        return self.report(largest)

    def report(self, largest):
        def all_of(key):
            return [sample[key] for sample in self.samples]

        def gaps(name, key):
            return [sample[name][key] for sample in self.samples if name in sample]

        idle = statistics.median(gaps("idle", "longest_gap_ms"))
        own_idle = statistics.median(gaps("idle", "own_gap_ms"))
        pauses = [gap - idle for gap in gaps("refit", "longest_gap_ms")]
        own = [gap - own_idle for gap in gaps("refit", "own_gap_ms")]
        report = {
            "mode": self.options.mode, "bytes": self.options.bytes, "changed_percent": self.options.changed,
            "refits": len(pauses), "pause_ms_p99": percentile(pauses, 99), "pause_ms_p50": statistics.median(pauses),
            "pause_ms_max": max(pauses), "own_pause_ms_p99": percentile(own, 99), "own_pause_ms_p50": statistics.median(own),
            "machine_ms_p50": statistics.median(gaps("refit", "machine_ms")),
            "run_delay_ms_p50": statistics.median(gaps("refit", "run_delay_ms")),
            "acquire_ms_max": max(gaps("refit", "waiting_ms")),
            "idle_ms_p50": idle, "idle_ms_p99": percentile(gaps("idle", "longest_gap_ms"), 99),
            "prepare_seconds_p50": statistics.median(all_of("prepare_seconds")),
            "apply_seconds_p50": statistics.median(all_of("apply_seconds")),
            "cpu_seconds_p50": statistics.median(all_of("cpu_seconds")),
            "agent_memory_mib": largest / 2**20, "load": os.getloadavg()[0],
        }  # fmt: skip
        if self.options.plain:
            plain = [gap - idle for gap in gaps("plain", "longest_gap_ms")]
            plain_own = [gap - own_idle for gap in gaps("plain", "own_gap_ms")]
            report |= {"plain_ms_p99": percentile(plain, 99), "plain_ms_p50": statistics.median(plain),
                       "plain_own_ms_p99": percentile(plain_own, 99), "plain_own_ms_p50": statistics.median(plain_own)}
        return report


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="release build: weft and tests/weft_weight_reader")
    parser.add_argument("--bytes", default="1GiB")
    parser.add_argument("--changed", type=float, default=3)
    parser.add_argument("--refits", type=int, default=50)
    parser.add_argument("--mode", choices=("double_buffer", "in_place"), default="double_buffer")
    parser.add_argument("--work", type=pathlib.Path, help="on the file system to measure, with room for 5 checkpoints")
    parser.add_argument("--no-plain", dest="plain", action="store_false", help="without the plain load after each refit")
    parser.add_argument("--agent-toml", default="", help="more lines for the agent's configuration, e.g. apply.nice = 0")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    if options.work is not None:
        pathlib.Path(options.work).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weft-pause-", dir=options.work) as folder:
        report = Bench(options, pathlib.Path(folder)).run()
    if options.json:
        print(json.dumps(report))
    else:
        for key, value in report.items():
            print(f"{key:20} {value:.3f}" if isinstance(value, float) else f"{key:20} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
