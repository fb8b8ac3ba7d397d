# SPDX-License-Identifier: Apache-2.0
"""SIGKILL to a coordinator around every record of its decision log, under a refit of `weft publish`.

It starts again over the same log; then everybody is clean at one version bit by bit, and the next refit commits.
"""

import json
import shutil
import signal
import unittest

from fleet import Fleet, wait_until
from refit_test import STEPS, SystemTest

STARTS = ("coordinator.before_start", "coordinator.after_start")


class CoordinatorKilled(SystemTest):
    def kill(self, point):
        """The publisher's exit code and the epoch of the coordinator that came after the killed one.

        Both agents have joined before the refit is planned: nobody catches up one that was too late for it.
        """
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=2)
        at_start = point in STARTS  # before anybody can ask it anything
        start = fleet.launch_coordinator if at_start else fleet.start_coordinator
        start({"WEFT_TEST_KILL_AT": point})
        for index in range(2):
            fleet.start_agent(index)
        if not at_start:
            fleet.wait_joined(range(2))
            publisher = fleet.start_publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(fleet.wait_exit("coordinator"), -signal.SIGKILL, point)
        fleet.start_coordinator()
        fleet.wait_joined(range(2), 60)
        if at_start:
            publisher = fleet.start_publish(STEPS[0], STEPS[1], 2)
        code = publisher.wait(timeout=120)
        fleet.processes.pop("publisher", None)
        return code, fleet.status()["epoch"]

    def finish(self, committed=None):
        """One version everywhere, which is the target if the decision was in the log; then the next refit."""
        fleet = self.fleet
        version = fleet.status()["version"]
        if committed is not None:
            self.assertEqual(version == 2, committed)
        if version != 2:
            fleet.assert_bytes(range(2), STEPS[0])
            self.publish(STEPS[0], STEPS[1], 2)
        fleet.wait_clean(range(2), 2)
        fleet.assert_bytes(range(2), STEPS[1])
        self.publish(STEPS[1], STEPS[2], 3)
        fleet.wait_clean(range(2), 3)
        fleet.assert_bytes(range(2), STEPS[2])

    def test_before_its_first_start_is_on_disk(self):
        _, epoch = self.kill("coordinator.before_start")
        self.assertEqual(epoch, 1)
        self.finish()

    def test_behind_its_start(self):
        _, epoch = self.kill("coordinator.after_start")
        self.assertEqual(epoch, 2)
        self.finish()

    def test_behind_the_base_content(self):
        self.kill("coordinator.after_content")
        self.finish()

    def test_behind_a_verdict(self):
        code, _ = self.kill("coordinator.after_verdict")
        self.assertEqual(code, 0)
        self.finish(committed=True)

    def test_behind_an_acknowledgement(self):
        code, _ = self.kill("coordinator.after_acked")
        self.assertEqual(code, 0)
        self.finish(committed=True)

    def test_when_a_refit_is_forgotten(self):
        self.kill("coordinator.after_forgotten")
        self.finish(committed=True)

    def test_restarts_at_a_later_epoch_without_losing_the_version(self):
        """Killed at a start over a log that has decisions: neither half of that rewrite loses one."""
        self.start_fleet(agent_count=1)
        fleet = self.fleet
        self.publish(STEPS[0], STEPS[1], 2)
        fleet.wait_clean([0], 2)
        identity = fleet.status()["fleet"]
        fleet.kill("coordinator")
        for point, epoch in (("coordinator.before_start", 2), ("coordinator.after_start", 4)):
            fleet.launch_coordinator({"WEFT_TEST_KILL_AT": point})
            self.assertEqual(fleet.wait_exit("coordinator"), -signal.SIGKILL, point)
            fleet.start_coordinator()
            status = fleet.status()
            self.assertEqual((status["version"], status["fleet"], status["epoch"]), (2, identity, epoch))
            fleet.kill("coordinator")
        fleet.start_coordinator()
        fleet.wait_clean([0], 2)
        self.publish(STEPS[1], STEPS[2], 3)
        fleet.wait_clean([0], 3)
        fleet.assert_bytes([0], STEPS[2])


class LostLog(SystemTest):
    """The coordinator dies behind a COMMIT that it has told nobody, and its disk with it."""

    def lose(self):
        """The refit that two agents are in doubt about."""
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=2)
        fleet.start_coordinator({"WEFT_TEST_KILL_AT": "coordinator.after_decision"})
        for index in range(2):
            fleet.start_agent(index)
        fleet.wait_joined(range(2))
        fleet.start_publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(fleet.wait_exit("coordinator"), -signal.SIGKILL)
        fleet.kill("publisher")
        shutil.rmtree(fleet.work / "coordinator")
        # What an operator sees first: a new log is another fleet's, and members tell it so, not too often.
        fleet.start_coordinator()
        wait_until("the members refuse it", lambda: "denied" in fleet.log_text("node-0") and "denied" in fleet.log_text("node-1"))
        self.assertEqual(fleet.status()["members"], [])
        fleet.kill("coordinator")
        for index in range(2):
            fleet.assert_bytes([index], STEPS[0])
        return refit_in_doubt(fleet.state(0))

    def resolve(self, refit, verdict, *more):
        return self.fleet.run("coordinator", "--config", self.fleet.work / "coordinator.toml", "--resolve", refit,
                              verdict, "--log-lost", "--json", *more)

    def go_on(self, version):
        fleet = self.fleet
        fleet.start_coordinator()
        if version == 1:
            fleet.wait_clean(range(2), 1)
            fleet.assert_bytes(range(2), STEPS[0])
            self.publish(STEPS[0], STEPS[1], 2)
        fleet.wait_clean(range(2), 2)
        fleet.assert_bytes(range(2), STEPS[1])
        self.publish(STEPS[1], STEPS[2], 3)
        fleet.wait_clean(range(2), 3)
        fleet.assert_bytes(range(2), STEPS[2])

    def test_an_operator_commits_what_the_members_are_prepared_for(self):
        refit = self.lose()
        done = self.resolve(refit, "commit", "--wait", "8s")
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual((answer["members"], answer["version"]), (2, 2))
        self.go_on(2)

    def test_an_operator_aborts_it(self):
        refit = self.lose()
        self.assertEqual(self.resolve(refit, "abort", "--wait", "8s").returncode, 0)
        self.go_on(1)

    def test_it_is_refused_while_a_coordinator_runs_and_when_nobody_is_prepared(self):
        fleet = self.start_fleet(agent_count=1)
        refused = self.resolve("e1-00000000000000aa-a1", "commit")
        self.assertEqual(json.loads(refused.stdout)["error"]["code"], "busy")
        fleet.kill("coordinator")
        refused = self.resolve("e1-00000000000000aa-a1", "commit", "--wait", "4s")
        self.assertEqual(json.loads(refused.stdout)["error"]["code"], "peer_lost")
        fleet.start_coordinator()
        fleet.wait_joined([0])
        self.publish(STEPS[0], STEPS[1], 2)


def refit_in_doubt(state):
    """The name of the refit that an agent holds spooled and has not applied."""
    names = [path.name for path in (state / "spool").iterdir()]
    assert len(names) == 1, names
    return names[0]


if __name__ == "__main__":
    unittest.main(verbosity=2)
