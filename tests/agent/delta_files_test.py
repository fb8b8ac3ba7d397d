#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`weft diff -o` and `weft apply` on checkpoints that need care: every type, no alignment, a header that nobody would write
twice, a tensor of more than 4 GiB. The result is compared byte by byte with files that Python wrote.

delta_files_test.py WEFT [large]: without `large` everything but the large tensor.
"""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

WEFT = ""
SECONDS_MAX = 240
BLOCK_BYTES = 64 << 20
# All types of the format, bits of one element.
TYPES = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
         "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
         "C64": 64, "F64": 64, "I64": 64, "U64": 64}  # fmt: skip


def weft(*arguments):
    done = subprocess.run([WEFT, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shard(header_text, data):
    text = header_text.encode()
    return struct.pack("<Q", len(text)) + text + data


class DeltaFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def directory(self, name, file_bytes):
        path = self.root / name
        path.mkdir()
        (path / "model.safetensors").write_bytes(file_bytes)
        return path

    def carry(self, old, new, profile="compact"):
        """A copy of `old` that got the delta from `old` to `new`; what diff told."""
        delta, copy = self.root / "step.weft", self.root / "copy"
        delta.unlink(missing_ok=True)
        shutil.rmtree(copy, ignore_errors=True)
        told = json.loads(weft("diff", old, new, "-o", delta, "--profile", profile, "--json"))
        shutil.copytree(old, copy)
        weft("apply", copy, delta)
        return (copy / "model.safetensors").read_bytes(), told

    def assert_arrives(self, old_bytes, new_bytes, changed):
        old, new = self.directory("old", old_bytes), self.directory("new", new_bytes)
        for profile in ("compact", "fast"):
            with self.subTest(profile=profile):
                arrived, told = self.carry(old, new, profile)
                self.assertEqual(arrived, new_bytes)
                self.assertEqual(told["changed_elements"], changed)

    def test_every_type_differs_in_one_byte(self):
        header, data, places = {}, b"", []
        for i, (name, bits) in enumerate(TYPES.items()):
            count = 4 + 4 * (i % 3)  # whole bytes whatever the type
            size = count * bits // 8
            header[f"t.{name}"] = {"dtype": name, "shape": [count], "data_offsets": [len(data), len(data) + size]}
            places.append(len(data) + i % size)
            data += bytes((17 * i + 29 * k) % 251 for k in range(size))
        header["step"] = {"dtype": "I64", "shape": [], "data_offsets": [len(data), len(data) + 8]}
        data += struct.pack("<q", 41)
        header["empty"] = {"dtype": "BF16", "shape": [0, 5], "data_offsets": [len(data), len(data)]}
        header["flags"] = {"dtype": "BOOL", "shape": [2], "data_offsets": [len(data), len(data) + 2]}
        data += b"\x00\x01"
        changed = bytearray(data)
        for place in places:
            changed[place] ^= 0x5A
        changed[-10:-2] = struct.pack("<q", 42)
        changed[-2] = 0x5A  # no truth value, and still what the file holds
        # One element each: the changed byte lies in one; of types below a byte whole bytes are counted.
        text = json.dumps(header)
        self.assert_arrives(shard(text, data), shard(text, bytes(changed)), len(TYPES) + 2)

    def test_bits_that_floats_call_equal_and_bits_that_floats_call_different(self):
        nan = struct.pack("<II", 0x7FC00001, 0xFFC00002)
        header = json.dumps({"c": {"dtype": "C64", "shape": [3], "data_offsets": [0, 24]},
                             "d": {"dtype": "F64", "shape": [2], "data_offsets": [24, 40]}})  # fmt: skip
        old = nan + struct.pack("<ff", -0.0, 0.0) + nan + struct.pack("<dd", float("nan"), -0.0)
        new = nan + struct.pack("<ff", 0.0, 0.0) + nan + struct.pack("<dd", float("nan"), 0.0)
        self.assert_arrives(shard(header, old), shard(header, new), 2)

    def test_tensors_of_odd_sizes_back_to_back_change_in_their_last_byte(self):
        sizes = (1, 7, 8, 31, 33, 4097)
        header, at = {}, 0
        for size in sizes:
            header[f"u{size}"] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
            at += size
        header["b"] = {"dtype": "BF16", "shape": [2], "data_offsets": [at, at + 4]}  # at an odd offset
        data = bytes(k * 7 % 256 for k in range(at + 4))
        changed = bytearray(data)
        for entry in header.values():
            changed[entry["data_offsets"][1] - 1] ^= 1
        text = json.dumps(header)
        text += " " * ((1 - len(text)) % 8)  # the data begins at an odd address
        self.assert_arrives(shard(text, data), shard(text, bytes(changed)), len(header))

    def test_the_header_stays_as_it_was_written(self):
        text = ' {\n"__metadata__" : {"z":"1",\t"format":"pt"},"w":{"data_offsets":[0,4],"shape":[2],"dtype":"BF16"}} \n\n  '
        self.assert_arrives(shard(text, b"\x00\x3f\x80\x3f"), shard(text, b"\x00\x3f\x81\x3f"), 1)


    def test_errors_name_the_directory_and_what_to_do(self):
        whole = shard('{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}', b"abcd")
        sound, cut = self.directory("sound", whole), self.directory("cut", whole[:-1])
        for directory, code in ((cut, "format"), (self.root / "none", "config"), (cut / "model.safetensors", "config")):
            for command in (["verify", directory], ["diff", sound, directory], ["diff", directory, sound]):
                with self.subTest(command=command[0], directory=directory.name):
                    done = subprocess.run([WEFT, *map(str, command)], capture_output=True, text=True, timeout=60, check=False)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(f"weft: {code} ", done.stderr)
                    self.assertIn(str(directory), done.stderr)
                    self.assertIn("next: fix the request", done.stderr)


class LargeTensor(DeltaFiles):
    """Positions beyond 32 bits, on files with holes: few blocks are on the disk until they are applied to."""

    SIZE = 5 << 30
    PLACES = (0, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, SIZE - 1)

    def sparse(self, name, value):
        path = self.root / name
        path.mkdir()
        text = json.dumps({"w": {"dtype": "U8", "shape": [self.SIZE], "data_offsets": [0, self.SIZE]}})
        with open(path / "model.safetensors", "wb") as file:
            file.write(shard(text, b""))
            start = file.tell()
            file.truncate(start + self.SIZE)
            for place in self.PLACES if value else ():
                file.seek(start + place)
                file.write(bytes([value]))
        return path, start

    def test_exactly_the_changed_bytes_differ_beyond_four_gib(self):
        if shutil.disk_usage(self.root).free < 8 << 30:
            self.fail(f"{self.root} needs 8 GiB of room: set TMPDIR to a larger disk")
        new, _ = self.sparse("new", 9)
        for profile in ("compact", "fast"):
            with self.subTest(profile=profile):
                old, start = self.sparse(profile, 0)
                delta = self.root / f"{profile}.weft"
                told = json.loads(weft("diff", old, new, "-o", delta, "--profile", profile, "--json"))
                self.assertEqual(told["changed_elements"], len(self.PLACES))
                weft("apply", old, delta, "--state", self.root / f"{profile}-state")
                self.assert_zero_but_for(old / "model.safetensors", start)
                shutil.rmtree(old)

    def assert_zero_but_for(self, path, start):
        expected = {place: 9 for place in self.PLACES}
        zeros = bytes(BLOCK_BYTES)
        with open(path, "rb") as file:
            self.assertEqual(os.fstat(file.fileno()).st_size, start + self.SIZE)
            file.seek(start)
            for at in range(0, self.SIZE, BLOCK_BYTES):
                block = file.read(BLOCK_BYTES)
                wanted = zeros
                here = [place - at for place in self.PLACES if at <= place < at + BLOCK_BYTES]
                if here:
                    wanted = bytearray(zeros)
                    for place in here:
                        wanted[place] = expected[at + place]
                self.assertTrue(block == wanted, f"other bytes within {BLOCK_BYTES} from {at}")


if __name__ == "__main__":
    WEFT = sys.argv[1]
    large = sys.argv[2:] == ["large"]
    cases = unittest.defaultTestLoader.loadTestsFromTestCase(DeltaFiles)
    if large:
        cases = unittest.TestSuite([LargeTensor("test_exactly_the_changed_bytes_differ_beyond_four_gib")])
    outcome = unittest.TextTestRunner(verbosity=2).run(cases)
    sys.exit(0 if outcome.wasSuccessful() and outcome.testsRun else 1)
