# SPDX-License-Identifier: Apache-2.0
"""weft.Agent: a node agent inside a runtime's process, in one fleet with an agent that is a process of its own."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy

import weft
from fleet import Fleet, wait_until
from publisher_model import to_bf16, write_checkpoint

CHILD = """
import sys, weft
agent = weft.Agent(sys.argv[1])
print("open", flush=True)
agent.wait_ended()
"""


class EmbeddedAgent(unittest.TestCase):
    """node-0 is a process, node-1 is in this one; node-1's configuration is that of a process."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="weft-embedded-")
        self.addCleanup(temporary.cleanup)
        self.work = pathlib.Path(temporary.name)
        self.values = to_bf16(numpy.random.default_rng(2).normal(0, 0.02, (700, 1000)))
        self.steps = {1: write_checkpoint(self.work / "step-1", {"w": self.values})}
        self.fleet = Fleet(self.work / "fleet", self.steps[1], agent_count=1)
        self.addCleanup(self.fleet.stop_all)
        self.fleet.start()
        self.fleet.start_agent(1)  # for its configuration and directories
        self.fleet.wait_joined([0, 1])
        self.publish(2)  # before the first refit nodes have no version and are not ready
        self.fleet.wait_clean([0, 1], 2)
        self.fleet.kill("node-1", signal.SIGTERM)
        self.wait_gone()
        self.config = self.fleet.work / "node-1.toml"

    def wait_gone(self):
        wait_until("the loss of node-1 is known", lambda: not self.fleet.members()["node-1"]["connected"])

    def publish(self, version):
        self.values.reshape(-1)[version::31] ^= 1
        self.steps[version] = write_checkpoint(self.work / f"step-{version}", {"w": self.values})
        done = self.fleet.publish(self.steps[version - 1], self.steps[version], version)
        self.assertEqual(done.returncode, 0, done.stderr)

    def wait_ready(self, agent, version):
        def reached():
            now = agent.status
            return now if now.ready and now.version == version else None

        return wait_until(f"version {version}", reached)

    def test_runtime_serves_its_own_node_and_reads_in_the_same_process(self):
        with weft.Agent(self.config) as agent:
            self.wait_ready(agent, 2)
            view = weft.WeightView(agent.status.weights_path)
            for version in (3, 4):
                self.publish(version)
                now = self.wait_ready(agent, version)
                self.assertEqual((now.agent_id, now.connected, now.serving, now.cause, now.committed.version),
                                 ("node-1", True, True, None, version))
                self.fleet.assert_bytes([0, 1], self.steps[version])
                with view.acquire(timeout=10) as lock:
                    self.assertEqual(lock.content, now.content)
                    self.assertTrue(numpy.array_equal(lock["w"].numpy().view(numpy.uint16), self.values))
            changed = sum(len(change) for change in view.changes(4, since=3))
            self.assertEqual(changed, len(self.values.reshape(-1)[4::31]))
            with self.assertRaises(weft.errors.BusyError):
                weft.Agent(self.config)
            self.assertFalse(agent.wait_ended(timeout=0.01))
            agent.stop()
            self.assertTrue(agent.wait_ended(timeout=0))
            self.assertEqual((agent.status.serving, agent.status.ready), (False, False))
            agent.stop()
        with self.assertRaisesRegex(weft.errors.ConfigError, "closed"):
            agent.status
        self.wait_gone()
        # Its directories are free: a process goes on where it was.
        self.fleet.start_agent(1)
        self.fleet.wait_joined([0, 1])
        self.publish(5)
        self.fleet.wait_clean([0, 1], 5)
        self.fleet.assert_bytes([0, 1], self.steps[5])

    def test_wrong_configuration_is_named(self):
        with self.assertRaisesRegex(weft.errors.ConfigError, "one of the two"):
            weft.Agent()
        with self.assertRaisesRegex(weft.errors.ConfigError, ":2: no: unknown key"):
            weft.Agent(text=f'weights.dir = "{self.work}"\nno = 1\n')
        with self.assertRaises(weft.Error):
            weft.Agent(self.work / "there-is-no-such-file.toml")

    def test_runtime_that_is_killed_while_it_applies_comes_back_with_its_node(self):
        def start(environment=None):
            child = subprocess.Popen([sys.executable, "-c", CHILD, self.config], stdout=subprocess.PIPE, text=True,
                                     env=dict(os.environ, **(environment or {})))
            self.addCleanup(lambda: (child.kill(), child.wait(), child.stdout.close()))
            self.assertEqual(child.stdout.readline(), "open\n")
            self.fleet.wait_joined([0, 1])
            return child

        child = start({"WEFT_TEST_KILL_AT": "agent.applying"})
        self.publish(3)
        self.assertEqual(child.wait(timeout=60), -signal.SIGKILL)
        self.wait_gone()
        start()
        self.fleet.wait_clean([0, 1], 3)
        self.fleet.assert_bytes([0, 1], self.steps[3])


class InC(EmbeddedAgent):
    test_runtime_serves_its_own_node_and_reads_in_the_same_process = None
    test_wrong_configuration_is_named = None
    test_runtime_that_is_killed_while_it_applies_comes_back_with_its_node = None

    def test_a_program_in_c_serves_a_node(self):
        child = subprocess.Popen([os.environ["WEFT_C_AGENT"], self.config, "3"], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (child.kill(), child.wait(), child.stdout.close(), child.stderr.close()))
        self.assertEqual(child.stdout.readline(), "open\n")
        self.fleet.wait_joined([0, 1])
        self.publish(3)
        self.assertEqual(child.stdout.readline(),
                         "node-1 clean version 3 committed 3 ready 1 connected 1 serving 1 cause 0\n")
        self.assertEqual(child.wait(timeout=60), 0, child.stderr.read())
        self.fleet.wait_clean([0], 3)
        self.fleet.assert_bytes([0, 1], self.steps[3])


if __name__ == "__main__":
    unittest.main(verbosity=2)
