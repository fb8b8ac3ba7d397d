# SPDX-License-Identifier: Apache-2.0
"""weft.WeightView on the weights of a real agent, while a real fleet takes refits."""

import gc
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
from publisher_model import to_bf16, write_checkpoint


class Views(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="weft-views-")
        cls.addClassCleanup(temporary.cleanup)
        cls.work = pathlib.Path(temporary.name)
        cls.bits = numpy.random.default_rng(8)
        cls.tensors = {"a": to_bf16(cls.bits.normal(0, 0.02, (300, 1000))),
                       "b": to_bf16(cls.bits.normal(0, 0.02, (7, 11, 13))), "empty": numpy.zeros((0, 4), numpy.uint16)}
        base = write_checkpoint(cls.work / "step-1", cls.tensors)
        cls.fleet = Fleet(cls.work / "fleet", base, agent_count=1)
        cls.addClassCleanup(cls.fleet.stop_all)
        cls.fleet.start()
        cls.publisher = weft.Publisher(cls.fleet.address, base)
        cls.addClassCleanup(cls.publisher.close)
        cls.publish()

    @classmethod
    def publish(cls):
        """The next version, in which 3 % of the elements are others."""
        for array in cls.tensors.values():
            flat = array.reshape(-1)
            flat[cls.bits.random(flat.size) < 0.03] ^= 1
        with cls.publisher.refit(cls.publisher.version + 1) as refit:
            for name, array in cls.tensors.items():
                refit.put(name, array)
        cls.fleet.wait_clean([0], refit.version)
        return refit.version

    def setUp(self):
        self.view = weft.WeightView(self.fleet.weights_dir(0))

    def copy(self, lock):
        return {name: lock[name].numpy().copy() for name in lock}

    def assert_current(self, tensors):
        for name, array in self.tensors.items():
            self.assertTrue(numpy.array_equal(tensors[name], array), name)

    def test_tensors_of_a_lock_are_the_published_ones(self):
        with self.view.acquire(timeout=30) as lock:
            self.assertEqual((lock.version, lock.names()), (self.publisher.version, ["a", "b", "empty"]))
            self.assertEqual(pathlib.Path(lock.path).name, "weights")
            self.assertEqual(lock.content.root and len(lock), 3)
            self.assertIn("a", lock)
            array = lock["b"]
            self.assertEqual((array.dtype, array.shape, array.itemsize, array.nbytes, len(array)),
                             ("BF16", (7, 11, 13), 2, 2002, 7))
            view = array.numpy()
            self.assertFalse(view.flags.owndata or view.flags.writeable)
            self.assert_current(self.copy(lock))
            self.assertEqual(dict(lock)["b"].shape, (7, 11, 13))
            with self.assertRaises(KeyError):
                lock["no.such"]
        with self.assertRaisesRegex(weft.errors.ConfigError, "released"):
            lock["a"]
        del lock, array
        gc.collect()
        self.assertEqual(view.shape, (7, 11, 13))
        self.assertGreater(int(view.max()), 0)  # the memory lives as long as the array

    def test_changes_over_the_old_tensors_give_the_new_ones(self):
        with self.view.acquire(timeout=30) as lock:
            mine, version = self.copy(lock), lock.version
        for _ in range(2):
            self.publish()
            for new in self.view.wait(timeout=30):
                self.assertEqual(new, version + 1)
                changes = self.view.changes(new)
                told = 0
                for change in changes:
                    name, offsets, values = change
                    self.assertEqual((offsets.dtype, values.dtype, change.dtype), ("I64", "BF16", "BF16"))
                    mine[name].reshape(-1)[offsets.numpy()] = values.numpy()
                    told += len(change)
                self.assertEqual((changes.changed_elements, changes.refits), (told, 1))
                version = new
                break
            self.assert_current(mine)

    def test_versions_that_were_skipped_are_folded(self):
        with self.view.acquire(timeout=30) as lock:
            mine, version = self.copy(lock), lock.version
        self.publish()
        new = self.publish()
        changes = self.view.changes(new, since=version)
        for name, offsets, values in changes:
            mine[name].reshape(-1)[offsets.numpy()] = values.numpy()
        self.assertEqual(changes.refits, 2)
        self.assert_current(mine)

    def test_arrays_of_a_change_outlive_it_and_a_stream_may_be_left(self):
        version = self.publish()
        changes = self.view.changes(version, since=version - 1)
        kept = next(changes).values.numpy()
        del changes
        gc.collect()
        self.assertTrue(kept.flags.writeable)
        self.assertGreater(kept.size, 100)

    def test_what_journals_cannot_tell_needs_a_full_copy(self):
        with self.assertRaisesRegex(weft.errors.FullCopyNeeded, "read the whole files") as caught:
            self.view.changes(999, since=1)
        self.assertEqual((caught.exception.code, caught.exception.next_step), ("needs_reseed", "reseed"))
        with self.assertRaisesRegex(weft.errors.ConfigError, "since="):
            self.view.changes(self.publisher.version)
        with self.assertRaisesRegex(weft.errors.ConfigError, "must be lower"):
            self.view.changes(1, since=2)

    def test_runtime_is_kept_at_the_published_version(self):
        mine, loads, updates = {}, [], []

        def load(pairs):
            mine.update((name, tensor.copy()) for name, tensor in pairs)
            loads.append(len(mine))

        def scatter(changes):
            for name, indices, values in changes:
                self.assertEqual(indices.dtype, numpy.int64)
                mine[name].reshape(-1)[indices] = values
                updates.append(values.size)

        follower = weft.adapters.follow(self.fleet.weights_dir(0), load, scatter, timeout=30, framework="numpy")
        self.assertEqual(next(follower), self.publisher.version)
        self.assert_current(mine)
        for _ in range(2):
            version = self.publish()
            self.assertEqual(next(follower), version)
            self.assert_current(mine)
        self.assertEqual(loads, [3])
        self.assertGreater(sum(updates), 0)
        # Without the journals it takes the whole files again.
        version = self.publish()
        journals = self.fleet.state(0) / "journal"
        hidden = journals.rename(journals.with_name("hidden"))
        try:
            self.assertEqual(next(follower), version)
        finally:
            hidden.rename(journals)
        self.assert_current(mine)
        self.assertEqual(loads, [3, 3])
        with self.assertRaisesRegex(ValueError, "torch or numpy"):
            next(weft.adapters.follow(self.fleet.weights_dir(0), load, scatter, framework="jax"))

    def test_waiting_ends_at_its_deadline(self):
        begun = time.monotonic()
        with self.assertRaisesRegex(TimeoutError, "no other version than"):
            next(self.view.wait(timeout=0.2))
        self.assertLess(time.monotonic() - begun, 10)
        with self.assertRaises(weft.errors.Error):
            weft.WeightView(self.work / "nothing")

    def test_keyboard_interrupt_ends_a_wait(self):
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        self.addCleanup(timer.cancel)
        with self.assertRaises(KeyboardInterrupt):
            next(self.view.wait(timeout=60))

    def test_others_run_while_one_waits_and_a_second_waiter_is_refused(self):
        waited = []
        thread = threading.Thread(target=lambda: waited.append(next(self.view.wait(timeout=60))))
        thread.start()
        refused = None
        while refused is None and thread.is_alive():
            try:
                next(self.view.wait(timeout=0))
            except weft.errors.BusyError as error:
                refused = error
            except TimeoutError:  # the thread is not there yet
                pass
        self.assertIn("one at a time", str(refused))
        version = self.publish()
        thread.join(60)
        self.assertEqual(waited, [version])


if __name__ == "__main__":
    unittest.main(verbosity=2)
