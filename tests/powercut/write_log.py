# SPDX-License-Identifier: Apache-2.0
"""The writes that a guest's disk got, in order, and the disks that a power cut would have left (run_guest.sh --disk-log)."""

import random
import shutil
import struct

FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
MAGIC = 0x6A736677736872
SECTOR = 512


def entry_count(path):
    """Of a log that may still grow: QEMU renews the count with every entry."""
    with open(path, "rb") as log:
        head = log.read(28)
    return struct.unpack("<QQQI", head)[2] if len(head) == 28 else 0


class WriteLog:
    """Entries of a log in the kernel's log-writes format: (offset, bytes, flags, place of the data in the log)."""

    def __init__(self, path):
        self.path = path
        self.entries = list(self._read())

    def _read(self):
        with open(self.path, "rb") as log:
            magic, version, count, size = struct.unpack("<QQQI", log.read(28))
            if magic != MAGIC or version != 1:
                raise ValueError(f"{self.path}: not a write log")
            place = size
            for _ in range(count):
                log.seek(place)
                sector, sectors, flags, mark_bytes = struct.unpack("<QQQQ", log.read(32))
                stored = 0 if flags & DISCARD else sectors * size
                if flags & MARK:
                    stored = -(-mark_bytes // size) * size
                yield sector * size, sectors * size, flags, place + size
                place += size + stored

    def safe(self, to):
        """Of the first `to` entries, how many are on the medium for certain: those before the last flush."""
        return next((i + 1 for i in range(to - 1, -1, -1) if self.entries[i][2] & FLUSH), 0)

    def build(self, base, out, to, seed=None, tear=False):
        """`out` becomes the disk after a cut behind entry `to`.

        Without a seed the disk had kept all it was given. With one it loses a random part of what came after the last
        flush that it completed, as a volatile cache may, in any order; with `tear` one lost write is there up to a sector
        in its middle. Returns how many writes are lost.
        """
        safe = self.safe(to)
        chance = random.Random(seed)
        share = chance.random()
        late = [i for i in range(safe, to)
                if seed is None or self.entries[i][2] & FUA or chance.random() < share]  # fmt: skip
        lost = sorted(set(range(safe, to)) - set(late))
        torn = [i for i in lost if not self.entries[i][2] & (DISCARD | MARK) and self.entries[i][1] >= 2 * SECTOR]
        torn = chance.choice(torn) if tear and torn else None
        shutil.copyfile(base, out)
        with open(self.path, "rb") as log, open(out, "r+b") as disk:
            for i in sorted([*range(safe), *late, *([] if torn is None else [torn])]):
                offset, size, flags, place = self.entries[i]
                if flags & MARK or size == 0:
                    continue
                log.seek(place)
                data = bytes(size) if flags & DISCARD else log.read(size)
                if i == torn:
                    data = data[:chance.randrange(1, size // SECTOR) * SECTOR]
                disk.seek(offset)
                disk.write(data)
        return len(lost)
