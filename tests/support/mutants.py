"""Damaged bytes in numbers, chosen by a `random.Random`: batches that get past the checksum, and bytes of any kind.

A flipped byte ends at the checksum, so most mutants here are sealed again after the damage: what is wrong is then in
a header, in a record, in the frame of a codec or in the inflated bytes. hypothesis would take longer to choose the
damage than a parser takes to read it.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from kcompact.format import batch as batch_format
from kcompact.format import legacy
from kcompact.format.batch import HEADER_BYTES, Record, build, write_varint
from kcompact.format.codec import Codec, compress, decompress
from kcompact.kernels import CODEC_MASK

T = 1_700_000_000_000
INT_BOUNDS = (0, 1, -1, 2, 6, 7, 60, 127, 128, 0x3FFF, 1 << 20, 2**31 - 1, -(2**31))
LONG_BOUNDS = (*INT_BOUNDS, 2**31, 2**32, T, 2**62, 2**63 - 1, -(2**63))
LENGTH_AT, CRC_AT, COUNT_AT = 8, 17, 57
_FIELDS = ((0, "q"), (8, "i"), (12, "i"), (16, "b"), (21, "h"), (23, "i"), (27, "q"), (35, "q"), (43, "q"), (51, "h"),
           (53, "i"), (57, "i"))  # fmt: skip
"""Position and type of the fields of a header, without the checksum."""
_LEGACY_FIELDS = ((0, "q"), (8, "i"), (16, "b"), (17, "b"), (18, "i"), (18, "q"), (22, "i"), (26, "i"))
_BOUNDS = {"b": range(-1, 8), "h": (*range(-1, 80), 2**15 - 1, -(2**15)), "i": INT_BOUNDS, "q": LONG_BOUNDS}


# Any bytes


def any_damage(chance: random.Random, data: bytes) -> bytes:
    """Return the bytes with some of them changed, cut out, put in, repeated, or cut off."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        at = chance.randrange(len(found) + 1)
        kind = chance.randrange(12)
        if kind == 0:
            del found[at:]
        elif kind == 1:
            del found[at : at + chance.randrange(1, 40)]
        elif kind == 2:
            found[at:at] = chance.randbytes(chance.randrange(1, 40))
        elif kind == 3:
            found[at:at] = found[at : at + chance.randrange(1, 80)]
        elif kind == 4:
            found[at:at] = bytes(chance.choice((1, 4, 8, 12, 34, 61, 4096)))
        elif kind == 5 and at + 8 <= len(found):
            struct.pack_into(">q", found, at, chance.choice(LONG_BOUNDS))
        elif kind == 6 and at + 4 <= len(found):
            struct.pack_into(">i", found, at, chance.choice(INT_BOUNDS))
        elif kind < 9 and at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        elif at < len(found):
            found[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return bytes(found)


def shuffled_entries(chance: random.Random, data: bytes, entry_bytes: int) -> bytes:
    """Return the entries of an index exchanged, repeated, left out, or with empty ones among them."""
    entries = [data[at : at + entry_bytes] for at in range(0, len(data), entry_bytes)] or [bytes(entry_bytes)]
    for _ in range(chance.randrange(1, 4)):
        one, other = chance.randrange(len(entries)), chance.randrange(len(entries))
        kind = chance.randrange(5)
        if kind == 0:
            entries[one], entries[other] = entries[other], entries[one]
        elif kind == 1:
            entries.insert(one, entries[other])
        elif kind == 2 and len(entries) > 1:
            del entries[one]
        elif kind == 3:
            entries[one:one] = [bytes(entry_bytes)] * chance.choice((1, 2, 100))
        else:
            entries[one] = any_damage(chance, entries[one])[:entry_bytes].ljust(entry_bytes, b"\0")
    return b"".join(entries)


# Lines of text

_WORDS = ("", "0", "-1", "+1", "00", "1_0", "9" * 19, "9" * 41, "2147483647", "2147483648", "-9223372036854775808",
          "1e9", "nan", "inf", "\u0661", "true", "a b", "\\", "\\u", "\\ud800", "\\u0000", "\x1b[31m", "\x00", "=", ":",
          "orders", "compact", "delete,compact", "\u202e", "#", "x" * 300)  # fmt: skip


def damaged_text(chance: random.Random, data: bytes) -> bytes:
    """Return the lines of a text file exchanged, repeated, left out, or with other words in them."""
    if chance.random() < 0.3:
        return any_damage(chance, data)
    lines = data.decode("utf-8", "replace").split("\n")
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(len(lines))
        kind = chance.randrange(6)
        if kind == 0:
            lines.insert(at, chance.choice(lines))
        elif kind == 1 and len(lines) > 1:
            del lines[at]
        elif kind == 2:
            other = chance.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == 3:
            lines[at] += chance.choice(("\r", " ", "\t1", "\\", "\x00"))
        else:
            for separator in (" ", "=", ": "):
                if separator in lines[at]:
                    words = lines[at].split(separator)
                    words[chance.randrange(len(words))] = chance.choice(_WORDS)
                    lines[at] = separator.join(words)
                    break
            else:
                lines[at] = chance.choice(_WORDS)
    return "\n".join(lines).encode()


# JSON


def damaged_json(chance: random.Random, document: object) -> object:
    """Return a JSON document with one value, at any depth, replaced, left out or repeated."""
    values: tuple[object, ...] = (
        *(None, True, False, 0, -1, 1.5, 2**63, 2**64, 10**30),
        *("", "x", "../x", "a" * 300, "\ud800", "\x1b[31m", "00000000000000000000.log", "orders"),
        *([], {}, [[]], {"": {}}, [None]),
    )
    if not isinstance(document, (dict, list)) or not document or chance.random() < 0.15:
        return chance.choice(values)
    if isinstance(document, dict):
        key = chance.choice(list(document))
        changed = dict(document)
        if chance.random() < 0.1:
            changed[chance.choice(("more", "", "version"))] = changed.pop(key)
        else:
            changed[key] = damaged_json(chance, document[key])
        return changed
    at = chance.randrange(len(document))
    kind = chance.randrange(4)
    if kind == 0:
        return [*document[:at], *document[at + 1 :]]
    if kind == 1:
        return [*document, document[at]]
    return [*document[:at], damaged_json(chance, document[at]), *document[at + 1 :]]


# Sound batches


def sound_records(chance: random.Random, offset: int, count: int, *, gaps: bool = True) -> list[Record]:
    """Return records with rising offsets from `offset` on, with few keys, null values and headers among them."""
    found = []
    for _ in range(count):
        offset += chance.choice((0, 0, 0, 1, 5)) if gaps else 0
        found.append(
            Record(
                offset,
                chance.choice((T, T + 5, T + chance.randrange(9999), -1, 0, 2**62)),
                chance.choice((None, b"", b"a", b"b", b"key-%d" % chance.randrange(9), b"k" * 8, b"k" * 13)),
                chance.choice((None, b"", b"value" * chance.randrange(30), b"%d" % chance.randrange(99))),
                chance.choice(((), (), (), ((b"h", None),), ((b"h", b"x" * 9), (b"", b"")))),
            )
        )
        offset += 1
    return found


def sound_batch(chance: random.Random, offset: int = 0) -> bytes:
    """Return a batch of format 2 in any codec, perhaps a marker or an emptied batch."""
    kind = chance.randrange(10)
    producer: dict[str, Any] = {"producer_id": chance.choice((0, 3)), "producer_epoch": 0, "partition_leader_epoch": 5}
    if kind == 0:
        marker = Record(offset, T, bytes([0, 0, 0, chance.choice((0, 1, 1, 4))]), bytes(6))
        return build([marker], transactional=True, control=True, **producer)
    records = sound_records(chance, offset, chance.choice((1, 1, 2, 3, 5, 9, 30)))
    codec = chance.choice(list(Codec))
    if kind == 1:
        data = build(records, codec=codec, base_sequence=7, transactional=True, **producer)
    else:
        data = build(records, codec=codec, partition_leader_epoch=5, log_append_time=kind == 2)
    if kind == 3:
        (one,) = batch_format.parse_batches(data, file="")
        return batch_format.empty(one.header)
    if kind == 4:
        (one,) = batch_format.parse_batches(data, file="")
        return batch_format.rebuild(one.header, records, delete_horizon_ms=T)
    return data


def legacy_entry(
    offset: int, key: bytes | None, value: bytes | None, *, magic: int, attributes: int = 0, timestamp: int = T
) -> bytes:
    """Return an entry of magic 0 or 1 with a valid checksum."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic == 1 else b"")
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def sound_legacy(chance: random.Random, offset: int = 0) -> bytes:
    """Return an entry of magic 0 or 1, plain or a wrapper."""
    magic = chance.choice((0, 1))
    records = sound_records(chance, 0, chance.choice((1, 2, 3, 9)), gaps=False)
    codec = chance.choice((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
    append_time = legacy.LOG_APPEND_TIME_BIT if magic == 1 and chance.random() < 0.2 else 0
    if codec is Codec.NONE:
        return legacy_entry(offset, records[0].key, records[0].value, magic=magic, attributes=append_time)
    inner = b"".join(
        legacy_entry(
            one.offset + (offset if magic == 0 else 0), one.key, one.value, magic=magic, timestamp=one.timestamp
        )
        for one in records
    )
    last = offset + records[-1].offset
    value = compress(codec, inner, magic=magic)
    return legacy_entry(last, None, value, magic=magic, attributes=codec | append_time, timestamp=T + 50)


# Mutated batches


def sealed_again(data: bytes) -> bytes:
    """Return one batch or entry with the length and the checksum that its bytes have."""
    found = bytearray(data)
    if len(found) < 22:
        return data
    struct.pack_into(">i", found, LENGTH_AT, len(found) - 12)
    return with_checksum(bytes(found))


def with_checksum(data: bytes) -> bytes:
    """Return one batch or entry with the checksum that its bytes have."""
    found = bytearray(data)
    if len(found) > CRC_AT and found[16] < 2:
        struct.pack_into(">I", found, 12, zlib.crc32(found[16:]))
    elif len(found) > CRC_AT + 4:
        struct.pack_into(">I", found, CRC_AT, batch_format.computed_crc(found))
    return bytes(found)


def _long_varint(chance: random.Random, value: int) -> bytes:
    """Return a varint, now and then with more bytes than it needs, or more than it may have."""
    data = write_varint(value)
    if chance.random() < 0.96:
        return data
    more = chance.choice((1, 1, 2, 5 - len(data), 5 - len(data), 6 - len(data), 10 - len(data), 11 - len(data)))
    return data if more < 1 else data[:-1] + bytes([data[-1] | 0x80]) + b"\x80" * (more - 1) + b"\0"


def _odd_length(chance: random.Random, length: int) -> int:
    return length if chance.random() < 0.985 else chance.choice((length + 1, length - 1, *INT_BOUNDS))


def _odd_field(chance: random.Random, content: bytes | None) -> bytes:
    if content is None:
        return _long_varint(chance, chance.choice((-1, -1, -1, -2, -(2**31))))
    return _long_varint(chance, _odd_length(chance, len(content))) + content


def _odd_text(chance: random.Random) -> bytes:
    """Return bytes that are nearly UTF-8."""
    return bytes(
        chance.choice((0x61, 0x80, 0x9F, 0xA0, 0xBF, 0xC0, 0xC3, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF4, 0xFF))
        for _ in range(chance.randrange(1, 6))
    )


def odd_record(chance: random.Random, record: Record, offset_delta: int) -> bytes:
    """Return a record that Kafka's reader accepts, or nearly."""
    body = bytes([chance.choice((0, 0, 0, 1, 0xFF))])
    body += _long_varint(chance, chance.choice((0, 1, -1, 500, 2**62, -(2**63))))
    body += _long_varint(chance, offset_delta if chance.random() < 0.95 else chance.choice(INT_BOUNDS))
    body += _odd_field(chance, record.key) + _odd_field(chance, record.value)
    body += _long_varint(chance, _odd_length(chance, len(record.headers)))
    for name, content in record.headers:
        body += _odd_field(
            chance, name if chance.random() < 0.9 else chance.choice((None, b"\xed\xa0\x80", _odd_text(chance)))
        )
        body += _odd_field(chance, content)
    return _long_varint(chance, _odd_length(chance, len(body))) + body


def odd_batch(chance: random.Random, offset: int = 0) -> bytes:
    """Return a batch with a right checksum whose records or counts are odd."""
    records = sound_records(chance, offset, chance.choice((1, 2, 3, 5)))
    section = b"".join(odd_record(chance, one, one.offset - offset) for one in records)
    if chance.random() < 0.1:
        section += chance.randbytes(chance.randrange(1, 9))
    codec = chance.choice((Codec.NONE, Codec.NONE, *Codec))
    attributes = codec | chance.choice((0, 0, 0, 0x08, 0x10, 0x20, 0x40, 0x80, 0x7F00))
    last = records[-1].offset - offset
    header = batch_format.Header(
        base_offset=offset,
        length=0,
        partition_leader_epoch=5,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=last if chance.random() < 0.95 else chance.choice((0, last + 1, 2**31 - 1)),
        base_timestamp=chance.choice((T, -1, 2**63 - 1)),
        max_timestamp=chance.choice((T, -1, 2**63 - 1)),
        producer_id=chance.choice((-1, -1, 3)),
        producer_epoch=0,
        base_sequence=chance.choice((-1, 0, 2**31 - 1)),
        records_count=len(records) if chance.random() < 0.9 else chance.choice(INT_BOUNDS),
    )
    return sealed_again(header.pack() + (compress(codec, section) if codec else section))


def _field_at_bound(chance: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    at, kind = chance.choice(_LEGACY_FIELDS if found[16] < 2 else _FIELDS)
    if at + struct.calcsize(kind) <= len(found):
        struct.pack_into(f">{kind}", found, at, chance.choice(_BOUNDS[kind]))
    return with_checksum(bytes(found))


def _damaged_section(chance: random.Random, data: bytes) -> bytes:
    """Damage the bytes after the header: of a compressed batch the frame of its codec."""
    start = HEADER_BYTES if data[16] == 2 else 18
    return sealed_again(data[:start] + any_damage(chance, data[start:]))


def _damaged_inflated(chance: random.Random, data: bytes) -> bytes:
    """Damage the inflated records, and compress them again."""
    magic = data[16]
    if magic == 2:
        codec, start = data[22] & CODEC_MASK, HEADER_BYTES
    else:
        codec, start = data[17] & CODEC_MASK, 26 if magic == 0 else 34
    if not 0 < codec <= 4 or (magic == 2 and struct.unpack_from(">i", data, COUNT_AT)[0] == 0):
        return _damaged_section(chance, data)
    inflated = decompress(Codec(codec), data[start:], file="", position=0, magic=magic)
    section = compress(Codec(codec), any_damage(chance, inflated), magic=magic)
    length = b"" if magic == 2 else struct.pack(">i", len(section))
    return sealed_again(data[: start - len(length)] + length + section)


BATCH_DAMAGE: Sequence[Callable[[random.Random, bytes], bytes]] = (
    _field_at_bound,
    _field_at_bound,
    _damaged_section,
    _damaged_section,
    _damaged_inflated,
    lambda chance, data: with_checksum(any_damage(chance, data)),
    any_damage,
)


class Batches:
    """Segments' bytes, from pools of sound batches: one to four batches, most of them sound, one or more damaged."""

    def __init__(self, chance: random.Random) -> None:
        self._sound = [sound_batch(chance) for _ in range(120)]
        self._legacy = [sound_legacy(chance, chance.choice((0, 20))) for _ in range(60)]

    def one(self, chance: random.Random, offset: int) -> bytes:
        """Return one batch at `offset`, sound or damaged."""
        kind = chance.random()
        if kind < 0.35:
            return odd_batch(chance, offset)
        if kind < 0.5:
            data = chance.choice(self._legacy)
        else:
            data = chance.choice(self._sound)
            data = struct.pack(">q", offset) + data[8:]
        if chance.random() < 0.75:
            data = chance.choice(BATCH_DAMAGE)(chance, data)
        return data

    def several(self, chance: random.Random) -> bytes:
        """Return one to four batches; now and then exchanged, repeated or cut off."""
        found: list[bytes] = []
        offset = 0
        for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
            found.append(self.one(chance, offset))
            offset += chance.choice((40, 40, 40, 2**31, 1))
        kind = chance.randrange(20)
        if kind == 0:
            chance.shuffle(found)
        elif kind == 1:
            found.append(chance.choice(found))
        data = b"".join(found)
        if kind == 2:
            return data[: chance.randrange(len(data) + 1)]
        return data + bytes(chance.choice((1, 16, 61, 100))) if kind == 3 else data
