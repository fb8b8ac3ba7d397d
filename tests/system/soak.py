# SPDX-License-Identifier: Apache-2.0
"""Refits back to back over eight agents while some are killed, stopped and restarted.

Every commit is compared byte by byte on every member that is clean; nobody may be at anything but
one of the two checkpoints; memory stays flat. The seed is printed: the same one kills the same
agents at the same attempts.

    soak.py [--seconds 600] [--seed N] [--agents 8] [--binary build/release/weft] [--work DIR]
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

SHAPES = ["chain", "kary(2)", "kary(3)", "binomial", "star"]
RSS_GROWTH_MAX_KIB = 64 * 1024
PUBLISH_SECONDS = 90


def rss_kib(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


class Soak:
    def __init__(self, fleet_module, arguments, work):
        self.fm = fleet_module
        self.random = random.Random(arguments.seed)
        self.seconds = arguments.seconds
        gradient = fleet_module.DATA / "policy-gradient-lr3e-6"
        self.steps = [gradient / "step-10", gradient / "step-11"]
        self.fleet = fleet_module.Fleet(
            work / "fleet", base=self.steps[0], agent_count=arguments.agents,
            agent_toml='fabric.lost_after = "1500ms"\nfabric.heartbeat_interval = "200ms"\n'
                       'log.level = "warning"\n',
            coordinator_toml='control.lost_after = "2s"\ncommit.prepare_timeout = "30s"\n'
                             'commit.settle_timeout = "10s"\ncommit.min_fraction = 0.25\n'
                             'log.level = "warning"\n')
        self.everyone = range(arguments.agents)
        self.version = 1
        self.at = 0  # which step the fleet has
        self.counts = {"commits": 0, "aborts": 0, "kills": 0, "stops": 0, "restarts": 0,
                       "reseeds": 0, "compared": 0}
        self.rss = {}
        self.timers = []

    # --- faults ---
    def process(self, index):
        process = self.fleet.processes.get(self.fleet.name(index))
        return process if process is not None and process.poll() is None else None

    def kill(self, index):
        if self.process(index):
            self.fleet.kill(self.fleet.name(index))
            self.counts["kills"] += 1

    def restart(self, index):
        if self.process(index):
            self.fleet.kill(self.fleet.name(index), signal.SIGTERM)
        self.fleet.start_agent(index)
        self.counts["restarts"] += 1

    def stop_for(self, index, seconds):
        process = self.process(index)
        if process is None:
            return
        process.send_signal(signal.SIGSTOP)
        self.counts["stops"] += 1
        timer = threading.Timer(seconds, lambda: process.poll() is None
                                and process.send_signal(signal.SIGCONT))
        timer.start()
        self.timers.append(timer)

    def faults(self):
        """What goes wrong during the next attempt: (seconds from its start, what)."""
        plan = []
        for index in self.random.sample(list(self.everyone), self.random.choice([0, 1, 1, 2])):
            at = self.random.uniform(0.0, 1.5)
            kind = self.random.choice(["kill", "stop", "restart", "kill and restart"])
            if kind == "stop":
                length = self.random.choice([0.3, 1.0, 2.5])
                plan.append((at, lambda i=index, s=length: self.stop_for(i, s)))
            elif kind == "restart":
                plan.append((at, lambda i=index: self.restart(i)))
            else:
                plan.append((at, lambda i=index: self.kill(i)))
                if kind == "kill and restart":
                    plan.append((at + 0.3, lambda i=index: self.restart(i)))
        return sorted(plan, key=lambda entry: entry[0])

    # --- one attempt ---
    def attempt(self):
        base, target = self.steps[self.at], self.steps[1 - self.at]
        arguments = self.fleet.publish_arguments(base, target, self.version + 1, "--shape",
                                                 self.random.choice(SHAPES))
        output = self.fleet.work / "publish.json"
        with open(output, "w", encoding="utf-8") as out:
            publisher = subprocess.Popen([self.fm.BINARY, *map(str, arguments)], stdout=out,
                                         stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                                         cwd=self.fleet.work)
        start = time.monotonic()
        pause = threading.Event()
        try:
            for at, fault in self.faults():
                pause.wait(max(0.0, start + at - time.monotonic()))
                fault()
            code = publisher.wait(timeout=PUBLISH_SECONDS)
        finally:
            if publisher.poll() is None:
                publisher.kill()
                publisher.wait(timeout=10)
        answer = json.loads(output.read_text(encoding="utf-8"))
        if code == 0:
            self.version += 1
            self.at = 1 - self.at
            self.counts["commits"] += 1
        else:
            self.counts["aborts"] += 1
            self.check_abort(answer)
        self.bring_back()
        self.compare()

    def check_abort(self, answer):
        """An attempt may fail for what was done to it, and for nothing else."""
        code = answer["error"]["code"]
        if code not in ("peer_lost", "timeout", "busy", "in_doubt"):
            raise AssertionError(f"refit to {self.version + 1}: {answer}")
        committed = self.fm.wait_until("the coordinator answers", self.fleet.status)["committed"]
        if committed["version"] == self.version + 1:  # told too late to the publisher
            self.version += 1
            self.at = 1 - self.at

    # --- what must hold afterwards ---
    def bring_back(self):
        for timer in self.timers:
            timer.join()
        self.timers.clear()
        for index in self.everyone:
            if self.process(index) is None:
                self.fleet.start_agent(index)
        self.fm.wait_until("everybody has settled", self.settled, 90)
        for index in self.everyone:
            if self.state(index) != "clean":
                self.reseed(index)
        self.fm.wait_until("everybody is clean", lambda: all(
            self.state(i) == "clean" for i in self.everyone), 90)

    def member(self, index):
        return self.fleet.members().get(self.fleet.name(index), {})

    def state(self, index):
        member = self.member(index)
        if member.get("state") == "clean" and member["version"] == self.version:
            return "clean"
        return member.get("state", "absent")

    def settled(self):
        members = self.fleet.members()
        for index in self.everyone:
            member = members.get(self.fleet.name(index), {})
            clean = member.get("state") == "clean" and member["version"] == self.version
            if not clean and member.get("state") not in ("lagging", "needs_reseed"):
                return False
        return True

    def reseed(self, index):
        """Who missed a version gets the files as an operator would bring them; they must be one of
        the two checkpoints before."""
        weights = self.fleet.weights(index)
        if not any(self.fm.same_bytes(weights, step) for step in self.steps):
            raise AssertionError(f"{self.fleet.name(index)} is at neither checkpoint")
        if self.process(index):
            self.fleet.kill(self.fleet.name(index), signal.SIGTERM)
        shutil.rmtree(self.fleet.state(index))
        for path in self.steps[self.at].iterdir():
            shutil.copyfile(path, weights / path.name)
        for path in weights.glob("weft.*"):
            path.unlink()
        self.rss.pop(self.fleet.name(index), None)
        self.fleet.start_agent(index)
        self.counts["reseeds"] += 1

    def compare(self):
        self.fleet.assert_bytes(self.everyone, self.steps[self.at])
        self.counts["compared"] += len(self.everyone)
        for name, process in self.fleet.processes.items():
            first_pid, samples = self.rss.setdefault(name, (process.pid, []))
            if first_pid != process.pid:
                self.rss[name] = (process.pid, samples := [])
            samples.append(rss_kib(process))

    def check_memory(self):
        grown = {}
        for name, (_, samples) in self.rss.items():
            if len(samples) < 8:
                continue
            warm = max(samples[:4])
            grown[name] = max(samples[-3:]) - warm
            if grown[name] > RSS_GROWTH_MAX_KIB:
                raise AssertionError(f"{name} has grown from {warm} to {samples[-1]} KiB")
        return grown

    def run(self):
        self.fleet.start()
        # The first refit gives the fleet its version.
        deadline = time.monotonic() + self.seconds
        try:
            while time.monotonic() < deadline:
                self.attempt()
            grown = self.check_memory()
        finally:
            for timer in self.timers:
                timer.join()
            self.fleet.stop_all()
        if self.counts["commits"] == 0:
            raise AssertionError("nothing was committed: the soak proves nothing")
        return {**self.counts, "version": self.version, "rss_growth_kib": grown}


def main():
    parser = argparse.ArgumentParser(description="Kills, stops and restarts under load.")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--binary", default=os.environ.get("WEFT_BINARY", ""))
    parser.add_argument("--work", help="kept; default: a temporary directory")
    arguments = parser.parse_args()
    os.environ["WEFT_BINARY"] = str(pathlib.Path(arguments.binary).resolve())
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    import fleet
    print(f"seed {arguments.seed}", flush=True)
    if arguments.work:
        outcome = Soak(fleet, arguments, pathlib.Path(arguments.work)).run()
    else:
        with tempfile.TemporaryDirectory(prefix="weft-soak-") as work:
            outcome = Soak(fleet, arguments, pathlib.Path(work)).run()
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
