# SPDX-License-Identifier: Apache-2.0
"""Refit.put_shard: elements wherever they lie in a trainer's tensors, in any number of calls, against a real fleet."""

import threading
import unittest

import numpy

import weft
from publisher_model import to_bf16, write_checkpoint
from publisher_test import Fleets


def rows(name, begin, end, width):
    """Whole rows of a matrix, as they lie one behind the other."""
    return weft.Box(name, 0, begin * width, [((end - begin) * width, 1, 1)])


class PutShard(Fleets):
    agent_count = 1

    def setUp(self):
        super().setUp()
        self.bits = numpy.random.default_rng(6)
        self.tensors = {"big": to_bf16(self.bits.normal(0, 0.02, (700, 1000))),
                        "v": to_bf16(self.bits.normal(0, 0.02, (64, 100))),
                        "w": to_bf16(self.bits.normal(0, 0.02, (500, 300)))}
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

    def test_a_model_comes_in_pieces_bit_by_bit(self):
        self.step()
        big, v, w = (self.tensors[name] for name in ("big", "v", "w"))
        refit = self.publisher.refit(2)
        # Left columns as they lie, right columns transposed, in one view each.
        left, right = numpy.ascontiguousarray(w[:, :120]), numpy.ascontiguousarray(w[:, 120:].T)
        refit.put_shard([weft.Box("w", 0, 120, [(180, 500, 1), (500, 1, 300)])], right)
        refit.put_shard([weft.Box("w", 0, 0, [(500, 120, 300), (120, 1, 1)])], left)
        # Rows of two tensors in one view, and the rest in many.
        fused = numpy.concatenate([big[600:].reshape(-1), v.reshape(-1)])
        refit.put_shard([rows("big", 600, 700, 1000), weft.Box("v", 100_000, 0, [(6400, 1, 1)])], fused)
        for begin in range(0, 600, 100):
            if begin != 300:
                refit.put_shard([rows("big", begin, begin + 100, 1000)], big[begin:begin + 100])
        with self.assertRaisesRegex(weft.errors.ConfigError, r"a gap in tensor big elements \[300000, 400000\)"):
            refit.commit()
        refit.put_shard([rows("big", 300, 400, 1000)], big[300:400])
        report = refit.commit()
        self.assertEqual(report.total_elements, sum(array.size for array in self.tensors.values()))
        self.assert_nodes(2, self.export(2))
        # The next one by name: the baseline has moved as one.
        self.step()
        with self.publisher.refit(3) as refit:
            for name, array in self.tensors.items():
                refit.put(name, array)
        self.assert_nodes(3, self.export(3))

    def test_what_is_given_twice_is_refused_and_the_refit_goes_on(self):
        self.step()
        refit = self.publisher.refit(2)
        wrong = weft.errors.ConfigError
        refit.put_shard([rows("big", 0, 10, 1000)], self.tensors["big"][:10])
        with self.assertRaisesRegex(wrong, r"an overlap .* in tensor big elements \[9000, 10000\)"):
            refit.put_shard([rows("big", 9, 20, 1000)], self.tensors["big"][9:20])
        with self.assertRaisesRegex(wrong, r"big: put_shard gave elements of big elements \[0, 262144\)"):
            refit.put("big", self.tensors["big"])
        refit.put("v", self.tensors["v"])
        with self.assertRaisesRegex(wrong, "an overlap with what was put by name in tensor v"):
            refit.put_shard([rows("v", 0, 1, 100)], self.tensors["v"][:1])
        with self.assertRaisesRegex(wrong, "the view is F16, tensor big has BF16"):
            refit.put_shard([rows("big", 10, 20, 1000)], numpy.zeros((10, 1000), numpy.float16))
        with self.assertRaisesRegex(wrong, "reaches source element"):
            refit.put_shard([rows("big", 10, 20, 1000)], self.tensors["big"][10:19])
        refit.put_shard([rows("big", 10, 700, 1000)], self.tensors["big"][10:])
        with self.assertRaisesRegex(wrong, r"a gap in tensor w elements \[0, 150000\)"):
            refit.commit()
        refit.put("w", self.tensors["w"])
        refit.commit()
        self.assert_nodes(2, self.export(2))

    def test_only_what_was_given_changes_in_a_partial_refit(self):
        self.tensors["big"][250:270] ^= 1  # across the end of a chunk
        cast = self.bits.normal(0, 0.02, (3, 300)).astype(numpy.float32)
        self.tensors["w"][7:10] = to_bf16(cast)
        with self.publisher.refit(2, partial=True) as refit:
            refit.put_shard([rows("big", 250, 270, 1000)], self.tensors["big"][250:270])
            refit.put_shard([rows("w", 7, 10, 300)], cast, cast=True)
        self.assertGreaterEqual(refit.stats.changed_elements, 20_000)
        self.assert_nodes(2, self.export(2))
        with self.publisher.refit(3) as refit:
            for name, array in self.tensors.items():
                refit.put(name, array)
        self.assertEqual(refit.stats.changed_elements, 0)

    def test_values_given_by_boxes_are_not_taken_for_a_residuals_source(self):
        source = self.tensors["v"].copy()
        calls = []

        def convert(first, into):
            calls.append(first)
            numpy.frombuffer(into, numpy.uint16)[:] = source.reshape(-1)[first:first + len(into) // 2]

        for version in (2, 3):
            with self.publisher.refit(version, partial=True) as refit:
                refit.put_residual("v", convert, source)
        self.assertEqual(len(calls), 1)
        self.tensors["v"][3] ^= 1
        with self.publisher.refit(4, partial=True) as refit:
            refit.put_shard([rows("v", 3, 4, 100)], self.tensors["v"][3:4])
        self.assert_nodes(4, self.export(4))
        with self.publisher.refit(5, partial=True) as refit:
            refit.put_residual("v", convert, source)
        self.assertEqual(len(calls), 2)
        self.tensors["v"] = source
        self.assert_nodes(5, self.export(5))

    def on_threads(self, call):
        """call(0) and call(1): each waits for the other."""
        threads = [threading.Thread(target=call, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    def test_another_producers_elements_are_refused(self):
        texts = ['weft-boxes 1\nsource "w" 150000\nbox "w" 0 -> "w" 0 (150000 1 1)\n',
                 'weft-boxes 1\nsource "b" 700000\nsource "v" 6400\nbox "b" 0 -> "big" 0 (700000 1 1)\n'
                 'box "v" 0 -> "v" 0 (6400 1 1)\n']
        self.publisher.close()
        ranks = [weft.Publisher(self.fleet.address, self.work / "step-1", producer=rank, boxes=texts)
                 for rank in range(2)]
        for rank in ranks:
            self.addCleanup(rank.close)
        self.step()
        opened = {}
        self.on_threads(lambda rank: opened.update({rank: ranks[rank].refit(2)}))
        with self.assertRaisesRegex(weft.errors.ConfigError, r"another producer's .* tensor v elements \[0, 100\)"):
            opened[0].put_shard([rows("v", 0, 1, 100)], self.tensors["v"][:1])
        opened[0].put_shard([rows("w", 0, 500, 300)], self.tensors["w"])
        opened[1].put_shard([rows("big", 0, 700, 1000)], self.tensors["big"])
        opened[1].put("v", self.tensors["v"])
        self.on_threads(lambda rank: opened[rank].commit())
        self.assert_nodes(2, self.export(2))


if __name__ == "__main__":
    unittest.main(verbosity=2)
