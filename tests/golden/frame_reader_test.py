#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden frames and the example of docs/formats/frame.md, read by the reader that was written from that document."""

import pathlib
import re
import struct
import unittest

import frame_reader

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "docs" / "formats" / "frame.md"
# As golden_values.hpp.
KINDS = ((frame_reader.BF16, 9000), (frame_reader.F16, 1000), (frame_reader.F8_E4M3, 5000),
         (frame_reader.Format(8), 777), (frame_reader.Format(32), 600), (frame_reader.Format(64), 301))  # fmt: skip
NAMES = {"classed": 1, "sparse": 2, "xor": 3, "overwrite": 4, "planes": 5, "raw": 6, "bytes": 7}
ALL_64 = (1 << 64) - 1


def golden_chunk(form, element_count, seed):
    """Old and new bytes, from the same integer arithmetic as golden_values.hpp."""
    state = seed

    def draw():
        nonlocal state
        state = (state * 6364136223846793005 + 1442695040888963407) & ALL_64
        return state >> 33

    mask = (1 << form.word_bits) - 1
    old, new = [], []
    for _ in range(element_count):
        exponent = 127
        while exponent > 112 and draw() % 2 == 0:
            exponent -= 1
        top = draw() % 2 << 15 | exponent << 7
        top |= draw() % 128
        before = top << 48 & ALL_64
        before |= draw() << 17
        before |= draw() % 131072
        before >>= 64 - form.word_bits
        after = before
        if draw() % 4096 < 20 << (127 - exponent):
            kind = draw() % 16
            after += 1 if kind < 7 else -1 if kind < 14 else draw() % 64 - 32
            if draw() % 64 == 0:
                after = draw() << 33
                after |= draw()
        old.append(before & mask)
        new.append(after & mask)
    return tuple(frame_reader.bytes_of(words, form.word_bits) for words in (old, new))


def golden_frame(name):
    return (HERE / f"frame-v1-{name}.bin").read_bytes()


class FrameDocumentTest(unittest.TestCase):
    def test_golden_frames_of_every_type_decode_bit_by_bit(self):
        for name, number in NAMES.items():
            frame = frame_reader.read_frame(golden_frame(name))
            self.assertEqual((frame.sequence, frame.producer, frame.attempt, frame.epoch_number), (number, 2, 3, 7))
            self.assertEqual(len(frame.entries), 3 if name == "classed" else 6)
            for entry in frame.entries:
                with self.subTest(type=name, chunk=entry.chunk):
                    form, element_count = KINDS[entry.chunk]
                    old, new = golden_chunk(form, element_count, entry.chunk + 1)
                    self.assertNotEqual(old, new)
                    self.assertEqual(entry.type, number)
                    self.assertEqual(frame_reader.decode_chunk(entry, old, form), new)

    def test_any_flipped_bit_of_a_frame_is_seen(self):
        frame = golden_frame("sparse")
        for bit in range(0, 8 * len(frame), 37):
            broken = bytearray(frame)
            broken[bit // 8] ^= 1 << bit % 8
            with self.subTest(bit=bit), self.assertRaises(frame_reader.FrameError):
                frame_reader.read_frame(bytes(broken))

    def test_a_wrong_base_is_seen(self):
        entry = frame_reader.read_frame(golden_frame("classed")).entries[0]
        old = bytearray(golden_chunk(*KINDS[0], 1)[0])
        old[17] ^= 1
        with self.assertRaises(frame_reader.FrameError):
            frame_reader.decode_chunk(entry, bytes(old), frame_reader.BF16)

    def test_the_example_of_the_document_is_right(self):
        text = DOCUMENT.read_text(encoding="utf-8").split("\n## Example\n")[1]
        shown, explained = text.split("The payload's bits, first to last:\n\n")
        rows = re.findall(r"^    ((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  .*)?$", shown, re.MULTILINE)
        frame = frame_reader.read_frame(bytes.fromhex(" ".join(rows)))
        self.assertEqual((frame.fleet, frame.lattice), (struct.pack("<QQ", 1, 2), struct.pack("<QQ", 3, 4)))
        self.assertEqual((frame.epoch_number, frame.epoch_coordinator, frame.attempt), (7, 9, 1))
        (entry,) = frame.entries
        self.assertEqual((entry.chunk, entry.type, entry.changed_count), (5, frame_reader.SPARSE, 3))
        lines = explained.split("\n\n")[0].splitlines()
        digits = "".join(re.match(r"    ([01 ]+)", line).group(1) for line in lines)
        self.assertEqual(digits.replace(" ", ""), frame_reader.Bits(entry.payload).text)
        # The document names the words that change and their places; the others it does not.
        changes = {1: (0x3C00, 0x3C01), 4: (0x8000, 0x0000), 6: (0x3E20, 0x3E1F)}
        old = [changes.get(place, (0, 0))[0] for place in range(8)]
        decoder = frame_reader._Decoder(entry, old, frame_reader.BF16)
        self.assertEqual(decoder.sparse(), 3)
        self.assertEqual(decoder.new, [changes.get(place, (0, 0))[1] for place in range(8)])


if __name__ == "__main__":
    unittest.main()
