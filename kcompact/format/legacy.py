"""The message formats before Kafka 0.11, magic 0 and 1. They are only read: a cleaning writes version 2.

    position 0      8     12    16     17          18                   18 or 26
             offset size  crc   magic  attributes  [timestamp, magic 1]  key length, key, value length, value

An uncompressed entry is a batch of one record. A compressed entry is a wrapper: its value inflates to inner entries,
and its offset is that of the last inner entry. Inner offsets are absolute in magic 0 and relative to the first inner
entry in magic 1.
Rules: `LegacyRecord`, `AbstractLegacyRecordBatch.DeepRecordsIterator` of Kafka 4.3.1; KIP-31, KIP-32.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from kcompact.format.codec import Codec, decompress

PREFIX_BYTES = 18
"""The size of the fields that both formats share: offset, size, checksum, magic, attributes."""
LOG_OVERHEAD_BYTES = 12
"""The size of the fields offset and size. The field `size` counts the bytes after them."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
NO_TIMESTAMP = -1

_PREFIX = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_OFFSET_AND_SIZE = struct.Struct(">qi")
_CRC_START = 16


class Prefix(NamedTuple):
    """The fixed fields of an entry. `timestamp` is -1 in magic 0."""

    offset: int
    size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int


class Message(NamedTuple):
    """One record of an entry, with its absolute offset."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def read_prefix(data: bytes | memoryview) -> Prefix:
    """Return the fixed fields of the entry at the start of `data`. Raises ValueError when they do not fit."""
    if len(data) < PREFIX_BYTES:
        raise ValueError("the file ends inside a message header")
    offset, size, crc, magic, attributes = _PREFIX.unpack_from(data)
    if size < minimum_size(magic):
        raise ValueError(f"a message of {size} bytes, less than its fixed fields")
    if magic == 0:
        return Prefix(offset, size, crc, magic, attributes, NO_TIMESTAMP)
    if len(data) < PREFIX_BYTES + _TIMESTAMP.size:
        raise ValueError("the file ends inside a message header")
    return Prefix(offset, size, crc, magic, attributes, _TIMESTAMP.unpack_from(data, PREFIX_BYTES)[0])


def minimum_size(magic: int) -> int:
    """Return the smallest valid `size` of an entry: fixed fields and two lengths, without key and value."""
    return 14 if magic == 0 else 22


def computed_crc(entry: bytes | memoryview) -> int:
    """Return the CRC-32 of an entry, computed from its bytes: all from the magic on."""
    return zlib.crc32(memoryview(entry)[_CRC_START:])


def read_messages(entry: bytes, *, max_bytes: int, file: str, position: int) -> list[Message]:
    """Return the records of an entry: one, or for a wrapper the inner ones, inflated to at most `max_bytes`.

    With LogAppendTime the inner entries have the timestamp of the wrapper. Raises ValueError when fields contradict
    each other, CorruptBatchError when the value does not inflate.
    """
    prefix = read_prefix(entry)
    key, value = _key_and_value(entry, prefix)
    codec = prefix.attributes & CODEC_MASK
    if codec == Codec.NONE:
        return [Message(prefix.offset, prefix.timestamp, key, value)]
    if codec >= Codec.ZSTD:
        raise ValueError(f"compression codec {codec} in a message of magic {prefix.magic}")
    if value is None:
        raise ValueError("a compressed message without a value")
    inflated = decompress(Codec(codec), value, max_bytes=max_bytes, file=file, position=position, magic=prefix.magic)
    inner = list(_inner_entries(inflated))
    if not inner:
        raise ValueError("a compressed message with no messages inside")
    base_offset = _base_offset(prefix, inner[-1][0].offset)
    append_time = prefix.timestamp if prefix.magic == 1 and prefix.attributes & LOG_APPEND_TIME_BIT else None
    return [
        Message(
            base_offset + fields.offset,
            fields.timestamp if append_time is None or fields.magic == 0 else append_time,
            *_key_and_value(message, fields),
        )
        for fields, message in inner
    ]


def _inner_entries(inflated: bytes) -> Iterator[tuple[Prefix, bytes]]:
    """Yield the fixed fields and the bytes of each inner entry. Like Kafka's reader, ignore an incomplete last one.

    The checksum inside is verified, because a cleaning would replace it by one that is right for any bytes.
    Rule: `AbstractLegacyRecordBatch.DataLogInputStream`, `LegacyRecord.ensureValid`.
    """
    position = 0
    while len(inflated) - position >= LOG_OVERHEAD_BYTES:
        _, size = _OFFSET_AND_SIZE.unpack_from(inflated, position)
        if size < minimum_size(0):
            raise ValueError(f"a message of {size} bytes inside a compressed message")
        end = position + LOG_OVERHEAD_BYTES + size
        if end > len(inflated):
            return
        message = inflated[position:end]
        prefix = read_prefix(message)
        if prefix.magic not in (0, 1):
            raise ValueError(f"magic {prefix.magic} inside a compressed message")
        if prefix.attributes & CODEC_MASK:
            raise ValueError("a compressed message inside a compressed message")
        if (computed := computed_crc(message)) != prefix.crc:
            raise ValueError(f"checksum {computed:#010x} of a message inside, its header says {prefix.crc:#010x}")
        yield prefix, message
        position = end


def _base_offset(wrapper: Prefix, last_inner_offset: int) -> int:
    """Return what to add to the inner offsets: 0 for a wrapper with offset 0, as some producers write it."""
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    if wrapper.offset < last_inner_offset:
        raise ValueError(f"offset {wrapper.offset} of a compressed message, but {last_inner_offset} inside")
    return wrapper.offset - last_inner_offset


def _key_and_value(entry: bytes, prefix: Prefix) -> tuple[bytes | None, bytes | None]:
    start = PREFIX_BYTES + (_TIMESTAMP.size if prefix.magic == 1 else 0)
    key, position = _sized(entry, start)
    value, position = _sized(entry, position)
    return key, value


def _sized(entry: bytes, position: int) -> tuple[bytes | None, int]:
    """Return the field at `position`, a length and that many bytes, and the position after it. -1 means null."""
    if position + _LENGTH.size > len(entry):
        raise ValueError("a message ends inside a length")
    (length,) = _LENGTH.unpack_from(entry, position)
    position += _LENGTH.size
    if length < 0:
        return None, position
    if length > len(entry) - position:
        raise ValueError(f"a field of {length} bytes, {len(entry) - position} are left in its message")
    return bytes(entry[position : position + length]), position + length
