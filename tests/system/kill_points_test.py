# SPDX-License-Identifier: Apache-2.0
"""SIGKILL behind every durable record: the recovery table of an agent and of a coordinator, cell by cell.

Whoever is killed starts again; then everybody is clean at one version bit by bit, and the next refit commits.
"""

import signal
import unittest

from fleet import Fleet, same_bytes, wait_until
from refit_test import STEPS, SystemTest


class KillPoints(SystemTest):
    def is_at(self, index, step):
        return same_bytes(self.fleet.weights(index), STEPS[step])

    def end_at_one_version(self, indices, version):
        """`version` 1 is the base: nobody is told it, so it is looked at in the bytes only."""
        fleet = self.fleet
        if version > 1:
            fleet.wait_clean(indices, version)
        for index in indices:
            self.assertTrue(self.is_at(index, version - 1), f"node {index}")

    def kill_agent(self, point, double_buffer=False):
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=2, double_buffer=double_buffer)
        fleet.start_coordinator()
        fleet.start_agent(0)
        fleet.start_agent(1, environment={"WEFT_TEST_KILL_AT": point})
        publisher = fleet.start_publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(fleet.wait_exit("node-1"), -signal.SIGKILL, point)
        return publisher

    def finish(self, publisher):
        """The publisher may have given up or not; one way or another the fleet gets on."""
        fleet = self.fleet
        publisher.wait(timeout=120)
        fleet.processes.pop("publisher", None)
        version = fleet.status()["version"]
        if version != 2:
            fleet.wait_joined(range(2), 60)
            self.publish(STEPS[0], STEPS[1], 2)
        fleet.wait_clean([0], 2)
        # Who was left out of it is behind by one: only a whole copy would bring it level.
        member = wait_until("node-1 is settled", lambda: self.settled(1), 60)
        if member["state"] == "clean":
            self.assertEqual(member["version"], 2)
            self.assertTrue(self.is_at(1, 1))
        else:
            # Ready or not: it may have been level when it started and be one version behind now (ready.max_lag).
            self.assertTrue(self.is_at(1, 0))
        self.assertTrue(self.is_at(0, 1))
        self.publish(STEPS[1], STEPS[2], 3)
        fleet.wait_clean([0], 3)
        self.assertTrue(self.is_at(0, 2))

    def settled(self, index):
        member = self.fleet.members().get(self.fleet.name(index), {})
        return member if member.get("state") in ("clean", "lagging", "needs_reseed") else None

    def restart_after(self, point, ends_level=None):
        publisher = self.kill_agent(point)
        self.fleet.start_agent(1)
        self.finish(publisher)
        if ends_level:
            self.fleet.wait_clean([1], 3)
            self.assertTrue(self.is_at(1, 2))

    def test_agent_killed_behind_epoch(self):
        self.restart_after("agent.after_epoch")

    def test_agent_killed_behind_begin(self):
        self.restart_after("agent.after_begin")

    def test_agent_killed_behind_prepared(self):
        self.restart_after("agent.after_prepared")

    def test_agent_killed_behind_commit(self):
        self.restart_after("agent.after_commit", ends_level=True)

    def test_agent_killed_before_its_data_are_synced(self):
        self.restart_after("agent.before_data_sync", ends_level=True)

    def test_agent_killed_behind_applied(self):
        # The first APPLIED is the one that names the base; the refit's is the next.
        self.restart_after("agent.after_applied")

    def test_agent_killed_behind_abort(self):
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=2)
        fleet.start_coordinator()
        fleet.start_agent(0)
        fleet.start_agent(1, environment={"WEFT_TEST_KILL_AT": "agent.after_abort"})
        fleet.wait_joined(range(2))
        error = self.refuse("corrupt_payload", STEPS[0], STEPS[1], 2, environment={"WEFT_TEST_CORRUPT_FRAME": "0"})
        self.assertTrue(error)
        self.assertEqual(fleet.wait_exit("node-1"), -signal.SIGKILL)
        fleet.start_agent(1)
        fleet.wait_joined(range(2))
        self.publish(STEPS[0], STEPS[1], 2)
        self.end_at_one_version(range(2), 2)
        self.assertEqual(list((fleet.state(1) / "spool").glob("e*")).__len__(), 1)  # the retained one

    def kill_coordinator(self, point):
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=2)
        # It may die before anybody can ask it anything.
        state = fleet.work / "coordinator"
        state.mkdir(exist_ok=True)
        config = fleet.work / "coordinator.toml"
        config.write_text(f'fleet.listen = "{fleet.address}"\nstate.dir = "{state}"\n')
        fleet.start_process("coordinator", ["coordinator", "--config", config], {"WEFT_TEST_KILL_AT": point})
        for index in range(2):
            fleet.start_agent(index)
        publisher = fleet.start_publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(fleet.wait_exit("coordinator"), -signal.SIGKILL, point)
        fleet.start_coordinator()
        fleet.wait_joined(range(2), 60)
        publisher.wait(timeout=120)
        fleet.processes.pop("publisher", None)
        if fleet.status()["version"] != 2:
            self.publish(STEPS[0], STEPS[1], 2)
        self.end_at_one_version(range(2), 2)
        self.publish(STEPS[1], STEPS[2], 3)
        self.end_at_one_version(range(2), 3)

    def test_coordinator_killed_behind_fleet(self):
        self.kill_coordinator("coordinator.after_fleet")

    def test_coordinator_killed_behind_start(self):
        self.kill_coordinator("coordinator.after_start")

    def test_coordinator_killed_behind_the_base_content(self):
        self.kill_coordinator("coordinator.after_content")

    def test_coordinator_killed_behind_a_verdict(self):
        self.kill_coordinator("coordinator.after_verdict")

    def test_coordinator_killed_behind_an_acknowledgement(self):
        self.kill_coordinator("coordinator.after_acked")

    def test_coordinator_killed_when_a_refit_is_forgotten(self):
        self.kill_coordinator("coordinator.after_forgotten")


if __name__ == "__main__":
    unittest.main(verbosity=2)
