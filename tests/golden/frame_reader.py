# SPDX-License-Identifier: Apache-2.0
"""A second reader of frames, written from docs/formats/frame.md alone: what the document says must be enough.

Slow and plain on purpose; nothing of codec/ went into it. XXH3 and zstd come from the system's libraries.
"""

import ctypes
import struct
from typing import NamedTuple

SAME, CLASSED, SPARSE, XOR, OVERWRITE, PLANES, RAW, BYTES = range(8)
HEADER = struct.Struct("<4sHH16sQQ16sIIIIII32s16s")
ENTRY = struct.Struct("<IIIQ")
CHECKSUM_OFFSET = 112
GOLOMB_ESCAPE_ZEROS = 24
MAGNITUDE_ESCAPE_ZEROS = 20
MAGNITUDE_BITS_MAX = 10


class FrameError(Exception):
    """The bytes are not what the document says."""


def require(condition, what):
    if not condition:
        raise FrameError(what)


class _Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_128bits.restype = _Hash128
_xxhash.XXH3_64bits.argtypes = _xxhash.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_zstd = ctypes.CDLL("libzstd.so.1")
_zstd.ZSTD_decompress.restype = ctypes.c_size_t
_zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]


def digest64(data):
    return _xxhash.XXH3_64bits(data, len(data))


def digest128(data):
    """As stored: low half first."""
    both = _xxhash.XXH3_128bits(data, len(data))
    return struct.pack("<QQ", both.low, both.high)


class Entry(NamedTuple):
    chunk: int
    type: int
    changed_count: int
    new_digest: int
    payload: bytes


class Frame(NamedTuple):
    fleet: bytes
    epoch_number: int
    epoch_coordinator: int
    lattice: bytes
    attempt: int
    producer: int
    sequence: int
    entries: list


class Format(NamedTuple):
    """Elements: bits of a word, and the exponent field (0 bits: none, so no classes)."""

    word_bits: int
    exponent_bits: int = 0
    exponent_shift: int = 0


BF16 = Format(16, 8, 7)
F16 = Format(16, 5, 10)
F8_E4M3 = Format(8, 4, 3)
F8_E5M2 = Format(8, 5, 2)


def read_frame(data):
    require(len(data) >= HEADER.size, "shorter than a header")
    (magic, version, header_bytes, fleet, epoch_number, epoch_coordinator, lattice, attempt, producer, sequence,
     chunk_count, index_bytes, payload_bytes, reserved, checksum) = HEADER.unpack_from(data)  # fmt: skip
    require(magic == b"WFRM", "magic")
    require(version == 1, "format_version")
    require(header_bytes == HEADER.size, "header_bytes")
    require(1 <= chunk_count <= 16384, "chunk_count")
    require(index_bytes == ENTRY.size * chunk_count, "index_bytes")
    require(len(data) == header_bytes + index_bytes + payload_bytes, "length of the frame")
    require(reserved == bytes(32), "reserved")
    zeroed = data[:CHECKSUM_OFFSET] + bytes(16) + data[HEADER.size :]
    require(digest128(zeroed) == checksum, "checksum")
    entries = []
    at = header_bytes + index_bytes
    for i in range(chunk_count):
        chunk, type_and_bytes, changed, digest = ENTRY.unpack_from(data, header_bytes + ENTRY.size * i)
        size = type_and_bytes & 0xFFFFFFF
        require(not entries or entries[-1].chunk < chunk, "chunk numbers ascend")
        require(changed >= 1, "changed_count")
        entries.append(Entry(chunk, type_and_bytes >> 28, changed, digest, data[at : at + size]))
        at += size
    require(at == len(data), "payload_bytes")
    return Frame(fleet, epoch_number, epoch_coordinator, lattice, attempt, producer, sequence, entries)


def read_frames(data):
    """Frames that lie one behind the other and fill data."""
    at = 0
    while at < len(data):
        require(len(data) - at >= HEADER.size, "shorter than a header")
        index_bytes, payload_bytes = struct.unpack_from("<II", data, at + 72)
        end = at + HEADER.size + index_bytes + payload_bytes
        yield read_frame(data[at:end])
        at = end


