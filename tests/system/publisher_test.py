# SPDX-License-Identifier: Apache-2.0
"""Trainer ranks as processes of their own publish one model together, through weft::Publisher.

Every rank publishes its part of a small transformer layer (publisher_model.py); after each
step every agent's files are compared with a full export by cmp.
"""

import os
import pathlib
import queue
import subprocess
import tempfile
import threading
import unittest

import numpy

from fleet import Fleet, wait_until
from publisher_model import HIDDEN, Model, box_file, to_bf16, write_checkpoint

RANK = os.environ.get("WEFT_TRAIN_RANK", "")
C_PUBLISHER = os.environ.get("WEFT_C_PUBLISHER", "")
C_READER = os.environ.get("WEFT_C_READER", "")


class Rank:
    """One trainer process; answers are read by a thread so that every wait has a deadline."""

    def __init__(self, work, number, arguments, environment=None):
        self.number = number
        self.folder = work / f"rank-{number}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log = open(work / f"rank-{number}.log", "ab")
        self.process = subprocess.Popen([RANK, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, env=dict(os.environ, **(environment or {})))
        self.answers = queue.Queue()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.answers.put(line.strip())
        self.answers.put("gone")

    def say(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def answer(self, seconds=90):
        return self.answers.get(timeout=seconds)

    def put_all(self, shard, names=None):
        for name in names or shard:
            verb, array = shard[name]
            path = self.folder / name
            path.write_bytes(numpy.ascontiguousarray(array).tobytes())
            self.say(f"{verb} {name} {path}")

    def close(self):
        if self.process.poll() is None:
            try:
                self.process.stdin.close()
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(timeout=20)
        self.reader.join(timeout=20)
        for stream in (self.process.stdin, self.process.stdout):
            try:
                stream.close()
            except BrokenPipeError:
                pass
        self.log.close()


class RankTest(unittest.TestCase):
    """Three agents, and as many ranks as a test starts."""

    coordinator_toml = ""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="weft-ranks-")
        self.addCleanup(temporary.cleanup)
        self.work = pathlib.Path(temporary.name)
        self.model = Model(7)
        self.base = self.model.export(self.work / "step-1")
        self.fleet = Fleet(self.work / "fleet", self.base, agent_count=3, coordinator_toml=self.coordinator_toml)
        self.addCleanup(self.fleet.stop_all)
        self.fleet.start()
        self.ranks = []

    def tearDown(self):
        for rank in self.ranks:
            rank.close()
        result = self._outcome.result
        if any(test is self for test, _ in result.errors + result.failures):
            for log in sorted(self.work.glob("**/*.log")):
                print(f"--- {log.name}\n{log.read_text(errors='replace')[-5000:]}")

    def start_rank(self, number, size, base, environment=None):
        files = []
        for each in range(size):
            files.append(self.work / f"boxes-{size}-{each}")
            files[-1].write_text(box_file(each, size))
        return Rank(self.work, number, [self.fleet.address, base, number, *files], environment)

    def start_ranks(self, size, base):
        self.ranks = [self.start_rank(number, size, base) for number in range(size)]
        for rank in self.ranks:
            self.assertEqual(rank.answer(), "ok")

    def say_step(self, version, names=None):
        """Every rank: begin, all of its tensors, commit. All answers but the last one of each."""
        size = len(self.ranks)
        for rank in self.ranks:
            rank.say(f"begin {version}")
        for rank in self.ranks:
            shard = self.model.shard(rank.number, size)
            rank.put_all(shard, names(shard) if names else None)
            rank.say("commit")

    def step(self, version, names=None):
        self.model.step()
        target = self.model.export(self.work / f"step-{version}")
        self.say_step(version, names)
        totals = {"changed": 0, "total": 0}
        for rank in self.ranks:
            shard = self.model.shard(rank.number, len(self.ranks))
            for _ in range(len(shard) + 1):
                self.assertEqual(rank.answer(), "ok")
            words = rank.answer().split()
            self.assertEqual(words[0], "ok", words)
            report = dict(word.split("=") for word in words[1:])
            self.assertEqual(report["version"], str(version))
            for key in totals:
                totals[key] += int(report[key])
            # The baseline and little more.
            self.assertLess(int(report["pending"]), 0.35 * int(report["baseline"]))
        elements = sum(array.size for array in self.model.tensors.values()) + self.model.master.size + HIDDEN
        self.assertEqual(totals["total"], elements)
        self.fleet.wait_clean(range(3), version)
        self.fleet.assert_bytes(range(3), target)
        return totals


class TurnsOfRanks(RankTest):
    """More ranks than an agent may have trees open for."""

    coordinator_toml = "tree.open_max = 2"

    def test_eight_ranks_publish_bit_by_bit_with_two_trees_open(self):
        self.start_ranks(8, self.base)
        self.step(2)
        # The one whose turn comes last begins first.
        self.ranks.reverse()
        self.step(3)

    def test_a_rank_that_dies_in_its_turn_ends_the_refit_and_the_others_go_on(self):
        self.start_ranks(4, self.base)
        self.step(2)
        self.ranks[0].close()
        self.ranks[0] = self.start_rank(0, 4, self.work / "step-2", {"WEFT_TEST_KILL_AT": "publisher.before_seal"})
        self.assertEqual(self.ranks[0].answer(), "ok")
        self.model.step()
        self.say_step(3)
        for rank in self.ranks[1:]:
            answers = [rank.answer() for _ in range(len(self.model.shard(rank.number, 4)) + 2)]
            self.assertTrue(answers[-1].startswith("error"), answers)
        self.ranks[0].close()
        self.ranks[0] = self.start_rank(0, 4, self.work / "step-2")
        self.assertEqual(self.ranks[0].answer(), "ok")
        self.step(3)


class TrainerRanks(RankTest):
    def test_two_ranks_publish_every_step_bit_by_bit(self):
        self.start_ranks(2, self.base)
        for version in (2, 3, 4):
            totals = self.step(version)
            self.assertGreater(totals["changed"], 1000)
        # The order in which tensors come is the trainer's.
        self.step(5, names=lambda shard: list(reversed(list(shard))))
        # An agent comes back under the ranks' lattice.
        self.fleet.kill("node-1")
        wait_until("the loss is known", lambda: not self.fleet.members()["node-1"]["connected"])
        self.fleet.start_agent(1)
        wait_until("it is back", lambda: self.fleet.members()["node-1"]["connected"])
        self.fleet.wait_clean([1], 5)
        self.step(6)

    def test_a_rank_that_dies_before_the_decision_ends_the_refit_and_the_next_one_succeeds(self):
        self.start_ranks(4, self.base)
        self.step(2)
        self.ranks[2].close()
        self.ranks[2] = self.start_rank(2, 4, self.work / "step-2",
                                        {"WEFT_TEST_KILL_AT": "publisher.before_seal"})
        self.assertEqual(self.ranks[2].answer(), "ok")
        self.model.step()
        self.say_step(3)
        for rank in self.ranks:
            shard = self.model.shard(rank.number, 4)
            last = [rank.answer() for _ in range(len(shard) + 2)][-1] if rank.number != 2 else None
            if last is not None:
                self.assertTrue(last.startswith("error"), last)
        wait_until("rank 2 is gone", lambda: self.ranks[2].process.poll() is not None)
        self.fleet.assert_bytes(range(3), self.work / "step-2")
        self.ranks[2].close()
        self.ranks[2] = self.start_rank(2, 4, self.work / "step-2")  # with what was committed
        self.assertEqual(self.ranks[2].answer(), "ok")
        # The same version again, with what the trainer has by now.
        self.step(3)

    def test_what_is_not_put_is_named(self):
        self.start_ranks(2, self.base)
        self.model.step()
        self.ranks[0].say("begin 2")
        self.ranks[1].say("begin 2")
        self.assertEqual([rank.answer() for rank in self.ranks], ["ok", "ok"])
        shard = self.model.shard(0, 2)
        self.ranks[0].put_all({"down": shard["down"]})
        self.assertEqual(self.ranks[0].answer(), "ok")
        for line, expected in (("commit", "qkv|embed|gate_up|o"), (f"put down {self.ranks[0].folder / 'down'}", "before"),
                               ("put nothing /dev/null", "no shard tensor"), ("put qkv /dev/null", "bytes")):
            self.ranks[0].say(line)
            self.assertRegex(self.ranks[0].answer(), f"error config .*({expected})")
        self.ranks[0].say("abort")
        self.assertEqual(self.ranks[0].answer(), "ok")
        self.ranks[1].say("partial")
        self.assertRegex(self.ranks[1].answer(), "error")
        self.step(2)

    def lose_coordinator(self, point):
        """The last answer of every rank when the coordinator dies there and is started again."""
        self.fleet.kill("coordinator")
        self.fleet.start_coordinator({"WEFT_TEST_KILL_AT": point})
        self.fleet.wait_joined(range(3))
        self.start_ranks(2, self.base)
        self.model.step()
        self.model.export(self.work / "step-2")
        self.say_step(2)
        self.fleet.wait_exit("coordinator")
        self.fleet.start_coordinator()
        return [[rank.answer() for _ in range(len(self.model.shard(rank.number, 2)) + 2)][-1] for rank in self.ranks]

    def test_a_decision_that_is_in_the_log_is_heard_from_the_next_coordinator(self):
        for answer in self.lose_coordinator("coordinator.after_decision"):
            self.assertRegex(answer, "ok changed=.* version=2$")
        self.fleet.wait_clean(range(3), 2)
        self.fleet.assert_bytes(range(3), self.work / "step-2")
        self.step(3)

    def test_without_a_decision_in_the_log_the_values_are_dropped_and_published_again(self):
        for answer in self.lose_coordinator("coordinator.before_decision"):
            self.assertRegex(answer, "^error ")
        self.fleet.wait_clean(range(3), 1)
        self.fleet.assert_bytes(range(3), self.base)
        self.step(2)

    def test_what_did_not_change_need_not_be_put(self):
        self.start_ranks(2, self.base)
        down = self.model.tensors["down"].reshape(-1)
        down[::7] ^= 1
        target = self.model.export(self.work / "step-2")
        for rank in self.ranks:
            rank.say("begin 2")
            rank.put_all({"down": self.model.shard(rank.number, 2)["down"]})
            rank.say("partial")
        for rank in self.ranks:
            self.assertEqual([rank.answer(), rank.answer()], ["ok", "ok"])
            self.assertRegex(rank.answer(), "ok changed=")
        self.fleet.wait_clean(range(3), 2)
        self.fleet.assert_bytes(range(3), target)
        self.step(3)

    def test_boxes_with_a_gap_are_refused_by_tensor_and_range(self):
        files = [self.work / "one", self.work / "two"]
        files[0].write_text(box_file(0, 2))
        files[1].write_text("\n".join(line for line in box_file(1, 2).splitlines() if '-> "down"' not in line) + "\n")
        rank = Rank(self.work, 0, [self.fleet.address, self.base, 0, *files])
        self.ranks.append(rank)
        self.assertRegex(rank.answer(), r"error config .*a gap in tensor down elements \[512, 1024\)")


class CInterface(unittest.TestCase):
    def test_a_program_in_c_publishes(self):
        with tempfile.TemporaryDirectory(prefix="weft-c-") as name:
            work = pathlib.Path(name)
            values = to_bf16(numpy.random.default_rng(3).normal(0, 0.02, (700, 1000)))
            base = write_checkpoint(work / "base", {"w": values})
            values.reshape(-1)[::31] ^= 1
            target = write_checkpoint(work / "target", {"w": values})
            (work / "values").write_bytes(values.tobytes())
            with Fleet(work / "fleet", base, agent_count=2) as fleet:
                fleet.start()
                done = subprocess.run([C_PUBLISHER, fleet.address, base, work / "values", "w"], capture_output=True,
                                      text=True, timeout=120, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                fleet.wait_clean(range(2), 4)
                fleet.assert_bytes(range(2), target)

    def test_a_program_in_c_follows_what_is_published(self):
        with tempfile.TemporaryDirectory(prefix="weft-c-") as name:
            work = pathlib.Path(name)
            values = to_bf16(numpy.random.default_rng(4).normal(0, 0.02, (700, 1000)))
            steps = [write_checkpoint(work / "step-1", {"w": values})]
            for version in (2, 3, 4):
                values.reshape(-1)[version::31] ^= 1
                steps.append(write_checkpoint(work / f"step-{version}", {"w": values}))
            with Fleet(work / "fleet", steps[0], agent_count=1) as fleet:
                fleet.start()
                self.assertEqual(fleet.publish(steps[0], steps[1], 2).returncode, 0)
                fleet.wait_clean([0], 2)
                reader = subprocess.Popen([C_READER, fleet.weights_dir(0), "w"], stdout=subprocess.PIPE,
                                          stderr=subprocess.PIPE, text=True, env=dict(os.environ, WEFT_LAST="4"))
                self.addCleanup(reader.kill)
                self.assertEqual(reader.stdout.readline(), "open 2\n")
                for version in (3, 4):
                    self.assertEqual(fleet.publish(steps[version - 2], steps[version - 1], version).returncode, 0)
                    self.assertEqual(reader.stdout.readline(), f"version {version} changed {len(values.reshape(-1)[version::31])}\n")
                with reader:  # its last line may have been read ahead: communicate() would not give it
                    self.assertEqual(reader.stdout.readline(), "bye\n", reader.stderr.read())
                self.assertEqual(reader.wait(timeout=60), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
