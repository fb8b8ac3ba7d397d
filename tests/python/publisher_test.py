# SPDX-License-Identifier: Apache-2.0
"""weft.Publisher against a fleet of real processes; after each refit cmp compares every node's files."""

import logging
import os
import pathlib
import signal
import tempfile
import threading
import time
import unittest

import numpy

import weft
from fleet import Fleet
from publisher_model import Model, box_file, to_bf16, write_checkpoint


class DlpackOnly:
    """An array that knows nothing but DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Fleets(unittest.TestCase):
    agent_count = 2

    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="weft-python-")
        self.addCleanup(temporary.cleanup)
        self.work = pathlib.Path(temporary.name)

    def start(self, base):
        self.fleet = Fleet(self.work / "fleet", base, agent_count=self.agent_count)
        self.addCleanup(self.fleet.stop_all)
        self.fleet.start()

    def assert_nodes(self, version, target):
        self.fleet.wait_clean(range(self.agent_count), version)
        self.fleet.assert_bytes(range(self.agent_count), target)


class OneProducer(Fleets):
    """The checkpoint's own tensors."""

    def setUp(self):
        super().setUp()
        self.bits = numpy.random.default_rng(5)
        self.tensors = {"w": to_bf16(self.bits.normal(0, 0.02, (500, 300))),
                        "v": to_bf16(self.bits.normal(0, 0.02, (64, 1000)))}
        base = write_checkpoint(self.work / "step-1", self.tensors)
        self.start(base)
        self.publisher = weft.Publisher(fleet=self.fleet.address, base=base)
        self.addCleanup(self.publisher.close)

    def step(self):
        for array in self.tensors.values():
            flat = array.reshape(-1)
            flat[self.bits.random(flat.size) < 0.03] ^= 1

    def export(self, version):
        return write_checkpoint(self.work / f"step-{version}", self.tensors)

    def put_all(self, refit):
        for name, array in self.tensors.items():
            refit.put(name, array)

    def test_steps_are_published_bit_by_bit(self):
        self.assertEqual(self.publisher.version, 1)
        self.assertEqual([(t.name, t.element_count, t.dtype) for t in self.publisher.shard_tensors],
                         [("v", 64000, "BF16"), ("w", 150000, "BF16")])
        for version in (2, 3):
            self.step()
            with self.publisher.refit(version=version) as refit:
                refit.put("w", self.tensors["w"])
                refit.put("v", DlpackOnly(self.tensors["v"]))  # uint16 by DLPack
            self.assertFalse(refit.is_open)
            self.assertEqual(refit.stats.version, version)
            self.assertAlmostEqual(refit.stats.changed_fraction, 0.03, delta=0.01)
            self.assertEqual(refit.stats.total_elements, 214000)
            self.assert_nodes(version, self.export(version))
            self.assertEqual(self.publisher.content.version, version)
            self.assertEqual(len(self.publisher.content.root), 32)

    def test_only_what_was_put_changes_in_a_partial_refit(self):
        self.tensors["v"] ^= 1
        with self.publisher.refit(version=2, partial=True) as refit:
            refit.put("v", self.tensors["v"])
        self.assert_nodes(2, self.export(2))

    def test_exception_in_the_block_aborts(self):
        self.step()
        with self.assertRaises(KeyError):
            with self.publisher.refit(version=2) as refit:
                self.put_all(refit)
                raise KeyError("trainer")
        self.assertFalse(refit.is_open)
        self.assertIsNone(refit.stats)
        with self.publisher.refit(version=2) as refit:
            self.put_all(refit)
        self.assert_nodes(2, self.export(2))

    def test_mistakes_are_told_and_the_refit_goes_on(self):
        refit = self.publisher.refit(version=2)
        wrong = weft.errors.ConfigError
        with self.assertRaisesRegex(wrong, "no.such is no shard tensor"):
            refit.put("no.such", self.tensors["w"])
        with self.assertRaisesRegex(wrong, "bytes"):
            refit.put("w", self.tensors["v"])
        with self.assertRaisesRegex(wrong, "w is F16, the checkpoint has BF16"):
            refit.put("w", numpy.zeros((500, 300), numpy.float16))
        with self.assertRaisesRegex(wrong, "w is F32, the checkpoint has BF16: say cast=True"):
            refit.put("w", numpy.zeros((500, 300), numpy.float32))
        with self.assertRaisesRegex(BufferError, "not contiguous"):
            refit.put("w", self.tensors["w"].T)
        with self.assertRaisesRegex(TypeError, "not list"):
            refit.put("w", [1, 2])
        with self.assertRaisesRegex(weft.errors.BusyError, "version 2 is still open"):
            self.publisher.refit(version=3)
        refit.put("w", self.tensors["w"])
        with self.assertRaisesRegex(wrong, "put before"):
            refit.put("w", self.tensors["w"])
        with self.assertRaisesRegex(wrong, "v was not put"):
            refit.commit()
        refit.put("v", self.tensors["v"].view(numpy.int16))
        self.assertEqual(refit.commit().changed_elements, 0)
        with self.assertRaisesRegex(wrong, "closed"):
            refit.put("w", self.tensors["w"])
        with self.assertRaises(weft.errors.VersionOrderError):
            self.publisher.refit(version=1)
        refit.abort()  # of nothing

    def test_float32_is_cast_to_nearest_even(self):
        master = self.bits.normal(0, 0.02, (500, 300)).astype(numpy.float32)
        with self.publisher.refit(version=2) as refit:
            refit.put("w", master, cast=True)
            refit.put("v", self.tensors["v"], cast=True)
        self.tensors["w"] = to_bf16(master)
        self.assert_nodes(2, self.export(2))

    def test_converter_gives_values_and_its_exception_comes_back(self):
        self.step()
        flat = self.tensors["w"].reshape(-1)

        def values(first, into):
            numpy.frombuffer(into, numpy.uint16)[:] = flat[first:first + len(into) // 2]

        def fail(first, into):
            raise ZeroDivisionError("no scale")

        with self.assertRaisesRegex(ZeroDivisionError, "no scale"):
            with self.publisher.refit(version=2) as refit:
                refit.put_residual("w", fail)
        with self.publisher.refit(version=2) as refit:
            refit.put("v", self.tensors["v"])
            refit.put_residual("w", values)
        self.assert_nodes(2, self.export(2))

    def test_second_thread_is_refused_and_cancel_is_heard(self):
        # Two producers are named, the other one never comes: begin waits.
        texts = ['weft-boxes 1\nsource "w" 150000\nbox "w" 0 -> "w" 0 (150000 1 1)\n',
                 'weft-boxes 1\nsource "v" 64000\nbox "v" 0 -> "v" 0 (64000 1 1)\n']
        self.publisher.close()
        path = self.work / "boxes-1"
        path.write_text(texts[1])
        caught = []
        with weft.Publisher(self.fleet.address, self.work / "step-1", producer=0, boxes=[texts[0], path]) as publisher:
            def begin():
                try:
                    publisher.refit(version=2)
                except weft.Error as error:
                    caught.append(error)

            thread = threading.Thread(target=begin)
            thread.start()
            deadline = time.monotonic() + 30
            while thread.is_alive() and time.monotonic() < deadline:
                try:
                    publisher.refit(version=2)
                except weft.errors.BusyError as error:
                    self.assertIn("another thread", str(error))
                publisher.cancel()
                thread.join(0.05)
            self.assertFalse(thread.is_alive())
        self.assertEqual([error.code for error in caught], ["busy"])

    def test_keyboard_interrupt_ends_a_begin_that_waits(self):
        texts = ['weft-boxes 1\nsource "w" 150000\nbox "w" 0 -> "w" 0 (150000 1 1)\n',
                 'weft-boxes 1\nsource "v" 64000\nbox "v" 0 -> "v" 0 (64000 1 1)\n']
        with weft.Publisher(self.fleet.address, self.work / "step-1", boxes=texts) as publisher:
            timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            self.addCleanup(timer.cancel)
            begun = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                publisher.refit(version=2)
            self.assertLess(time.monotonic() - begun, 15)

    def test_keyboard_interrupt_leaves_a_sealed_commit_to_its_decision(self):
        self.step()
        refit = self.publisher.refit(version=2)
        self.put_all(refit)
        agents = [self.fleet.processes[self.fleet.name(i)] for i in range(self.agent_count)]
        for agent in agents:
            agent.send_signal(signal.SIGSTOP)  # no vote comes
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        self.addCleanup(timer.cancel)
        begun = time.monotonic()
        try:
            with self.assertRaises(KeyboardInterrupt):
                refit.commit()
        finally:
            for agent in agents:
                agent.send_signal(signal.SIGCONT)
        self.assertLess(time.monotonic() - begun, 20)
        self.assertFalse(refit.is_open)
        self.fleet.wait_joined(range(self.agent_count))
        self.step()
        version = 2
        try:
            refit = self.publisher.refit(version)  # waits for the decision about the other one
        except weft.errors.VersionOrderError:  # it was committed
            version = 3
            refit = self.publisher.refit(version)
        with refit:
            self.put_all(refit)
        self.assert_nodes(version, self.export(version))

    def test_events_are_logged(self):
        with self.assertLogs("weft", logging.DEBUG) as logged:
            self.fleet.kill("coordinator")
            with self.assertRaises(weft.Error):
                self.publisher.refit(version=2)
        self.assertIn("coordinator_disconnected", "\n".join(logged.output))


class TwoProducers(Fleets):
    """Two ranks' shards of one model, in two publishers of one process, each on its thread."""

    def test_ranks_commit_together_with_boxes_from_layouts(self):
        model = Model(11)
        base = model.export(self.work / "step-1")
        self.start(base)
        boxes = [box_file(rank, 2) for rank in range(2)]
        ranks = [weft.Publisher(self.fleet.address, base, producer=rank, boxes=boxes) for rank in range(2)]
        for rank in ranks:
            self.addCleanup(rank.close)
        failures = []

        def publish(rank, version):
            try:
                with ranks[rank].refit(version=version) as refit:
                    for name, (verb, array) in model.shard(rank, 2).items():
                        if verb == "residual":
                            norm = to_bf16(array + numpy.float32(1))
                            refit.put(name, norm)
                        else:
                            refit.put(name, numpy.ascontiguousarray(array), cast=verb == "cast")
            except BaseException as error:  # noqa: told by the main thread
                failures.append(error)

        for version in (2, 3):
            model.step()
            threads = [threading.Thread(target=publish, args=(rank, version)) for rank in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
            self.assertEqual(failures, [])
            self.assert_nodes(version, model.export(self.work / f"step-{version}"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