class Bits:
    """Bits from the lowest of the first byte upwards; numbers have their lowest bit first."""

    def __init__(self, data):
        self.text = format(int.from_bytes(data, "little"), f"0{8 * len(data)}b")[::-1] if data else ""
        self.data = data
        self.at = 0

    def number(self, width):
        require(self.at + width <= len(self.text), "payload ends early")
        taken = self.text[self.at : self.at + width]
        self.at += width
        return int(taken[::-1], 2) if width else 0

    def unary(self):
        one = self.text.find("1", self.at)
        require(one >= 0, "payload ends early")
        zeros = one - self.at
        self.at = one + 1
        return zeros

    def padding(self):
        require(self.number(-self.at % 8) == 0, "padding is zero")

    def rest(self):
        require(self.at % 8 == 0, "on a byte")
        return self.data[self.at // 8 :]

    def end(self):
        self.padding()
        require(self.at == len(self.text), "nothing follows")


def read_count(bits):
    width = bits.number(5) + 1
    return 1 << (width - 1) | bits.number(width - 1)


def read_list(bits, count, k, universe):
    require(count <= universe, "more places than there are")
    low = [bits.number(k) for _ in range(count)]
    places = []
    at = 0
    for i in range(count):
        at += bits.unary() << k | low[i]
        require(at < universe, "place lies inside")
        places.append(at)
        at += 1
    return places


def read_sequence(bits, universe):
    """The places that are set, ascending."""
    form = bits.number(5)
    if form == 0:
        return []
    if form == 1:
        require(read_count(bits) == universe, "stated universe")
        return list(range(universe))
    if form == 2:
        require(read_count(bits) == universe, "stated universe")
        return [place for place in range(universe) if bits.number(1)]
    if form < 22:
        return read_list(bits, read_count(bits), form - 3, universe)
    require(read_count(bits) == universe, "stated universe")
    unset = set(read_list(bits, read_count(bits), form - 22, universe))
    return [place for place in range(universe) if place not in unset]


def read_golomb(bits, order):
    """A number, or None: the whole word follows."""
    zeros = bits.unary()
    if zeros == GOLOMB_ESCAPE_ZEROS:
        return None
    require(zeros < GOLOMB_ESCAPE_ZEROS, "golomb")
    high = (1 << zeros | bits.number(zeros)) - 1
    return high << order | bits.number(order)


def read_plane(data, at, size):
    """The bytes of one plane and where the next begins."""
    require(at < len(data), "payload ends early")
    form = data[at]
    at += 1
    if form == 0:
        plane, end = data[at : at + size], at + size
    elif form == 1:
        plane, end = data[at : at + 1] * size, at + 1
    elif form == 2:
        (packed_bytes,) = struct.unpack_from("<I", data, at)
        packed, end = data[at + 4 : at + 4 + packed_bytes], at + 4 + packed_bytes
        require(end <= len(data), "payload ends early")
        room = ctypes.create_string_buffer(size)
        require(_zstd.ZSTD_decompress(room, size, packed, len(packed)) == size, "zstd")
        plane = room.raw
    else:
        raise FrameError(f"plane form {form}")
    require(len(plane) == size and end <= len(data), "payload ends early")
    return plane, end


def read_planes(data, size, count):
    """`size` words of `count` byte planes each, lowest first; all of data."""
    planes = []
    at = 0
    for _ in range(count):
        plane, at = read_plane(data, at, size)
        planes.append(plane)
    require(at == len(data), "nothing follows")
    return [int.from_bytes(word, "little") for word in zip(*planes)]


def unzigzag(word):
    return word >> 1 if word % 2 == 0 else -((word + 1) >> 1)


def words_of(data, word_bits):
    size = word_bits // 8
    return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]


