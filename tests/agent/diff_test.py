#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`weft diff` against what can be computed from the files alone: counts, bound, and every bit of the delta file.

diff_test.py WEFT
"""

import csv
import io
import json
import math
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "golden"))

import frame_reader  # noqa: E402

WEFT = ""
JSON_DOCUMENT = HERE.parents[1] / "docs" / "json.md"
FORMATS = {"BF16": frame_reader.BF16, "F16": frame_reader.F16, "F8_E4M3": frame_reader.F8_E4M3,
           "U8": frame_reader.Format(8), "F32": frame_reader.Format(32), "I64": frame_reader.Format(64)}  # fmt: skip
SECONDS_MAX = 120


def bf16_word(random_source, exponent_low=100):
    """Exponents as weights have them: each half as frequent as the next larger one."""
    exponent = 127
    while exponent > exponent_low and random_source.random() < 0.5:
        exponent -= 1
    return random_source.getrandbits(1) << 15 | exponent << 7 | random_source.getrandbits(7)


def step_like(random_source, words, share, word_bits):
    """One step of an optimizer: the smaller the exponent, the likelier and larger the change."""
    mask = (1 << word_bits) - 1
    changed = []
    for word in words:
        probability = min(0.97, share * 2.0 ** (127 - (word >> 7 & 255)))
        if random_source.random() < probability:
            size = 1 + int(random_source.expovariate(1.0) * probability * 3)
            word = word + (size if random_source.random() < 0.5 else -size) & mask
        changed.append(word)
    return changed


def make_pair():
    """Tensors of both checkpoints: name -> (dtype, old words, new words)."""
    source = random.Random(5)
    pair = {}

    def add(name, dtype, old, new):
        pair[name] = (dtype, old, new)

    weights = [bf16_word(source) for _ in range(300_000)]
    add("layer.0.weight", "BF16", weights, step_like(source, weights, 0.002, 16))
    dense = [bf16_word(source) for _ in range(20_000)]
    add("layer.1.weight", "BF16", dense, step_like(source, dense, 0.4, 16))
    add("norm, \"quoted\"", "BF16", weights[:1000], [w + 1 for w in weights[:1000]])
    add("idle.weight", "BF16", weights[:5000], weights[:5000])
    strange = [0x0000, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0xFFFF, 0x0001, 0x8001] * 20
    add("strange", "BF16", strange, [source.choice(strange) for _ in strange])
    any16 = [source.getrandbits(16) for _ in range(3000)]
    add("any.bf16", "BF16", any16, [source.getrandbits(16) if source.random() < 0.3 else w for w in any16])
    add("half", "F16", any16, [w ^ (source.random() < 0.05) for w in any16])
    eights = [source.getrandbits(8) for _ in range(4000)]
    add("eight", "F8_E4M3", eights, [w + 1 & 255 if source.random() < 0.02 else w for w in eights])
    add("bytes", "U8", eights, [w ^ 3 if source.random() < 0.1 else w for w in eights])
    wide = [source.getrandbits(32) for _ in range(2000)]
    add("master", "F32", wide, [w + source.randrange(-500, 500) & 0xFFFFFFFF for w in wide])
    counters = [source.getrandbits(64) for _ in range(500)]
    add("counters", "I64", counters, [w + 1 & (1 << 64) - 1 for w in counters])
    return pair


def write_checkpoint(directory, pair, place):
    directory.mkdir()
    header, data = {}, b""
    for name, (dtype, *both) in pair.items():
        words = frame_reader.bytes_of(both[place], FORMATS[dtype].word_bits)
        header[name] = {"dtype": dtype, "shape": [len(both[place])], "data_offsets": [len(data), len(data) + len(words)]}
        data += words
    text = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def entropy(part, whole):
    if part in (0, whole):
        return 0.0
    return part * math.log2(whole / part) + (whole - part) * math.log2(whole / (whole - part))


def bound_bits(dtype, old, new):
    """docs/conditional-bound.md, in the plainest way; None: no bound."""
    form = FORMATS[dtype]
    if form.exponent_bits == 0:
        return None
    sign = 1 << (form.word_bits - 1)

    def place(word):
        return -(word & sign - 1) if word & sign else word

    counts = {}
    for before, after in zip(old, new):
        count = counts.setdefault(before >> form.exponent_shift & (1 << form.exponent_bits) - 1, [0, 0, {}])
        count[0] += 1
        if before != after:
            count[1] += 1
            step = (place(after) - place(before)) * (-1 if before & sign else 1)
            count[2][step] = count[2].get(step, 0) + 1
    bits = 0.0
    for elements, changed, steps in counts.values():
        bits += entropy(changed, elements)
        if 0 < changed < elements:
            bits += 0.5 * math.log2(elements)
        bits += sum(count * math.log2(changed / count) for count in steps.values())
        if len(steps) > 1:
            bits += (len(steps) - 1) * 0.5 * math.log2(max(2, changed))
    return bits


def diff(*arguments):
    command = [WEFT, "diff", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class DiffTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        root = pathlib.Path(cls.folder.name)
        cls.pair = make_pair()
        cls.old, cls.new, cls.delta = root / "old", root / "new", root / "step.weft"
        write_checkpoint(cls.old, cls.pair, 0)
        write_checkpoint(cls.new, cls.pair, 1)
        cls.json = json.loads(diff(cls.old, cls.new, "-o", cls.delta, "--json"))

    def changed(self, name):
        _, old, new = self.pair[name]
        return sum(before != after for before, after in zip(old, new))

    def test_counts_are_those_of_the_files(self):
        changed = {name: self.changed(name) for name in self.pair}
        self.assertEqual({t["name"]: t["changed"] for t in self.json["tensors"]}, {n: c for n, c in changed.items() if c})
        self.assertEqual(self.json["changed_elements"], sum(changed.values()))
        self.assertEqual(self.json["total_elements"], sum(len(old) for _, old, _ in self.pair.values()))
        self.assertEqual(self.json["file_bytes"], self.delta.stat().st_size)
        self.assertAlmostEqual(self.json["bytes_per_changed"] * sum(changed.values()), self.delta.stat().st_size, places=3)

    def test_the_bound_is_the_formula_of_the_document(self):
        bound_bytes = covered = bare_bytes = 0
        for tensor in self.json["tensors"]:
            with self.subTest(tensor=tensor["name"]):
                bits = bound_bits(*self.pair[tensor["name"]])
                if bits is None:
                    self.assertIsNone(tensor["bound_bytes_per_changed"])
                    self.assertIsNone(tensor["ratio_to_bound"])
                    bare_bytes += tensor["bytes"]
                    continue
                bound = tensor["bound_bytes_per_changed"] * tensor["changed"]
                self.assertAlmostEqual(bound, bits / 8, delta=1e-5 * bits)
                bound_bytes += bits / 8
                covered += tensor["changed"]
                if bits == 0:  # every element did the same: nothing to say
                    self.assertIsNone(tensor["ratio_to_bound"])
                else:
                    self.assertAlmostEqual(tensor["ratio_to_bound"], tensor["bytes"] / bound, places=4)
        self.assertAlmostEqual(self.json["bound_bytes_per_changed"] / (bound_bytes / covered), 1, places=5)
        expected = (self.json["file_bytes"] - bare_bytes) / bound_bytes
        self.assertAlmostEqual(self.json["ratio_to_bound"], expected, places=4)

    def test_csv_has_the_columns_of_the_document_and_the_same_numbers(self):
        text = diff(self.old, self.new, "--format", "csv")
        documented = re.search(r"^    (tensor,dtype,.*)$", JSON_DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual(text.splitlines()[0], documented.group(1))
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual([row["tensor"] for row in rows], sorted(self.pair) + ["total"])
        for row in rows[:-1]:
            self.assertEqual(int(row["changed"]), self.changed(row["tensor"]))
            self.assertEqual(row["dtype"], self.pair[row["tensor"]][0])
        total = rows[-1]
        self.assertEqual(int(total["changed"]), sum(int(row["changed"]) for row in rows[:-1]))
        self.assertEqual(int(total["bytes"]), self.json["file_bytes"])
        chunks = [key for key in total if key.endswith("_chunks")]
        self.assertEqual(len(chunks), 8)
        for key in chunks:
            self.assertEqual(int(total[key]), sum(int(row[key]) for row in rows[:-1]))
            self.assertEqual(int(total[key]), self.json["types"][key.removesuffix("_chunks")]["chunks"])
        idle = next(row for row in rows if row["tensor"] == "idle.weight")
        self.assertEqual((idle["changed"], idle["bytes_per_changed"], idle["ratio_to_bound"]), ("0", "", ""))

    def test_the_table_names_the_total_and_the_largest_tensors(self):
        text = diff(self.old, self.new, "--tensors", "2")
        self.assertIn("B/change", text)
        self.assertIn("layer.0.weight", text)
        self.assertNotIn("strange", text)
        self.assertIn("strange", diff(self.old, self.new, "--tensors", "0"))

    def test_equal_checkpoints_have_no_measure_per_change(self):
        answer = json.loads(diff(self.old, self.old, "--format", "json"))
        self.assertEqual((answer["changed_elements"], answer["tensors"], answer["changed_fraction"]), (0, [], 0))
        for key in ("bytes_per_changed", "bound_bytes_per_changed", "ratio_to_bound"):
            self.assertIsNone(answer[key])
        self.assertEqual(answer["base_root"], answer["target_root"])

    def test_the_delta_file_holds_the_new_bits_for_a_reader_of_the_documents(self):
        for profile in ("compact", "fast"):
            with self.subTest(profile=profile):
                diff(self.old, self.new, "-o", self.delta, "--profile", profile)
                self.expect_new_bits(self.delta.read_bytes())

    def expect_new_bits(self, data):
        self.assertEqual((data[:8], data[-40:-32]), (b"WEFTDLTA", b"WEFTDEND"))
        frames_bytes, _, manifest_bytes = struct.unpack_from("<QQI", data, len(data) - 32)
        self.assertEqual(64 + frames_bytes + manifest_bytes + 40, len(data))
        chunks = []  # of the default lattice: (format, old bytes, new bytes)
        for name in sorted(self.pair, key=str.encode):
            dtype, old, new = self.pair[name]
            form = FORMATS[dtype]
            most = min(262_144, 524_288 * 8 // form.word_bits)
            for at in range(0, len(old), most):
                both = (frame_reader.bytes_of(words[at : at + most], form.word_bits) for words in (old, new))
                chunks.append((form, *both))
        sent = set()
        for frame in frame_reader.read_frames(data[64 : 64 + frames_bytes]):
            for entry in frame.entries:
                form, old, new = chunks[entry.chunk]
                self.assertTrue(frame_reader.decode_chunk(entry, old, form) == new, f"chunk {entry.chunk}")
                sent.add(entry.chunk)
        self.assertEqual(sent, {i for i, (_, old, new) in enumerate(chunks) if old != new})


if __name__ == "__main__":
    WEFT = sys.argv.pop(1)
    unittest.main()
