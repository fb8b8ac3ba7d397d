# SPDX-License-Identifier: Apache-2.0
"""Boxes of the usual layouts are those that an index tensor finds when it goes through the same cuts in numpy."""

import hashlib
import pathlib
import tempfile
import unittest

import numpy

import weft
from publisher_model import GROUPS, HEADS, HIDDEN, INNER, WIDTH, WORDS, Model, box_file


def statements(text):
    return sorted(line.split("#")[0].strip() for line in text.splitlines() if line.strip())


class Boxes(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="weft-boxes-")
        self.addCleanup(temporary.cleanup)
        self.base = Model(3).export(pathlib.Path(temporary.name) / "base")

    def layouts(self, rank, size):
        boxes = weft.Boxes(self.base, tensor=(rank, size))
        boxes.vocabulary("embed", "embed", padded_rows=-(-WORDS // (16 * size)) * 16 * size)
        boxes.attention("qkv", "q", "k", "v", query_heads=HEADS, groups=GROUPS, head_width=WIDTH)
        boxes.gate_up("gate_up", "gate", "up")
        boxes.row_parallel("down", "down")
        boxes.row_parallel("o", "o")
        return str(boxes)

    def test_layouts_are_the_boxes_written_by_hand(self):
        for size in (1, 2):
            for rank in range(size):
                with self.subTest(rank=rank, size=size):
                    by_hand = [line for line in statements(box_file(rank, size)) if "norm" not in line and "mix" not in line]
                    made = self.layouts(rank, size)
                    self.assertEqual(self.elements(made), self.elements("\n".join(by_hand)))

    @staticmethod
    def elements(text):
        """What a box file says, element by element, for each checkpoint tensor."""
        found = {}
        for line in statements(text):
            if not line.startswith("box "):
                continue
            names = line.split('"')
            source, target = names[1], names[3]
            source_offset, target_offset = int(names[2].split()[0]), int(names[4].split("(")[0])
            axes = [tuple(map(int, part.split(")")[0].split())) for part in names[4].split("(")[1:]]
            sources, targets = numpy.array([source_offset]), numpy.array([target_offset])
            for extent, source_stride, target_stride in axes:
                steps = numpy.arange(extent)
                sources = (sources[:, None] + steps * source_stride).reshape(-1)
                targets = (targets[:, None] + steps * target_stride).reshape(-1)
            found.setdefault(target, []).append((source, targets, sources))
        return {target: Boxes.digest(parts) for target, parts in found.items()}

    @staticmethod
    def digest(parts):
        """The same for the same elements, however they are cut into boxes."""
        names = {source for source, _, _ in parts}
        targets = numpy.concatenate([each for _, each, _ in parts])
        order = numpy.argsort(targets)
        sources = numpy.concatenate([each for _, _, each in parts])
        return names, targets.size, hashlib.sha256(targets[order].tobytes() + sources[order].tobytes()).hexdigest()

    def test_derived_boxes_are_those_of_the_layout(self):
        boxes = weft.Boxes(self.base, tensor=(1, 2))
        boxes.row_parallel("down", "down")
        boxes.gate_up("gate_up", "gate", "up")
        half = INNER // 2
        down = numpy.arange(HIDDEN * half).reshape(HIDDEN, half)
        gate_up = numpy.arange(2 * half * HIDDEN) + down.size
        # The real exporter would gather all ranks: what this one has not is another part of the tensor.
        derived = weft.derive_boxes(self.base, {"down": down.size, "gate_up": gate_up.size},
                                    {"gate": (half * HIDDEN, gate_up[:half * HIDDEN]),
                                     "up": (half * HIDDEN, gate_up[half * HIDDEN:].astype(numpy.uint64))})
        rows = [(row * INNER + half, down[row]) for row in range(HIDDEN)]
        self.assertEqual(rows[1][0], INNER + half)
        self.assertEqual(self.elements(derived), {name: parts for name, parts in self.elements(str(boxes)).items()
                                                  if name != "down"})

    def test_mistakes_name_tensor_and_sizes(self):
        boxes = weft.Boxes(self.base, tensor=(0, 3))
        with self.assertRaisesRegex(weft.errors.ConfigError, "down"):
            boxes.row_parallel("down", "down")
        with self.assertRaisesRegex(weft.errors.ConfigError, "no.such"):
            boxes.replicated("x", "no.such")
        with self.assertRaisesRegex(weft.errors.ConfigError, "the rank below the size"):
            weft.Boxes(self.base, tensor=(2, 2))
        with self.assertRaisesRegex(weft.errors.ConfigError, "64-bit integers, not F32"):
            weft.derive_boxes(self.base, {"down": 4}, {"down": numpy.zeros(4, numpy.float32)})


if __name__ == "__main__":
    unittest.main(verbosity=2)
