"""The message formats before Kafka 0.11, magic 0 and 1. A cleaning by the rules of Kafka 4 writes version 2 instead.

    position 0      8     12    16     17          18                   18 or 26
             offset size  crc   magic  attributes  [timestamp, magic 1]  key length, key, value length, value

An uncompressed entry is a batch of one record. A compressed entry is a wrapper: its value inflates to inner entries,
and its offset is that of the last inner entry. Inner offsets are absolute in magic 0 and relative to the first inner
entry in magic 1. The magic inside can differ from that of the wrapper (KAFKA-4298).
Rules: `LegacyRecord`, `AbstractLegacyRecordBatch.DeepRecordsIterator`; KIP-31, KIP-32.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kcompact.errors import UnsupportedError
from kcompact.format.codec import Codec, compress, decompress
from kcompact.format.limits import MAX_LEGACY_RECORDS

PREFIX_BYTES = 18
"""The size of the fields that both formats share: offset, size, checksum, magic, attributes."""
LOG_OVERHEAD_BYTES = 12
"""The size of the fields offset and size. The field `size` counts the bytes after them."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
KNOWN_BITS = (CODEC_MASK, CODEC_MASK | LOG_APPEND_TIME_BIT)
"""The bits of the attributes that have a meaning, by the magic."""
NO_TIMESTAMP = -1

_PREFIX = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_OFFSET_AND_SIZE = struct.Struct(">qi")
CRC_START = 16


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
    return checksum(memoryview(entry)[CRC_START:])


def checksum(data: bytes | memoryview, before: int = 0) -> int:
    """Return the CRC-32 of bytes that follow others with the CRC-32 `before`."""
    return zlib.crc32(data, before)


class Entries(NamedTuple):
    """The messages of a batch, counted and checked but not read.

    `data` is the batch itself if it is not compressed, else what its value inflates to. `base_offset` is added to each
    inner offset.
    """

    prefix: Prefix
    data: bytes
    records: int
    first_offset: int
    base_offset: int


def read_entries(entry: bytes | memoryview, *, max_bytes: int, file: str, position: int) -> Entries:
    """Return the messages of a batch: one, or for a wrapper the inner ones, inflated to at most `max_bytes`.

    Raises ValueError when fields contradict each other, CorruptBatchError when the value does not inflate, and
    BatchTooLargeError or UnsupportedError when it inflates to too much; UnsupportedError as `unknown_bits`.
    """
    prefix = read_prefix(entry)
    codec = prefix.attributes & CODEC_MASK
    if codec == Codec.NONE:
        return Entries(prefix, bytes(entry), 1, prefix.offset, 0)
    if codec >= Codec.ZSTD:
        raise ValueError(f"compression codec {codec} in a message of magic {prefix.magic}")
    _, value = _key_and_value(entry, 0, len(entry), prefix.magic)
    if value is None:
        raise ValueError("a compressed message without a value")
    inflated = decompress(Codec(codec), value, max_bytes=max_bytes, file=file, position=position, magic=prefix.magic)
    count, first_offset, last_offset = 0, 0, 0
    for _, _, inner in _inner_entries(inflated):
        first_offset = first_offset if count else inner.offset
        count, last_offset = count + 1, inner.offset
        if inner.attributes & ~KNOWN_BITS[inner.magic]:
            attributes = f"attributes {inner.attributes & 0xFF:#x}"
            what = f"a message of magic {inner.magic} inside of a compressed one has the {attributes}"
            raise unknown_bits(what, KNOWN_BITS[inner.magic], file=file, position=position, offset=prefix.offset)
        if count > MAX_LEGACY_RECORDS:
            raise UnsupportedError(
                path=file,
                problem=f"position {position}, offset {prefix.offset}: a compressed message with more than "
                f"{MAX_LEGACY_RECORDS:,} records of magic {prefix.magic}",
            )
    if not count:
        raise ValueError("a compressed message with no messages inside")
    base_offset = _base_offset(prefix, last_offset)
    return Entries(prefix, inflated, count, base_offset + first_offset, base_offset)


def unknown_bits(what: str, known: int, *, file: str, position: int, offset: int) -> UnsupportedError:
    """Return the error for a batch, or a message inside of one, whose attributes have bits without a meaning.

    A batch that is written again would lose them, and their meaning may decide which records stay. Kafka ignores them.
    """
    return UnsupportedError(
        path=file,
        problem=f"position {position}, offset {offset}: {what}, and Kafka uses no other bits than {known:#x}",
        hint="A newer Kafka wrote this batch: let that broker clean the log, or use a newer kcompact.",
    )