def bytes_of(words, word_bits):
    return b"".join(word.to_bytes(word_bits // 8, "little") for word in words)


class _Decoder:
    """One chunk: old words and payload to new words."""

    def __init__(self, entry, old, form):
        self.entry, self.old, self.form = entry, old, form
        self.new = list(old)
        self.mask = (1 << form.word_bits) - 1

    def add(self, place, step):
        self.new[place] = (self.old[place] + step) & self.mask

    def classed(self):
        form, bits = self.form, Bits(self.entry.payload)
        require(form.exponent_bits > 0 and form.word_bits in (8, 16), "classed needs an exponent field")
        threshold_count = bits.number(3)
        reference = bits.number(form.exponent_bits)
        thresholds = []
        for i in range(threshold_count):
            thresholds.append(thresholds[-1] - bits.number(5) - 1 if i else bits.number(form.exponent_bits))
        exponents = [word >> form.exponent_shift & (1 << form.exponent_bits) - 1 for word in self.old]
        classes = [[] for _ in range(threshold_count + 1)]
        for place, exponent in enumerate(exponents):
            classes[sum(threshold > exponent for threshold in thresholds)].append(place)
        exceptions = []
        changed_count = 0
        for members in classes:
            changed = [members[rank] for rank in read_sequence(bits, len(members))]
            if not changed:
                continue
            changed_count += len(changed)
            ups = [bits.number(1) for _ in changed]
            for place, up in zip(changed, ups):
                self.add(place, 1 if up else -1)
            exceptions += [(changed[i], ups[i]) for i in read_sequence(bits, len(changed))]
        for place, up in exceptions:
            k = max(0, min(MAGNITUDE_BITS_MAX, reference - exponents[place] + 1))
            high = bits.unary()
            if high == MAGNITUDE_ESCAPE_ZEROS:
                self.new[place] = bits.number(form.word_bits)
                continue
            require(high < MAGNITUDE_ESCAPE_ZEROS, "magnitude")
            size = (high << k | bits.number(k)) + 2
            self.add(place, size if up else -size)
        bits.end()
        return changed_count

    def sparse(self):
        bits = Bits(self.entry.payload)
        order = bits.number(5)
        changed = read_sequence(bits, len(self.old))
        ups = [bits.number(1) for _ in changed]
        for place, up in zip(changed, ups):
            self.add(place, 1 if up else -1)
        for i in read_sequence(bits, len(changed)):
            magnitude = read_golomb(bits, order)
            if magnitude is None:
                self.new[changed[i]] = bits.number(self.form.word_bits)
            else:
                self.add(changed[i], magnitude + 2 if ups[i] else -magnitude - 2)
        bits.end()
        return len(changed)

    def xor(self):
        bits = Bits(self.entry.payload)
        order = bits.number(5)
        changed = read_sequence(bits, len(self.old))
        for place in changed:
            number = read_golomb(bits, order)
            self.new[place] ^= bits.number(self.form.word_bits) if number is None else number + 1
        bits.end()
        return len(changed)

    def overwrite(self):
        bits = Bits(self.entry.payload)
        changed = read_sequence(bits, len(self.old))
        bits.padding()
        words = words_of(bits.rest(), self.form.word_bits)
        require(len(bits.rest()) * 8 == len(changed) * self.form.word_bits, "one word per change")
        for place, word in zip(changed, words):
            self.new[place] = word
        return len(changed)

    def planes(self):
        steps = read_planes(self.entry.payload, len(self.old), self.form.word_bits // 8)
        for place, step in enumerate(steps):
            self.add(place, unzigzag(step))
        return sum(step != 0 for step in steps)

    def raw(self):
        self.new = read_planes(self.entry.payload, len(self.old), self.form.word_bits // 8)
        anchor = self.entry.changed_count == len(self.old)
        return len(self.old) if anchor else sum(map(int.__ne__, self.old, self.new))

    def bytes(self):
        payload = self.entry.payload
        (gap_count,) = struct.unpack_from("<I", payload)
        gaps, at = read_plane(payload, 4, gap_count)
        steps, at = read_plane(payload, at, self.entry.changed_count)
        wide = iter(words_of(payload[at:], self.form.word_bits))
        place = change = wide_count = 0
        for gap in gaps:
            place += gap
            if gap == 255:
                continue
            require(place < len(self.old) and change < len(steps), "place lies inside")
            if steps[change] == 255:
                wide_count += 1
                self.new[place] = next(wide)
            else:
                self.add(place, unzigzag(steps[change]))
            place += 1
            change += 1
        require(len(payload) - at == wide_count * self.form.word_bits // 8, "nothing follows")
        return change


def decode_chunk(entry, old_bytes, form):
    """The new bytes of a chunk, checked against its index entry."""
    decoder = _Decoder(entry, words_of(old_bytes, form.word_bits), form)
    require(entry.changed_count <= len(decoder.old), "changed_count")
    require(len(entry.payload) <= len(old_bytes) + 64, "payload_bytes")
    read = {CLASSED: decoder.classed, SPARSE: decoder.sparse, XOR: decoder.xor, OVERWRITE: decoder.overwrite,
            PLANES: decoder.planes, RAW: decoder.raw, BYTES: decoder.bytes}  # fmt: skip
    require(entry.type in read, f"chunk type {entry.type}")
    require(read[entry.type]() == entry.changed_count, "changed_count")
    new_bytes = bytes_of(decoder.new, form.word_bits)
    require(digest64(new_bytes) == entry.new_digest, "new_digest")
    return new_bytes
