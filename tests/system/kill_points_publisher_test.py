# SPDX-License-Identifier: Apache-2.0
"""SIGKILL to who publishes, at every step of a refit: `weft publish`, and one trainer rank of two.

The agents are then clean at one version, N before the decision and N+1 behind it, and publishing the same version again is
success whichever it was.
"""

import signal
import unittest

from fleet import same_bytes, wait_until
from publisher_test import RankTest
from refit_test import STEPS, SystemTest


class PublishKilled(SystemTest):
    """`weft publish`, with two agents."""

    def kill(self, point):
        fleet = self.start_fleet(agent_count=2)
        result = fleet.publish(STEPS[0], STEPS[1], 2, environment={"WEFT_TEST_KILL_AT": point})
        self.assertEqual(result.returncode, -signal.SIGKILL, point)

    def settle(self):
        """The version that everybody ends at."""
        fleet = self.fleet
        wait_until("no refit is open", lambda: not fleet.status()["refit"])
        version = fleet.status()["version"]
        if version == 2:
            fleet.wait_clean(range(2), 2)
        fleet.assert_bytes(range(2), STEPS[1 if version == 2 else 0])
        return version

    def go_on(self, version):
        answer = self.publish(STEPS[0], STEPS[1], 2)
        self.assertEqual(answer["already_committed"], version == 2)
        self.fleet.wait_clean(range(2), 2)
        self.publish(STEPS[1], STEPS[2], 3)
        self.fleet.wait_clean(range(2), 3)
        self.fleet.assert_bytes(range(2), STEPS[2])

    def stays_at_the_base(self, point):
        self.kill(point)
        self.assertNotEqual(self.settle(), 2)
        self.go_on(1)

    def reaches_the_target(self, point):
        self.kill(point)
        wait_until("the decision is applied", lambda: self.settle() == 2)
        self.go_on(2)

    def test_behind_begin(self):
        self.stays_at_the_base("publisher.after_begin")

    def test_with_the_plan(self):
        self.stays_at_the_base("publisher.planned")

    def test_before_the_seal(self):
        self.stays_at_the_base("publisher.before_seal")

    def test_behind_the_seal(self):
        """Whether its loss is noticed before the votes are in decides; both ends are right, a mixture is not."""
        self.kill("publisher.after_seal")
        self.go_on(self.settle())

    def test_when_the_decision_is_heard(self):
        self.reaches_the_target("publisher.decision")

    def test_behind_the_move_of_its_baseline(self):
        self.reaches_the_target("publisher.after_baseline")


class RankKilled(RankTest):
    """Rank 1 of 2, with three agents. It comes back with the checkpoint of what was committed, as trainers do."""

    def kill(self, point):
        """The last answer of the rank that lives."""
        self.ranks = [self.start_rank(0, 2, self.base), self.start_rank(1, 2, self.base, {"WEFT_TEST_KILL_AT": point})]
        for rank in self.ranks:
            self.assertEqual(rank.answer(), "ok")
        self.model.step()
        self.model.export(self.work / "step-2")
        self.say_step(2)
        wait_until("rank 1 is gone", lambda: self.ranks[1].process.poll() is not None, 60)
        self.assertEqual(self.ranks[1].process.returncode, -signal.SIGKILL)
        answers = [self.ranks[0].answer() for _ in range(len(self.model.shard(0, 2)) + 2)]
        return answers[-1]

    def go_on(self, committed):
        version = 2 if committed else 1
        if committed:
            self.fleet.wait_clean(range(3), 2)
        self.fleet.assert_bytes(range(3), self.work / f"step-{version}")
        self.ranks[1].close()
        self.ranks[1] = self.start_rank(1, 2, self.work / f"step-{version}")
        self.assertEqual(self.ranks[1].answer(), "ok")
        self.step(version + 1)

    def test_rank_killed_with_the_plan_ends_the_refit(self):
        self.assertRegex(self.kill("publisher.planned"), "^error ")
        self.go_on(committed=False)

    def test_rank_killed_behind_its_seal_ends_the_refit_or_is_committed(self):
        self.go_on(committed=self.kill("publisher.after_seal").startswith("ok"))

    def test_rank_killed_when_it_hears_the_decision_is_committed(self):
        self.assertRegex(self.kill("publisher.decision"), "^ok ")
        self.go_on(committed=True)

    def test_rank_killed_behind_the_move_of_its_baseline_is_committed(self):
        self.assertRegex(self.kill("publisher.after_baseline"), "^ok ")
        self.go_on(committed=True)


class DurableRankKilled(RankKilled):
    """The same with the baselines on disk: rank 1 is started again as it was, with the first checkpoint."""

    def start_rank(self, number, size, base, environment=None):
        directory = str(self.work / "baselines")
        return super().start_rank(number, size, self.base, dict(environment or {}, WEFT_RANK_BASELINE_DIR=directory))

    def test_rank_killed_before_its_values_are_recorded_ends_the_refit(self):
        self.assertRegex(self.kill("publisher.before_record_pending"), "^error ")
        self.go_on(committed=False)

    def test_rank_killed_with_values_pending_drops_them(self):
        self.assertRegex(self.kill("publisher.after_record_pending"), "^error ")
        self.go_on(committed=False)

    def test_rank_killed_half_way_through_the_move_is_committed(self):
        self.assertRegex(self.kill("publisher.half_moved"), "^ok ")
        self.go_on(committed=True)

    # The other points say nothing new about the disk.
    test_rank_killed_with_the_plan_ends_the_refit = None
    test_rank_killed_behind_its_seal_ends_the_refit_or_is_committed = None


if __name__ == "__main__":
    unittest.main(verbosity=2)
