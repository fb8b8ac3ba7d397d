# SPDX-License-Identifier: Apache-2.0
"""SIGKILL behind every durable record of an agent: its recovery table, cell by cell.

Whoever is killed starts again; then everybody is clean at one version bit by bit, and the next refit commits.
"""

import signal
import unittest

from fleet import Fleet, same_bytes, wait_until
from refit_test import STEPS, SystemTest


class KilledAgent(SystemTest):
    def is_at(self, index, step):
        return same_bytes(self.fleet.weights(index), STEPS[step])

    def kill_agent(self, point, joined=True):
        """Killed in a refit that both are planned for, or before it has joined."""
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=2)
        fleet.start_coordinator()
        fleet.start_agent(0)
        fleet.start_agent(1, environment={"WEFT_TEST_KILL_AT": point})
        if joined:
            fleet.wait_joined(range(2))
        publisher = fleet.start_publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(fleet.wait_exit("node-1"), -signal.SIGKILL, point)
        return publisher

    def settled(self, index):
        member = self.fleet.members().get(self.fleet.name(index), {})
        return member if member.get("state") in ("clean", "lagging", "needs_reseed") else None


class KillPoints(KilledAgent):
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

    def restart_after(self, point, ends_level=None):
        publisher = self.kill_agent(point, joined=point != "agent.after_epoch")
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
        fleet.wait_clean(range(2), 2)
        fleet.assert_bytes(range(2), STEPS[1])
        self.assertEqual(list((fleet.state(1) / "spool").glob("e*")).__len__(), 1)  # the retained one


class FoundAtTheStart(KilledAgent):
    """What a killed agent's directory holds, and what somebody did to it before the next start."""

    def restart(self, point, damage):
        """node-1 once it has settled: killed at `point`, its directories damaged, started again."""
        publisher = self.kill_agent(point)
        publisher.wait(timeout=120)
        self.fleet.processes.pop("publisher", None)
        damage()
        self.fleet.start_agent(1)
        return wait_until("node-1 is settled", lambda: self.settled(1), 60)

    def needs_reseed(self, point, damage, code):
        member = self.restart(point, damage)
        self.assertEqual((member["state"], member["ready"]), ("needs_reseed", False))
        self.assertEqual(member["cause"]["code"], code, member)
        self.still_needs_reseed()

    def still_needs_reseed(self):
        """Another start changes nothing, and the fleet goes on without it."""
        fleet = self.fleet
        fleet.kill("node-1")
        wait_until("its loss is known", lambda: not fleet.members()["node-1"]["connected"])
        fleet.start_agent(1)
        fleet.wait_state(1, "needs_reseed")
        fleet.wait_clean([0], 2)
        self.publish(STEPS[1], STEPS[2], 3)
        fleet.wait_clean([0], 3)
        fleet.assert_bytes([0], STEPS[2])

    def flip(self, path, place):
        """One bit, `place` between 0 and 1 of the way through the file."""
        data = bytearray(path.read_bytes())
        data[int(len(data) * place)] ^= 4
        path.write_bytes(data)

    def weight_file(self):
        return sorted(self.fleet.weights(1).glob("*.safetensors"))[0]

    def biggest_journal_file(self):
        files = [p for p in (self.fleet.state(1) / "journal").rglob("*") if p.is_file()]
        return max(files, key=lambda p: p.stat().st_size)

    def test_a_journal_that_was_damaged_behind_commit_needs_a_reseed(self):
        self.needs_reseed("agent.after_commit", lambda: self.flip(self.biggest_journal_file(), 0.5), "needs_reseed")

    def test_a_state_log_with_a_bad_record_before_good_ones_needs_a_reseed(self):
        def damage():
            # Preallocated: the last bytes that are not zero belong to COMMIT, the first third to the first records.
            path = self.fleet.state(1) / "state"
            self.flip(path, len(path.read_bytes().rstrip(b"\0")) / 3 / path.stat().st_size)
        self.needs_reseed("agent.after_commit", damage, "needs_reseed")

    def test_a_weight_file_of_another_size_needs_a_reseed(self):
        """Still a checkpoint: its header got eight blanks more."""
        def damage():
            data = self.weight_file().read_bytes()
            header = int.from_bytes(data[:8], "little")
            self.weight_file().write_bytes(
                (header + 8).to_bytes(8, "little") + data[8:8 + header] + b" " * 8 + data[8 + header:])
        self.needs_reseed("agent.after_begin", damage, "inconsistent_checkpoint")

    def test_what_is_no_checkpoint_any_more_is_named_and_the_agent_does_not_start(self):
        self.kill_agent("agent.after_begin").wait(timeout=120)
        with open(self.weight_file(), "ab") as out:
            out.write(b"x")
        self.fleet.start_agent(1)
        self.assertEqual(self.fleet.wait_exit("node-1"), 11)
        self.assertRegex(self.fleet.log_text("node-1"), f"format.*{self.weight_file().name}: trailing bytes")

    def test_a_weight_file_with_another_time_is_verified_and_clean(self):
        member = self.restart("agent.after_prepared", lambda: self.weight_file().touch())
        self.assertIn(member["state"], ("clean", "lagging"))
        if member["state"] == "clean":
            self.fleet.wait_clean([1], 2)
            self.assertTrue(self.is_at(1, 1))
        else:
            self.assertTrue(self.is_at(1, 0))

    def test_a_weight_file_with_another_bit_is_found_before_anything_is_applied(self):
        self.needs_reseed("agent.after_begin", lambda: self.flip(self.weight_file(), 0.7), "base_mismatch")

    def test_killed_behind_reseed(self):
        """Its base is another one: it says so, durably."""
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=2)
        fleet.start_coordinator()
        fleet.start_agent(0)
        fleet.prepare_agent(1)
        self.flip(self.weight_file(), 0.7)
        fleet.start_agent(1, environment={"WEFT_TEST_KILL_AT": "agent.after_reseed"})
        fleet.wait_joined(range(1))
        self.publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(fleet.wait_exit("node-1"), -signal.SIGKILL)
        fleet.start_agent(1)
        fleet.wait_state(1, "needs_reseed")
        self.still_needs_reseed()


if __name__ == "__main__":
    unittest.main(verbosity=2)
