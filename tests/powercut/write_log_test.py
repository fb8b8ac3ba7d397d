# SPDX-License-Identifier: Apache-2.0
"""What the recorder writes down is what the disks behind a cut are built from."""

import pathlib
import tempfile
import unittest

from recorded_disk import Recorder
from write_log import WriteLog, entry_count

SECTOR = 512


class Disks(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.base, self.out = self.folder / "base", self.folder / "out"
        self.base.write_bytes(bytes(64 * SECTOR))
        self.log = Recorder(self.folder / "log")

    def write(self, sector, fill, sectors=1):
        self.log.note(sector * SECTOR, bytes([fill]) * sectors * SECTOR)

    def built(self, to, **how):
        lost = WriteLog(self.folder / "log").build(self.base, self.out, to, **how)
        data = self.out.read_bytes()
        return lost, [data[at] for at in range(0, len(data), SECTOR)]

    def test_everything_up_to_the_cut_is_there_and_nothing_behind_it(self):
        for number in range(8):
            self.write(number, number + 1)
        self.assertEqual(entry_count(self.folder / "log"), 8)
        lost, sectors = self.built(5)
        self.assertEqual((lost, sectors[:8]), (0, [1, 2, 3, 4, 5, 0, 0, 0]))

    def test_only_what_came_after_the_last_flush_is_ever_lost(self):
        for number in range(4):
            self.write(number, 7)
        self.log.note(0, b"", flags=1)
        for number in range(4, 24):
            self.write(number, 7)
        losses = set()
        for seed in range(20):
            lost, sectors = self.built(25, seed=seed)
            self.assertEqual(sectors[:4], [7] * 4)
            self.assertEqual(sectors[4:24].count(0), lost)
            losses.add(lost)
        self.assertGreater(len(losses), 5)

    def test_a_torn_write_is_there_up_to_a_sector_in_its_middle(self):
        self.write(0, 9, sectors=16)
        torn = set()
        for seed in range(30):
            lost, sectors = self.built(1, seed=seed, tear=True)
            there = sectors[:16].count(9)
            self.assertEqual(sectors[:there], [9] * there)
            if lost:
                self.assertTrue(0 < there < 16, there)
                torn.add(there)
        self.assertGreater(len(torn), 3)


if __name__ == "__main__":
    unittest.main()
