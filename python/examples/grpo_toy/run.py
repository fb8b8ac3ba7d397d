# SPDX-License-Identifier: Apache-2.0
"""A small transformer is trained over two tensor-parallel ranks and published after every step to three nodes, each with
a rollout process whose completions are what the next step learns from.

    run.py --weft build/release/weft [--steps 30] [--kill-at 15] [--work DIR]

After every step the bits of every rollout's weights are those of a full export that did not go through weft, and its
logits are those of the trainer's BF16 model, bit by bit. On the way one node's agent is killed by SIGKILL in the middle of
an apply; a supervisor starts it again, nobody else does anything. Ends with exit code 1 at the first difference.
"""

import argparse
import filecmp
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import torch

import toy_model as toy

NODES = 3
HERE = pathlib.Path(__file__).resolve().parent


class Run:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.last = options.steps + 2
        self.processes, self.logs = {}, {}
        self.was_killed = False
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % probe.getsockname()[1]

    # --- processes ---
    def start(self, name, *command, environment=None):
        with open(self.work / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=dict(os.environ, OMP_NUM_THREADS="1", **(environment or {})))

    def python(self, name, script, *arguments):
        self.start(name, sys.executable, "-B", HERE / script, self.work, *arguments)

    def start_agent(self, node, environment=None):
        folder = self.work / f"node-{node}"
        config = folder / "agent.toml"
        config.write_text(f'fleet.coordinator = "{self.address}"\nagent.id = "node-{node}"\n'
                          f'weights.dir = "{folder / "weights"}"\nstate.dir = "{folder / "state"}"\n'
                          'fabric.address = "127.0.0.1"\n')
        self.start(f"agent-{node}", self.options.weft, "agent", "--config", config, environment=environment)

    def start_all(self):
        toy.write_checkpoint(self.work / "base", {name: tensor.to(torch.bfloat16)
                                                  for name, tensor in toy.initial(seed=0).items()})
        (self.work / "coordinator").mkdir()
        (self.work / "coordinator.toml").write_text(
            f'fleet.listen = "{self.address}"\nstate.dir = "{self.work / "coordinator"}"\n')
        self.start("coordinator", self.options.weft, "coordinator", "--config", self.work / "coordinator.toml")
        for node in range(NODES):
            (self.work / f"node-{node}" / "state").mkdir(parents=True)
            shutil.copytree(self.work / "base", self.work / f"node-{node}" / "weights")
            self.start_agent(node)
        self.wait("three agents have joined",
                  lambda: [state for state, _ in self.members().values()] == ["unversioned"] * NODES)
        for rank in range(2):
            self.python(f"rank-{rank}", "train_rank.py", rank, self.address, self.options.steps)
        for node in range(NODES):
            self.python(f"rollout-{node}", "rollout.py", node, self.work / f"node-{node}" / "weights", self.last)

    def members(self):
        """Agent -> (state, version), as the coordinator knows it."""
        done = subprocess.run([self.options.weft, "status", "--fleet", self.address, "--json"], capture_output=True,
                              text=True, timeout=30, check=False)
        listed = json.loads(done.stdout)["members"] if done.returncode == 0 else []
        return {each["id"]: (each["state"], each["version"]) for each in listed if each["connected"]}

    def supervise(self):
        """Starts an agent that was killed again, as systemd would; anything else that ends early is an error."""
        for name, process in list(self.processes.items()):
            code = process.poll()
            if code is None or (code == 0 and name.startswith(("rank", "rollout"))):
                continue
            if name == "agent-1" and code == -signal.SIGKILL and not self.was_killed:
                self.was_killed = True
                print("agent-1 was killed by SIGKILL in the middle of an apply; it is started again", flush=True)
                self.start_agent(1)
                continue
            raise RuntimeError(f"{name} ended with {code}")

    def arm(self, version):
        """Agent 1 will be killed in the middle of its next apply; it is at `version` before."""
        process = self.processes["agent-1"]
        process.terminate()
        process.wait(timeout=60)
        self.wait("the coordinator has lost agent 1", lambda: "node-1" not in self.members())
        self.start_agent(1, {"WEFT_TEST_KILL_AT": "agent.applying"})
        self.wait("agent 1 is back", lambda: self.members().get("node-1") == ("clean", version))

    def wait(self, what, predicate, seconds=120):
        deadline = time.monotonic() + seconds
        pause = threading.Event()
        while not predicate():
            self.supervise()
            if time.monotonic() > deadline:
                raise RuntimeError(f"not within {seconds} s: {what}")
            pause.wait(0.02)

    def stop_all(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=30)

    # --- what is claimed ---
    def check(self, version):
        files = [self.work / f"{who}-{version}.pt" for who in ("trainer", "rollout-0", "rollout-1", "rollout-2")]
        self.wait(f"version {version} everywhere", lambda: all(path.exists() for path in files))
        trainer, *rollouts = [torch.load(path) for path in files]
        for node, rollout in enumerate(rollouts):
            wrong = [name for name, digest in trainer["digests"].items() if rollout["digests"].get(name) != digest]
            if wrong or rollout["digests"].keys() != trainer["digests"].keys():
                raise RuntimeError(f"version {version}, rollout {node}: {wrong} are not the export's")
            if not torch.equal(rollout["logits"], trainer["logits"]):
                raise RuntimeError(f"version {version}, rollout {node}: its logits are not the trainer's")
        reward = float(torch.cat([toy.reward(each["tokens"][:, toy.PROMPT:]) for each in rollouts]).mean())
        loads = [each["loads"] for each in rollouts]
        print(f"version {version}: 3 rollouts equal the export and the trainer's logits; reward {reward:.3f}, "
              f"whole copies {loads}", flush=True)
        return reward, loads

    def check_files(self):
        for node in range(NODES):
            file = self.work / f"node-{node}" / "weights" / "model.safetensors"
            if not filecmp.cmp(file, self.work / "last-export" / "model.safetensors", shallow=False):
                raise RuntimeError(f"{file} is not the export")

    def run(self):
        begun = time.monotonic()
        self.start_all()
        rewards = []
        for version in range(2, self.last + 1):
            if version == self.options.kill_at:
                self.arm(version - 1)
            (self.work / f"go-{version}").touch()
            reward, loads = self.check(version)
            rewards.append(reward)
        self.wait("all ranks and rollouts have ended", lambda: all(
            process.poll() == 0 for name, process in self.processes.items() if name.startswith(("rank", "rollout"))))
        self.check_files()
        if not self.was_killed:
            raise RuntimeError("no agent was killed")
        third = max(1, len(rewards) // 3)
        first, last = sum(rewards[:third]) / third, sum(rewards[-third:]) / third
        print(f"{self.options.steps} steps in {time.monotonic() - begun:.1f} s: weights and logits equal on 3 nodes; "
              f"whole copies {loads}; reward {first:.3f} -> {last:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="weft", help="the program weft")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--kill-at", type=int, help="version in whose apply an agent is killed (default: half way)")
    parser.add_argument("--work", help="directory to keep (default: a temporary one)")
    options = parser.parse_args()
    options.kill_at = options.kill_at or 2 + options.steps // 2
    with tempfile.TemporaryDirectory(prefix="weft-grpo-") as temporary:
        work = pathlib.Path(options.work or temporary)
        work.mkdir(parents=True, exist_ok=True)
        run = Run(options, work.resolve())
        try:
            run.run()
        except BaseException:
            for log in sorted(work.glob("*.log")):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
            raise
        finally:
            run.stop_all()


if __name__ == "__main__":
    main()
