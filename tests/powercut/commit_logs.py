# SPDX-License-Identifier: Apache-2.0
"""A second reader of the commit logs, written from docs/formats/record-log.md and commit-logs.md alone.

Reads a log as a start of weft would, before one has touched it: a torn last record is left out.
"""

import ctypes
import struct

KINDS = {"state": {1: "epoch", 2: "begin", 3: "prepared", 4: "commit", 5: "applied", 6: "hooked", 7: "abort", 8: "reseed"},
         "decisions": {1: "fleet", 2: "start", 3: "content", 4: "decision", 5: "acked", 6: "forgotten"}}  # fmt: skip

_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def check_of(data):
    return _xxhash.XXH3_64bits(data, len(data))


class Unreadable(Exception):
    """A bad record before a good one, or no log at all."""


def _record_at(data, place):
    """(sequence, kind, payload, next place), or None when no whole record is there."""
    head = data[place:place + 24]
    if len(head) < 24 or head[:4] != b"WREC":
        return None
    size, sequence, kind, zero, check = struct.unpack("<IIHHQ", head[4:])
    payload = data[place + 24:place + 24 + size]
    if zero or len(payload) < size or check_of(head[:16] + payload) != check:
        return None
    return sequence, kind, payload, place + 24 + -(-size // 8) * 8


def raw_records(data):
    """(kind, payload) of a record log's bytes."""
    if data[:8] != b"WEFTRLOG" or check_of(data[:56]) != struct.unpack("<Q", data[56:64])[0]:
        raise Unreadable("header")
    place, records = 64, []
    while record := _record_at(data, place):
        if record[0] != len(records):
            raise Unreadable(f"record {record[0]} where {len(records)} belongs")
        records.append(record[1:3])
        place = record[3]
    later = data.find(b"WREC", place + 1)
    while later >= 0:
        if later % 8 == 0 and _record_at(data, later):
            raise Unreadable(f"a bad record at {place}, a good one at {later}")
        later = data.find(b"WREC", later + 1)
    return records


class _Fields:
    def __init__(self, payload):
        self.payload, self.place = payload, 0

    def take(self, count):
        self.place += count
        return self.payload[self.place - count:self.place]

    def number(self, count):
        return int.from_bytes(self.take(count), "little")

    def refit(self):
        return self.number(8), self.take(8).hex(), self.number(4)

    def content(self):
        return {"version": self.number(8), "lattice": self.take(16).hex(), "root": self.take(16).hex()}

    def string(self):
        return self.take(self.number(4)).decode()

    def cause(self):
        return self.number(1), self.string()


def _decode(kind, payload):
    fields, record = _Fields(payload), {"kind": kind}
    if kind in ("begin", "prepared", "commit", "hooked", "abort", "decision", "acked", "forgotten"):
        record["refit"] = fields.refit()
    if kind == "begin":
        record |= {"base": fields.content(), "version": fields.number(8)}
    elif kind == "prepared":
        record |= {"base": fields.content(), "target": fields.content()}
    elif kind == "commit":
        record["target"] = fields.content()
    elif kind == "applied":
        record["refit"] = fields.refit() if fields.number(1) else None
        record["content"] = fields.content()
    elif kind == "content":
        record["content"] = fields.content()
    elif kind == "acked":
        record["member"] = fields.string()
    elif kind == "decision":
        record["verdict"] = {1: "commit", 2: "abort"}[fields.number(1)]
        flags = fields.number(1)
        record |= {"base": fields.content(), "target": fields.content()}
        if flags & 2:
            record["cause"] = fields.cause()
        record["planned"] = [fields.string() for _ in range(fields.number(4))]
    return record


def read(path, log):
    """The records of a file; `log` is "state" or "decisions". A file that is not there yet has none."""
    if not path.exists():
        return []
    return [_decode(KINDS[log][kind], payload) for kind, payload in raw_records(path.read_bytes())]


def committed_version(decisions):
    """What the decision log says is committed (one coordinator start; no operator)."""
    contents = [r["content"]["version"] for r in decisions if r["kind"] == "content"]
    commits = [r["target"]["version"] for r in decisions if r["kind"] == "decision" and r["verdict"] == "commit"]
    return max(contents + commits, default=0)


def applied_version(state):
    return max((r["content"]["version"] for r in state if r["kind"] == "applied"), default=0)


def phase(state):
    """Where the last refit of an agent stands."""
    kinds = [r["kind"] for r in state if r["kind"] not in ("epoch", "hooked")]
    return kinds[-1] if kinds else "nothing"
