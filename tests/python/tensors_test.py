# SPDX-License-Identifier: Apache-2.0
"""What a trainer may get wrong about the checkpoint's tensors: dropped, renamed, re-typed, reshaped, tied, padded ones.

Nothing of it may change a node; what is right next is published bit by bit (cases B-025 and B-026).
"""

import unittest

import numpy

import weft
from publisher_model import to_bf16, write_checkpoint
from publisher_test import Fleets

WORDS, PADDED, HIDDEN = 100, 128, 64


class Tensors(Fleets):
    agent_count = 1

    def setUp(self):
        super().setUp()
        self.bits = numpy.random.default_rng(4)
        embed = to_bf16(self.bits.normal(0, 0.02, (WORDS, HIDDEN)))
        self.tensors = {"embed": embed, "head": embed.copy(), "norm": to_bf16(self.bits.normal(0, 0.1, HIDDEN)),
                        "w": to_bf16(self.bits.normal(0, 0.02, (300, HIDDEN)))}
        self.base = write_checkpoint(self.work / "step-1", self.tensors)
        self.start(self.base)

    def open(self, base=None, **options):
        publisher = weft.Publisher(self.fleet.address, base or self.base, **options)
        self.addCleanup(publisher.close)
        return publisher

    def test_names_and_sizes_that_are_not_the_checkpoints_are_named(self):
        publisher = self.open()
        refit = publisher.refit(2)
        wrong = weft.errors.ConfigError
        with self.assertRaisesRegex(wrong, "w.renamed is no shard tensor"):
            refit.put("w.renamed", self.tensors["w"])
        with self.assertRaisesRegex(wrong, f"embed has {PADDED * HIDDEN * 2} bytes, not {WORDS * HIDDEN * 2}"):
            refit.put("embed", numpy.zeros((PADDED, HIDDEN), numpy.uint16))
        with self.assertRaisesRegex(wrong, "norm is F16, the checkpoint has BF16"):
            refit.put("norm", numpy.zeros(HIDDEN, numpy.float16))
        for name in ("embed", "norm", "w"):
            refit.put(name, self.tensors[name] ^ 1)
        with self.assertRaisesRegex(wrong, "head was not put"):  # tied in the trainer, stored twice
            refit.commit()
        refit.abort()
        self.fleet.assert_bytes([0], self.base)

    def test_another_schema_than_the_fleets_is_refused(self):
        with self.open() as publisher, publisher.refit(2) as refit:  # so that the fleet has a version
            for name, array in self.tensors.items():
                refit.put(name, array)
        self.assert_nodes(2, self.base)
        renamed = dict(self.tensors, w_new=self.tensors["w"])
        del renamed["w"]
        dropped = {name: array for name, array in self.tensors.items() if name != "head"}
        retyped = dict(self.tensors, norm=self.tensors["norm"].astype(numpy.float32))
        reshaped = dict(self.tensors, w=self.tensors["w"].reshape(HIDDEN, 300))
        for case, tensors in (("renamed", renamed), ("dropped", dropped), ("re-typed", retyped), ("reshaped", reshaped)):
            with self.subTest(case=case):
                base = write_checkpoint(self.work / case, tensors)
                with self.assertRaises(weft.errors.SchemaChangedError):
                    with weft.Publisher(self.fleet.address, base) as publisher:
                        publisher.refit(3)
                self.assertEqual(self.fleet.status()["version"], 2)
                self.fleet.assert_bytes([0], self.base)

    def test_tied_and_padded_tensors_are_published_from_one_shard_tensor(self):
        real = WORDS * HIDDEN
        rest = ('source "norm" 64\nsource "w" 19200\nbox "norm" 0 -> "norm" 0 (64 1 1)\n'
                'box "w" 0 -> "w" 0 (19200 1 1)\n')
        embed = f'weft-boxes 1\nsource "tied" {PADDED * HIDDEN}\nbox "tied" 0 -> "embed" 0 ({real} 1 1)\n'
        head = f'box "tied" 0 -> "head" 0 ({real} 1 1)\n'
        with self.assertRaisesRegex(weft.errors.ConfigError, rf"a gap in tensor head elements \[0, {real}\)"):
            weft.Publisher(self.fleet.address, self.base, boxes=[embed + rest])
        with self.assertRaisesRegex(weft.errors.ConfigError, rf"an overlap in tensor head elements \[0, {real}\)"):
            weft.Publisher(self.fleet.address, self.base, boxes=[embed + head + head + rest])
        publisher = self.open(boxes=[embed + head + rest])
        for version in (2, 3):
            for name in ("embed", "norm", "w"):
                flat = self.tensors[name].reshape(-1)
                flat[self.bits.random(flat.size) < 0.03] ^= 1
            self.tensors["head"] = self.tensors["embed"]
            padded = self.bits.integers(0, 65536, (PADDED, HIDDEN)).astype(numpy.uint16)  # whatever lies behind
            padded[:WORDS] = self.tensors["embed"]
            with publisher.refit(version) as refit:
                refit.put("tied", padded)
                refit.put("norm", self.tensors["norm"])
                refit.put("w", self.tensors["w"])
            self.assert_nodes(version, write_checkpoint(self.work / f"step-{version}", self.tensors))


if __name__ == "__main__":
    unittest.main(verbosity=2)