def messages_of(entries: Entries) -> Iterator[Message]:
    """Yield the records of a batch. With LogAppendTime the inner ones have the timestamp of the wrapper.

    Raises ValueError when fields contradict each other.
    """
    wrapper, data, *_, base_offset = entries
    if not wrapper.attributes & CODEC_MASK:
        yield Message(wrapper.offset, wrapper.timestamp, *_key_and_value(data, 0, len(data), wrapper.magic))
        return
    append_time = wrapper.timestamp if wrapper.magic == 1 and wrapper.attributes & LOG_APPEND_TIME_BIT else None
    for start, end, inner in _inner_entries(data):
        timestamp = inner.timestamp if append_time is None or inner.magic == 0 else append_time
        yield Message(base_offset + inner.offset, timestamp, *_key_and_value(data, start, end, inner.magic))


def has_one_magic(entries: Entries) -> bool:
    """Return whether the messages inside a batch have its magic."""
    return not entries.prefix.attributes & CODEC_MASK or all(
        inner.magic == entries.prefix.magic for _, _, inner in _inner_entries(entries.data)
    )


def rebuild(wrapper: Prefix, kept: Sequence[Message]) -> bytes:
    """Return a compressed batch with only the `kept` records, one or more, in the magic of its wrapper.

    The offset is that of the last record. Of magic 1 the timestamp is the greatest, with LogAppendTime the wrapper's.
    Rule: `MemoryRecordsBuilder.appendLegacyRecord`, `MemoryRecordsBuilder.writeLegacyCompressedWrapperHeader`.
    """
    magic, attributes = wrapper.magic, wrapper.attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT)
    append_time = wrapper.timestamp if magic == 1 and attributes & LOG_APPEND_TIME_BIT else None
    base_offset = kept[0].offset if magic == 1 else 0
    inner = b"".join(
        _entry(
            message.offset - base_offset,
            message.key,
            message.value,
            magic=magic,
            attributes=attributes & LOG_APPEND_TIME_BIT if magic == 1 else 0,
            timestamp=message.timestamp if append_time is None else append_time,
        )
        for message in kept
    )
    return _entry(
        kept[-1].offset,
        None,
        compress(Codec(attributes & CODEC_MASK), inner, magic=magic),
        magic=magic,
        attributes=attributes if magic == 1 else attributes & CODEC_MASK,
        timestamp=max(message.timestamp for message in kept) if append_time is None else append_time,
    )


def _entry(
    offset: int, key: bytes | None, value: bytes | None, *, magic: int, attributes: int, timestamp: int
) -> bytes:
    fields = b"".join(_LENGTH.pack(-1) if field is None else _LENGTH.pack(len(field)) + field for field in (key, value))
    time = _TIMESTAMP.pack(timestamp) if magic == 1 else b""
    crc = checksum(bytes((magic, attributes)) + time + fields)
    size = PREFIX_BYTES - LOG_OVERHEAD_BYTES + len(time) + len(fields)
    return _PREFIX.pack(offset, size, crc, magic, attributes) + time + fields


def checksums_of(entries: Entries) -> Iterator[int]:
    """Yield the checksum of each record of a batch, as stored. It is right, or `read_entries` has refused the batch.

    Of a batch that is not compressed it is the checksum of the batch.
    """
    if not entries.prefix.attributes & CODEC_MASK:
        yield entries.prefix.crc
        return
    for _, _, inner in _inner_entries(entries.data):
        yield inner.crc


def sizes_of(entries: Entries) -> list[int]:
    """Return the size of each message of a batch, its offset and its size included."""
    if not entries.prefix.attributes & CODEC_MASK:
        return [len(entries.data)]
    return [end - start for start, end, _ in _inner_entries(entries.data)]


def _inner_entries(inflated: bytes) -> Iterator[tuple[int, int, Prefix]]:
    """Yield start, end and fixed fields of each inner entry. Like Kafka's reader, ignore an incomplete last one.

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
        yield position, end, prefix
        position = end


def _base_offset(wrapper: Prefix, last_inner_offset: int) -> int:
    """Return what to add to the inner offsets: 0 for a wrapper with offset 0, as some producers write it."""
    if wrapper.magic == 0 or wrapper.offset == 0:
        return 0
    if wrapper.offset < last_inner_offset:
        raise ValueError(f"offset {wrapper.offset} of a compressed message, but {last_inner_offset} inside")
    return wrapper.offset - last_inner_offset


def _key_and_value(data: bytes | memoryview, start: int, end: int, magic: int) -> tuple[bytes | None, bytes | None]:
    """Return key and value of the message between two positions of `data`."""
    key, position = _sized(data, start + PREFIX_BYTES + (_TIMESTAMP.size if magic == 1 else 0), end)
    value, _ = _sized(data, position, end)
    return key, value


def _sized(data: bytes | memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    """Return the field at `position`, a length and that many bytes, and the position after it. -1 means null."""
    if position + _LENGTH.size > end:
        raise ValueError("a message ends inside a length")
    (length,) = _LENGTH.unpack_from(data, position)
    position += _LENGTH.size
    if length < 0:
        return None, position
    if length > end - position:
        raise ValueError(f"a field of {length} bytes, {end - position} are left in its message")
    return bytes(data[position : position + length]), position + length
