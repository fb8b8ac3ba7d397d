# SPDX-License-Identifier: Apache-2.0
"""apply.mode = "double_buffer": two sets of files, readers stay on one whatever happens to the other."""

import signal
import unittest

from fleet import Fleet, same_bytes
from refit_test import STEPS, SystemTest


class DoubleBuffer(SystemTest):
    def start_double(self, **arguments):
        return self.start_fleet(double_buffer=True, **arguments)

    def sets(self, index):
        folder = self.fleet.weights_dir(index)
        return folder / "a", folder / "b"

    def test_three_refits_alternate_between_the_sets_bit_by_bit(self):
        fleet = self.start_double()
        expected = "b"
        for number, (base, target) in enumerate(
                [(STEPS[0], STEPS[1]), (STEPS[1], STEPS[2]), (STEPS[2], STEPS[0])], start=2):
            self.publish(base, target, number)
            fleet.wait_clean(range(3), number)
            fleet.assert_bytes(range(3), target)
            for index in range(3):
                folder = fleet.weights_dir(index)
                self.assertEqual((folder / "current").read_text(), expected + "\n")
                # The other set still holds what readers that were slow may have mapped.
                other = folder / ("a" if expected == "b" else "b")
                self.assertTrue(same_bytes(other, base))
                for path in fleet.weights(index).glob("*.safetensors"):
                    self.assertEqual(path.stat().st_mode & 0o777, 0o640, path)
            expected = "a" if expected == "b" else "b"
        # The second and third were made from journals, not copied again.
        log = fleet.log_text("node-0")
        self.assertEqual(log.count("copied=yes"), 1, log)
        self.assertEqual(log.count("journals=2"), 2, log)

    def test_agent_restarted_between_refits_goes_on_with_journals(self):
        fleet = self.start_double()
        self.publish(STEPS[0], STEPS[1], 2)
        fleet.wait_clean(range(3), 2)
        fleet.kill("node-1", signal.SIGTERM)
        fleet.start_agent(1)
        fleet.wait_clean([1], 2)
        self.publish(STEPS[1], STEPS[2], 3)
        fleet.wait_clean(range(3), 3)
        fleet.assert_bytes(range(3), STEPS[2])
        self.assertEqual(fleet.log_text("node-1").count("copied=yes"), 1)

    def test_standby_that_was_tampered_with_is_copied_again(self):
        fleet = self.start_double()
        self.publish(STEPS[0], STEPS[1], 2)
        fleet.wait_clean(range(3), 2)
        path = sorted((fleet.weights_dir(1) / "a").glob("*.safetensors"))[0]
        content = bytearray(path.read_bytes())
        content[-3] ^= 8
        path.write_bytes(bytes(content))
        self.publish(STEPS[1], STEPS[2], 3)
        fleet.wait_clean(range(3), 3)
        fleet.assert_bytes(range(3), STEPS[2])
        self.assertEqual(fleet.log_text("node-1").count("copied=yes"), 2)

    def kill_at(self, point, refits_before):
        """Killed at the point while it applies; readers' set is whole at that moment; then it ends well."""
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=2, double_buffer=True)
        fleet.start_coordinator()
        fleet.start_agent(0)
        fleet.start_agent(1, environment=None if refits_before else {"WEFT_TEST_KILL_AT": point})
        fleet.wait_joined(range(2))
        for number in range(refits_before):
            self.publish(STEPS[number], STEPS[number + 1], number + 2)
            fleet.wait_clean(range(2), number + 2)
        base, target = STEPS[refits_before], STEPS[refits_before + 1]
        version = refits_before + 2
        if refits_before:
            fleet.kill("node-1", signal.SIGTERM)
            fleet.start_agent(1, environment={"WEFT_TEST_KILL_AT": point})
            fleet.wait_clean([1], version - 1)
        self.publish(base, target, version)
        self.assertEqual(fleet.wait_exit("node-1"), -signal.SIGKILL)
        flipped = point == "standby.after_flip"
        self.assertTrue(same_bytes(fleet.weights(1), target if flipped else base), point)
        fleet.start_agent(1)
        fleet.wait_clean(range(2), version)
        fleet.assert_bytes(range(2), target)
        fleet.stop_all()

    def test_killed_while_the_standby_is_copied(self):
        self.kill_at("standby.copying", 0)

    def test_killed_while_a_journal_goes_into_a_copied_standby(self):
        self.kill_at("agent.applying", 0)

    def test_killed_while_the_standby_is_rebuilt_from_journals(self):
        self.kill_at("agent.applying", 1)

    def test_killed_before_the_first_journal_goes_into_the_standby(self):
        self.kill_at("standby.applying", 1)

    def test_killed_when_the_standby_is_built_and_not_stamped(self):
        self.kill_at("standby.built", 1)

    def test_killed_before_the_flip(self):
        self.kill_at("standby.before_flip", 1)

    def test_killed_after_the_flip(self):
        self.kill_at("standby.after_flip", 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
