# SPDX-License-Identifier: Apache-2.0
"""A whole fleet of real processes on loopback, for the system tests.

Everything lives below one working directory; every process is ended by its own id; every wait has
a deadline. The binary is $WEFT_BINARY, the shared checkpoints are $WEFT_SHARED/data.
"""

import filecmp
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading
import time

BINARY = os.environ.get("WEFT_BINARY", "")
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SHARED = pathlib.Path(os.environ.get("WEFT_SHARED", REPOSITORY.parent / "shared"))
DATA = SHARED / "data"


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(what, predicate, seconds=30.0):
    """The first true value of predicate(); an AssertionError that says what was waited for."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        pause.wait(0.05)


def compare_checkpoints(left, right):
    """Byte-for-byte comparison by cmp(1); raises with the first difference."""
    left, right = pathlib.Path(left), pathlib.Path(right)
    names = sorted(p.name for p in right.iterdir() if p.suffix in (".safetensors", ".json"))
    if not names:
        raise AssertionError(f"{right} holds no checkpoint")
    for name in names:
        result = subprocess.run(
            ["cmp", left / name, right / name], capture_output=True, text=True, timeout=120
        )
        if result.returncode != 0:
            raise AssertionError(f"{left} is not {right}: {result.stdout}{result.stderr}")


def same_bytes(left, right):
    names = [p.name for p in pathlib.Path(right).iterdir() if p.suffix == ".safetensors"]
    return filecmp.cmpfiles(left, right, names, shallow=False)[0] == names


class Fleet:
    """One coordinator and several agents, each with a copy of a base checkpoint.

    With `hosts` (name and address of each, see tests/support/netns.py) the coordinator and the
    publisher run on the first and the agents on the following ones; else all are on loopback.
    """

    def __init__(self, work, base, agent_count=3, shape="kary(2)", coordinator_toml="",
                 agent_toml="", environment=None, hosts=None, double_buffer=False):
        self.work = pathlib.Path(work)
        self.base = pathlib.Path(base)
        self.shape = shape
        self.agent_count = agent_count
        self.coordinator_toml = coordinator_toml
        self.double_buffer = double_buffer
        self.agent_toml = agent_toml + ('\napply.mode = "double_buffer"' if double_buffer else "")
        self.environment = dict(environment or {})
        self.hosts = hosts
        self.address = f"{self.host_address(0)}:{7443 if hosts else free_port()}"
        self.processes = {}
        self.state_dirs = {}
        self.work.mkdir(parents=True, exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop_all()

    # --- places ---
    def host_address(self, place):
        return self.hosts[place][1] if self.hosts else "127.0.0.1"

    def on_host(self, place):
        return ["ip", "netns", "exec", self.hosts[place][0]] if self.hosts else []

    def insecure(self):
        return "tls.insecure = true\n" if self.hosts else ""

    def name(self, index):
        return f"node-{index}"

    def weights_dir(self, index):
        return self.work / self.name(index) / "weights"

    def weights(self, index):
        """Where readers find the files now."""
        folder = self.weights_dir(index)
        if not self.double_buffer:
            return folder
        current = folder / "current"
        return folder / (current.read_text().strip() if current.exists() else "a")

    def state(self, index):
        return self.state_dirs.get(index, self.work / self.name(index) / "state")

    def log_text(self, name):
        path = self.work / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # --- processes ---
    def start_process(self, name, arguments, environment=None, place=0):
        log = open(self.work / f"{name}.log", "ab")
        merged = dict(os.environ, **self.environment, **(environment or {}))
        process = subprocess.Popen(
            [*self.on_host(place), BINARY, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=merged, cwd=self.work,
        )
        log.close()
        self.processes[name] = process
        return process

    def launch_coordinator(self, environment=None):
        """Without a wait for an answer: it may be about to die."""
        state = self.work / "coordinator"
        state.mkdir(exist_ok=True)
        config = self.work / "coordinator.toml"
        config.write_text(
            f'fleet.listen = "{self.address}"\nstate.dir = "{state}"\n'
            f'tree.shape = "{self.shape}"\n{self.insecure()}{self.coordinator_toml}\n'
        )
        return self.start_process("coordinator", ["coordinator", "--config", config], environment)

    def start_coordinator(self, environment=None):
        self.launch_coordinator(environment)
        wait_until("the coordinator answers", lambda: self.status() is not None, 20)

    def prepare_agent(self, index):
        weights, state = self.weights(index), self.state(index)
        if not weights.exists():
            weights.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(self.base, weights)
            for path in [weights, *weights.iterdir()]:
                path.chmod(0o755 if path.is_dir() else 0o640)
        state.mkdir(parents=True, exist_ok=True)

    def start_agent(self, index, environment=None, extra_toml=""):
        self.prepare_agent(index)
        config = self.work / f"{self.name(index)}.toml"
        config.write_text(
            f'fleet.coordinator = "{self.address}"\nagent.id = "{self.name(index)}"\n'
            f'weights.dir = "{self.weights_dir(index)}"\nstate.dir = "{self.state(index)}"\n'
            f'fabric.address = "{self.host_address(index + 1)}"\n'
            f"{self.insecure()}{self.agent_toml}\n{extra_toml}\n"
        )
        return self.start_process(self.name(index), ["agent", "--config", config], environment,
                                  index + 1)

    def start(self):
        self.start_coordinator()
        for index in range(self.agent_count):
            self.start_agent(index)
        self.wait_joined(range(self.agent_count))

    def kill(self, name, number=signal.SIGKILL):
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(timeout=30)
        return process.returncode

    def wait_exit(self, name, seconds=60):
        process = self.processes[name]
        process.wait(timeout=seconds)
        del self.processes[name]
        return process.returncode

    def stop_all(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=20)
        self.processes.clear()

    # --- commands ---
    def run(self, *arguments, timeout=120, environment=None):
        return subprocess.run(
            [*self.on_host(0), BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
            env=dict(os.environ, **self.environment, **(environment or {})), cwd=self.work,
            stdin=subprocess.DEVNULL,
        )

    def publish_arguments(self, base, target, version, *more):
        config = self.work / "publisher.toml"
        config.write_text(f'fabric.address = "{self.host_address(0)}"\n{self.insecure()}')
        return ["publish", "--base", base, "--target", target, "--version", version, "--fleet",
                self.address, "--config", config, "--json", *more]

    def publish(self, base, target, version, *more, timeout=120, environment=None):
        return self.run(*self.publish_arguments(base, target, version, *more), timeout=timeout,
                        environment=environment)

    def start_publish(self, base, target, version, *more, environment=None):
        return self.start_process("publisher",
                                  self.publish_arguments(base, target, version, *more), environment)

    def status(self):
        more = ["--tls-insecure"] if self.hosts else []
        result = self.run("status", "--fleet", self.address, "--json", *more, timeout=30)
        return json.loads(result.stdout) if result.returncode == 0 else None

    def members(self):
        status = self.status()
        return {m["id"]: m for m in status["members"]} if status else {}

    def wait_joined(self, indices, seconds=30):
        """Every agent has told its digest table's root."""
        def joined():
            members = self.members()
            return all(
                members.get(self.name(i), {}).get("state") in ("clean", "unversioned", "lagging",
                                                               "needs_reseed")
                for i in indices
            )
        wait_until(f"agents {list(indices)} have joined", joined, seconds)

    def wait_state(self, index, state, version=None, seconds=30):
        def reached():
            member = self.members().get(self.name(index), {})
            if member.get("state") != state:
                return None
            return member if version is None or member["version"] == version else None
        return wait_until(f"{self.name(index)} is {state} at {version}", reached, seconds)

    def wait_clean(self, indices, version, seconds=60):
        return [self.wait_state(i, "clean", version, seconds) for i in indices]

    def assert_bytes(self, indices, target):
        for index in indices:
            compare_checkpoints(self.weights(index), target)
