#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A disk that writes down, in order, every write and flush that it gets: recorded_disk.py IMAGE LOG MOUNTPOINT

MOUNTPOINT gets one file, `disk`, backed by IMAGE: a loop device on it is a block device of this kernel, at full speed. The
log has the kernel's log-writes format (write_log.py). Speaks the FUSE protocol itself; needs root. Ends when the
mountpoint is unmounted. Says "ready" on stdout.
"""

import ctypes
import errno
import os
import stat
import struct
import sys

LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE = 1, 2, 3, 4, 14, 15, 16, 17, 18
FSYNC, FLUSH, INIT, INTERRUPT, DESTROY, BATCH_FORGET = 20, 25, 26, 36, 38, 42
ASYNC_READ, BIG_WRITES, MAX_PAGES = 1 << 0, 1 << 5, 1 << 22
WRITE_BYTES_MAX = 1 << 20
ROOT, DISK = 1, 2
SECTOR = 512
MAGIC = 0x6A736677736872
SILENT = (FORGET, BATCH_FORGET, INTERRUPT)


class Recorder:
    """The log; its count is right after every entry."""

    def __init__(self, path):
        self.log = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self.count, self.place = 0, SECTOR
        self._head()

    def _head(self):
        os.pwrite(self.log, struct.pack("<QQQI", MAGIC, 1, self.count, SECTOR), 0)

    def note(self, offset, data, flags=0):
        size = -(-len(data) // SECTOR) * SECTOR
        head = struct.pack("<QQQQ", offset // SECTOR, size // SECTOR, flags, 0).ljust(SECTOR, b"\0")
        os.pwrite(self.log, head + data.ljust(size, b"\0"), self.place)
        self.place += SECTOR + size
        self.count += 1
        self._head()


class RecordedDisk:
    def __init__(self, image, log, mountpoint):
        self.image = os.open(image, os.O_RDWR)
        self.size = os.fstat(self.image).st_size
        self.recorder = Recorder(log)
        self.fuse = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.fuse},rootmode=40000,user_id=0,group_id=0,allow_other"
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"weft-recorded-disk", os.fsencode(mountpoint), b"fuse", 6, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), "cannot mount", mountpoint)

    def attributes(self, node):
        mode, size = (stat.S_IFDIR | 0o755, 0) if node == ROOT else (stat.S_IFREG | 0o600, self.size)
        return struct.pack("<6Q10I", node, size, size // SECTOR, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def answer(self, opcode, node, body):
        """The bytes of the reply; OSError for an error."""
        if opcode == INIT:
            offered = struct.unpack_from("<4I", body)[3]
            flags = offered & (ASYNC_READ | BIG_WRITES | MAX_PAGES)
            return struct.pack("<4I2H2I2H2I12H", 7, 31, 131072, flags, 16, 12, WRITE_BYTES_MAX, 1,
                               WRITE_BYTES_MAX // 4096, 0, 0, 0, *[0] * 12)  # fmt: skip
        if opcode == LOOKUP:
            if body.rstrip(b"\0") != b"disk":
                raise OSError(errno.ENOENT, "")
            return struct.pack("<4Q2I", DISK, 0, 3600, 3600, 0, 0) + self.attributes(DISK)
        if opcode in (GETATTR, SETATTR):
            return struct.pack("<Q2I", 3600, 0, 0) + self.attributes(node)
        if opcode == OPEN:
            return struct.pack("<Q2I", 1, 0, 0)
        if opcode == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return os.pread(self.image, size, offset)
        if opcode == WRITE:
            _, offset, size = struct.unpack_from("<QQI", body)
            data = body[40:40 + size]
            os.pwrite(self.image, data, offset)
            self.recorder.note(offset, data)
            return struct.pack("<2I", size, 0)
        if opcode == FSYNC:
            self.recorder.note(0, b"", flags=1)
            return b""
        if opcode in (FLUSH, RELEASE, DESTROY):
            return b""
        if opcode == STATFS:
            return struct.pack("<5Q4I24x", self.size // 4096, 0, 0, 2, 0, 4096, 255, 4096, 0)
        raise OSError(errno.ENOSYS, "")

    def serve(self):
        while True:
            try:
                request = os.read(self.fuse, WRITE_BYTES_MAX + 8192)
            except InterruptedError:
                continue
            except OSError as problem:
                if problem.errno == errno.ENODEV:
                    return  # unmounted
                raise
            _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
            try:
                body, error = self.answer(opcode, node, request[40:]), 0
            except OSError as problem:
                body, error = b"", -problem.errno
            if opcode not in SILENT:
                os.write(self.fuse, struct.pack("<IiQ", 16 + len(body), error, unique) + body)


if __name__ == "__main__":
    disk = RecordedDisk(*sys.argv[1:4])
    print("ready", flush=True)
    disk.serve()
