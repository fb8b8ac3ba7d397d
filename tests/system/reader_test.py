# SPDX-License-Identifier: Apache-2.0
"""Processes that read the weights of a node while a fleet takes refits.

WEFT_READER is the program weft_weight_reader; WEFT_REFITS how many refits a case takes.
"""

import json
import os
import signal
import subprocess
import unittest

from fleet import DATA, Fleet
from refit_test import STEPS, SystemTest

READER = os.environ.get("WEFT_READER", "")
REFITS = int(os.environ.get("WEFT_REFITS", "4"))
SMALL = DATA / "policy-gradient-lr1e-6"


class Readers(SystemTest):
    def start_reader(self, mode, index=0):
        reader = subprocess.Popen([READER, mode, self.fleet.weights_dir(index)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(reader.kill)
        return reader

    def end_reader(self, reader):
        out, error = reader.communicate(timeout=120)
        self.assertEqual(reader.returncode, 0, f"{out}\n{error}")
        return json.loads(out)

    def hammer(self, double_buffer):
        steps = [SMALL / "step-10", SMALL / "step-11"]
        fleet = self.start_fleet(base=steps[0], agent_count=1, double_buffer=double_buffer)
        self.publish(steps[0], steps[1], 2)  # the first one gives the node its version
        fleet.wait_clean([0], 2)
        readers = [self.start_reader("hash"), self.start_reader("follow")]
        for number in range(REFITS):
            self.publish(steps[(number + 1) % 2], steps[number % 2], number + 3)
            fleet.wait_clean([0], number + 3)
        hashed, followed = [self.end_reader(reader) for reader in readers]
        self.assertEqual(hashed["mixtures"], 0)
        self.assertEqual(followed["mixtures"], 0)
        self.assertGreater(hashed["reads"], 0)
        self.assertGreater(followed["reads"] + followed["full_copies"], 0)
        self.assertGreater(len(hashed["versions"]), 1)
        return hashed, followed

    def test_no_reader_sees_a_mixture_while_files_change_in_place(self):
        self.hammer(False)

    def test_no_reader_sees_a_mixture_while_sets_are_switched(self):
        self.hammer(True)

    def test_killed_agent_leaves_nothing_to_read_until_it_is_back(self):
        self.fleet = fleet = Fleet(self.work / "fleet", base=STEPS[0], agent_count=1)
        fleet.start_coordinator()
        fleet.start_agent(0)
        fleet.wait_joined([0])
        self.publish(STEPS[0], STEPS[1], 2)
        fleet.wait_clean([0], 2)
        fleet.kill("node-0", signal.SIGTERM)
        fleet.start_agent(0, environment={"WEFT_TEST_KILL_AT": "agent.applying"})
        fleet.wait_clean([0], 2)
        reader = self.start_reader("hash")
        self.publish(STEPS[1], STEPS[2], 3)
        self.assertEqual(fleet.wait_exit("node-0"), -signal.SIGKILL)
        fleet.start_agent(0)
        fleet.wait_clean([0], 3)
        self.assertEqual(self.end_reader(reader)["mixtures"], 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
