# SPDX-License-Identifier: Apache-2.0
"""Residuals: values that are computed from a trainer's tensors, published with what they are computed from named.

A model with a quantised tensor and its block scales, a cast master and a norm stored as weight minus one; after each
refit cmp compares every node's files with an export that knows nothing of weft.
"""

import unittest

import numpy

import weft
from publisher_model import to_bf16, write_checkpoint
from publisher_test import Fleets

ROWS, COLUMNS, BLOCK = 640, 1000, 64


def scales_of(master):
    blocks = numpy.abs(master.reshape(-1, BLOCK * COLUMNS)).max(axis=1)
    return (blocks / numpy.float32(127)).astype(numpy.float32)


def quantise(master):
    steps = numpy.repeat(scales_of(master), BLOCK * COLUMNS).reshape(master.shape)
    return numpy.rint(master / steps).astype(numpy.int8)


class Residuals(Fleets):
    def setUp(self):
        super().setUp()
        self.bits = numpy.random.default_rng(9)
        self.master = self.bits.normal(0, 0.02, (ROWS, COLUMNS)).astype(numpy.float32)  # of the quantised tensor
        self.wide = self.bits.normal(0, 0.02, (ROWS, COLUMNS)).astype(numpy.float32)  # of the cast one
        self.norm = self.bits.normal(0, 0.1, COLUMNS).astype(numpy.float32)
        self.converted = {}
        self.start(self.export(1))
        self.publisher = weft.Publisher(fleet=self.fleet.address, base=self.work / "step-1")
        self.addCleanup(self.publisher.close)

    def tensors(self):
        return {"q": quantise(self.master), "q_scale": scales_of(self.master), "cast": to_bf16(self.wide),
                "norm": to_bf16(self.norm + numpy.float32(1))}

    def export(self, version):
        return write_checkpoint(self.work / f"step-{version}", self.tensors())

    def converter(self, name, values):
        """Gives elements of what `values` computes, and counts them."""
        made = []

        def convert(first, into):
            if not made:
                made.append(values().reshape(-1))
            count = len(into) // made[0].itemsize
            numpy.frombuffer(into, made[0].dtype)[:] = made[0][first:first + count]
            self.converted[name] = self.converted.get(name, 0) + count

        return convert

    def put_all(self, refit):
        self.converted = {}
        refit.put_residual("q", self.converter("q", lambda: quantise(self.master)), self.master)
        refit.put_residual("q_scale", self.converter("q_scale", lambda: scales_of(self.master)), [self.master])
        refit.put_residual("cast", self.converter("cast", lambda: to_bf16(self.wide)), self.wide, elementwise=True)
        refit.put_residual("norm", self.converter("norm", lambda: to_bf16(self.norm + numpy.float32(1))), (self.norm,),
                           elementwise=True)

    def step(self, version):
        with self.publisher.refit(version) as refit:
            self.put_all(refit)
        self.assert_nodes(version, self.export(version))
        return refit.stats

    def test_sources_that_did_not_change_are_not_converted(self):
        self.master[3] *= numpy.float32(1.5)
        stats = self.step(2)
        sizes = {name: array.size for name, array in self.tensors().items()}
        self.assertEqual(self.converted, sizes)  # nothing was known of the base
        self.assertEqual(stats.skipped_elements, 0)

        self.assertEqual(self.step(3).skipped_elements, sum(sizes.values()))
        self.assertEqual(self.converted, {})

        # One block's scale, and all that is rounded with it.
        self.master[100, 7] = 3
        self.norm[5] += numpy.float32(0.5)
        stats = self.step(4)
        self.assertEqual(self.converted, {name: sizes[name] for name in ("q", "q_scale", "norm")})
        self.assertEqual(stats.skipped_elements, sizes["cast"])
        self.assertGreater(stats.changed_elements, BLOCK * COLUMNS // 2)

        # Element by element: the chunk alone that reads something new. A chunk of a BF16 tensor has 262,144 elements.
        self.wide[400, 1] += numpy.float32(1)
        self.step(5)
        self.assertEqual(self.converted, {"cast": 262_144})

        # -0.0 is another source, and here another value.
        self.wide[0, 0] = 0
        self.step(6)
        self.wide[0, 0] = -0.0
        self.assertEqual(self.step(7).changed_elements, 1)

    def test_what_was_aborted_is_converted_again(self):
        self.step(2)
        self.master[3] *= numpy.float32(1.5)
        self.norm[5] += numpy.float32(0.5)
        refit = self.publisher.refit(3)
        self.put_all(refit)
        refit.abort()
        self.assert_nodes(2, self.work / "step-2")
        # The marks of the aborted refit would say that nothing has changed since.
        self.step(3)
        self.assertEqual(set(self.converted), {"q", "q_scale", "norm"})
        with self.assertRaisesRegex(ZeroDivisionError, "half way"):
            with self.publisher.refit(4) as refit:
                def fail(first, into):
                    raise ZeroDivisionError("half way")

                self.wide += numpy.float32(1)
                refit.put_residual("cast", fail, self.wide, elementwise=True)
        self.step(4)
        self.assertEqual(self.converted, {"cast": ROWS * COLUMNS})

    def test_values_put_in_another_way_are_not_taken_for_the_sources(self):
        self.step(2)
        norm = to_bf16(numpy.full(COLUMNS, 7, numpy.float32))
        with self.publisher.refit(3, partial=True) as refit:
            refit.put("norm", norm)
        self.assert_nodes(3, write_checkpoint(self.work / "by-hand", dict(self.tensors(), norm=norm)))
        self.step(4)
        self.assertEqual(self.converted, {"norm": COLUMNS})
        with self.publisher.refit(5, partial=True) as refit:  # without a source: always
            refit.put_residual("norm", self.converter("norm", lambda: to_bf16(self.norm + numpy.float32(1))))
        self.step(6)
        self.assertEqual(self.converted, {"norm": COLUMNS})

    def test_source_of_another_size_is_no_elementwise_one(self):
        refit = self.publisher.refit(2)
        with self.assertRaisesRegex(weft.errors.ConfigError, "q_scale has 10 elements: .* not elementwise"):
            refit.put_residual("q_scale", self.converter("q_scale", lambda: scales_of(self.master)),
                               numpy.zeros(7, numpy.float32), elementwise=True)
        with self.assertRaisesRegex(TypeError, "not str"):
            refit.put_residual("q_scale", self.converter("q_scale", lambda: scales_of(self.master)), "master")
        self.put_all(refit)
        refit.commit()
        self.assert_nodes(2, self.export(2))

    def test_readers_never_see_values_with_the_scales_of_another_version(self):
        known = {}
        view = weft.WeightView(self.fleet.weights_dir(0))
        seen = set()

        def look():
            with view.acquire(timeout=30) as lock:
                for name in ("q", "q_scale"):
                    same = numpy.array_equal(lock[name].numpy(), known[lock.version][name])
                    self.assertTrue(same, (name, lock.version))
                seen.add(lock.version)

        for version in range(2, 6):
            self.master *= numpy.float32(1.25)
            known[version] = self.tensors()
            with self.publisher.refit(version) as refit:
                self.put_all(refit)
                if version > 2:  # before the first refit the nodes have no version
                    look()
            if version > 2:
                look()
            self.fleet.wait_clean(range(self.agent_count), version)
            look()
        self.assertEqual(seen, {2, 3, 4, 5})


if __name__ == "__main__":
    unittest.main(verbosity=2)
