"""Record batches of format version 2: header, records, and the batch that a cleaning writes.

A segment is a sequence of batches without gaps. A batch is a header of 61 bytes and a section with its records; only
the section is compressed. The checksum covers everything from the attributes on. The base offset, the length and the
leader epoch are not covered, so damage there shows only in comparison with the neighbouring batches.

    position 0            8       12      16     17   21         23 ...            61
             base_offset  length  epoch   magic  crc  attributes ... records_count  records ...
                                                      |<------------ crc ------------------->|

A record stores its offset and timestamp as differences from those of the header. Removing one record therefore means
writing the whole section again, with `rebuild`. Like Kafka, `rebuild` keeps the base offset and the last offset that
the batch had when it was first written, so the batches of a cleaned log still cover the same offsets.

Example: a batch with offsets 100 to 102, whose record 100 was superseded. `rebuild` writes records 101 and 102; the
header still says base offset 100 and last offset delta 2.

The functions here decode one record at a time. They are the definition that the compiled kernels are tested against,
and they produce the detailed error messages. Batches of versions 0 and 1 are decoded by `legacy`.
Rules: KIP-98 (the format), KIP-534 (the delete horizon), `DefaultRecordBatch`, `DefaultRecord`,
`MemoryRecords.filterTo`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kcompact.errors import CorruptBatchError
from kcompact.format import legacy
from kcompact.format.checksum import crc32c
from kcompact.format.codec import Codec, compress, decompress
from kcompact.format.limits import (
    DEFAULT_MEMORY_BYTES,
    MEMORY_FACTOR,
    RECORD_BYTES,
    most_inflated_bytes,
    require_memory,
    require_size,
)
from kcompact.format.names import MAX_OFFSET

HEADER_STRUCT = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""The size of base offset and length. The field `length` counts the bytes after them."""

_PREFIX = struct.Struct(">qiib")
_CRC_START = 21
_CRC_FIELD = slice(17, 21)
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")

_MIN_RECORD_BYTES = 7
"""The length of a record and its six fields, each of a byte."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
KNOWN_BITS = (*legacy.KNOWN_BITS, 0x7F)
"""The bits of a batch's attributes that have a meaning, by its magic."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1


class Header(NamedTuple):
    """The fields of a batch header as stored, in the order of the 61 bytes of version 2.

    Batches of magic 0 and 1 have a `Header` too. There `base_offset` is the offset of the *last* record, because the
    offset of the first is only in the compressed section; `records_count` is -1 when the batch is compressed.
    """

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which tombstones and markers of this batch may be removed; None when not set (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, -1 without a producer. 0 follows 2^31 - 1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    def pack(self) -> bytes:
        return HEADER_STRUCT.pack(*self)


class Record(NamedTuple):
    """One record. The offset is absolute; with LogAppendTime the timestamp is that of the batch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class Batch(NamedTuple):
    """A batch in a file: its position, its header, and all its bytes, header included."""

    position: int
    header: Header
    data: memoryview


def read_header(data: bytes | memoryview, *, file: str, position: int) -> Header:
    """Return the header at the start of `data`, which begins at `position` of `file`.

    Checks only the header; the checksum needs the whole batch, see `verify_crc`. Raises CorruptBatchError.
    Rule: `ByteBufferLogInputStream.nextBatchSize`, `DefaultRecordBatch.ensureValid`.
    """

    def corrupt(problem: str, offset: int | None = None) -> CorruptBatchError:
        return CorruptBatchError(file=file, position=position, offset=offset, problem=problem)

    if len(data) < _PREFIX.size:
        raise corrupt(f"{len(data)} bytes where a batch should start: the file ends inside a batch header")
    base_offset, length, _, magic = _PREFIX.unpack_from(data)
    if magic in (0, 1) and length < legacy.minimum_size(0):
        zeros = not any(data[: _PREFIX.size])
        raise corrupt("zeros where a batch should start" if zeros else f"batch length {length}, less than a record")
    if magic in (0, 1):
        try:
            return _legacy_header(legacy.read_prefix(data))
        except ValueError as problem:
            raise corrupt(str(problem), base_offset) from None
    if magic != 2:
        raise corrupt(f"magic {magic}: no record format has it", base_offset)
    if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
        raise corrupt(f"batch length {length}, less than a header", base_offset)
    if len(data) < HEADER_BYTES:
        raise corrupt("the file ends inside a batch header", base_offset)
    header = Header(*HEADER_STRUCT.unpack_from(data))
    if base_offset < 0:
        raise corrupt(f"base offset {base_offset}", base_offset)
    if header.last_offset_delta < 0:
        raise corrupt(f"last offset delta {header.last_offset_delta}", base_offset)
    if header.next_offset > MAX_OFFSET:
        raise corrupt(f"last offset {header.last_offset}, beyond the largest offset", base_offset)
    if header.records_count < 0:
        raise corrupt(f"records count {header.records_count}", base_offset)
    if header.codec_id > Codec.ZSTD:
        raise corrupt(f"compression codec {header.codec_id} does not exist", base_offset)
    return header


def _legacy_header(prefix: legacy.Prefix) -> Header:
    if not 0 <= prefix.offset < MAX_OFFSET:
        raise ValueError(f"offset {prefix.offset}")
    codec = prefix.attributes & CODEC_MASK
    append_time = prefix.attributes & LOG_APPEND_TIME_BIT if prefix.magic == 1 else 0
    return Header(
        base_offset=prefix.offset,
        length=prefix.size,
        partition_leader_epoch=-1,
        magic=prefix.magic,
        crc=prefix.crc,
        attributes=codec | append_time,
        last_offset_delta=0,
        base_timestamp=prefix.timestamp,
        max_timestamp=prefix.timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=-1,
        records_count=-1 if codec else 1,
    )


def parse_batches(data: bytes | memoryview, *, file: str, position: int = 0) -> Iterator[Batch]:
    """Yield the batches of `data`, which starts at `position` of `file`.

    Raises CorruptBatchError where the bytes are not whole batches, end to end. Checksums are not verified.
    """
    view = memoryview(data)
    start = 0
    while start < len(view):
        header = read_header(view[start : start + HEADER_BYTES], file=file, position=position + start)
        require_inside(header, len(view) - start, file=file, position=position + start)
        end = start + header.size_bytes
        yield Batch(position + start, header, view[start:end])
        start = end


def require_inside(header: Header, left_bytes: int, *, file: str, position: int) -> None:
    """Raise CorruptBatchError for a batch that has more bytes than are left in its file."""
    if header.size_bytes > left_bytes:
        raise CorruptBatchError(
            file=file,
            position=position,
            offset=header.base_offset,
            problem=f"a batch of {header.size_bytes} bytes, but only {left_bytes} are left in the file",
        )


def computed_crc(batch: bytes | bytearray | memoryview) -> int:
    """Return the CRC-32C of a batch of version 2, computed from its bytes."""
    return crc32c(memoryview(batch)[_CRC_START:])


def computed_crc_of(pieces: Iterable[bytes | memoryview], *, magic: int) -> int:
    """Return the checksum of a batch that comes in pieces, the first with at least its header."""
    checksum, start = (crc32c, _CRC_START) if magic == 2 else (legacy.checksum, legacy.CRC_START)
    crc = 0
    for piece in pieces:
        crc = checksum(memoryview(piece)[start:], crc)
        start = 0
    return int(crc)


def verify_crc(batch: Batch, *, file: str) -> None:
    """Compute the checksum of a batch. Raises what `require_crc` raises."""
    if batch.header.magic == 2:
        require_crc(computed_crc(batch.data), batch.header, file=file, position=batch.position)
        return
    attributes = legacy.read_prefix(batch.data).attributes & 0xFF  # The header has only the bits that are known.
    header = batch.header._replace(attributes=attributes)
    require_crc(legacy.computed_crc(batch.data), header, file=file, position=batch.position)


def require_crc(computed: int, header: Header, *, file: str, position: int) -> None:
    """Raise CorruptBatchError when the checksum in the header is not the computed one.

    With the right checksum, unknown bits of the attributes are no damage, but UnsupportedError: see
    `legacy.unknown_bits`.
    """
    if computed != header.crc:
        raise CorruptBatchError(
            file=file,
            position=position,
            offset=header.base_offset,
            problem=f"checksum {computed:#010x}, the header says {header.crc:#010x}",
        )
    known = KNOWN_BITS[header.magic]
    if header.attributes & ~known:
        what = f"a batch of magic {header.magic} has the attributes {header.attributes & 0xFFFF:#x}"
        raise legacy.unknown_bits(what, known, file=file, position=position, offset=header.base_offset)


# Records


def read_records(
    batch: Batch, *, file: str, memory_bytes: int = DEFAULT_MEMORY_BYTES, check_offsets: bool = True
) -> list[Record]:
    """Return the records of a batch, with absolute offsets. They take at most `memory_bytes`, see `limits`.

    Accepts all that Kafka's reader accepts: varints longer than needed, any record attributes, any negative length as
    null. Raises CorruptBatchError when counts or lengths contradict each other, and, with `check_offsets`, when the
    offsets do not rise or lie outside the batch (Kafka does not check this); BatchTooLargeError.
    Rule: `DefaultRecord.readFrom`, `DefaultRecordBatch.iterator`.
    """
    header = batch.header
    require_size(header.size_bytes, memory_bytes, file=file, position=batch.position, offset=header.base_offset)
    if header.magic < 2:
        return _read_legacy(batch, file=file, memory_bytes=memory_bytes)
    if header.records_count == 0:
        return []  # Kafka ignores the bytes after the header of an empty batch too.
    compressed = batch.data[HEADER_BYTES:]
    if header.codec_id:
        max_bytes = most_inflated_bytes(len(compressed), memory_bytes)
        section = decompress(
            Codec(header.codec_id), compressed, max_bytes=max_bytes, file=file, position=batch.position
        )
    else:
        section = bytes(compressed)
    count = min(header.records_count, len(section) // _MIN_RECORD_BYTES)
    _require_memory_for(batch, count, len(section), memory_bytes, file=file)
    try:
        records = _decode(section, header)
    except IndexError:
        raise _corrupt_record(batch, file, "a record ends outside its batch") from None
    except ValueError as damage:
        raise _corrupt_record(batch, file, str(damage)) from None
    if check_offsets:
        _verify_offsets(batch, records, header.base_offset, file=file)
    return records


def _verify_offsets(batch: Batch, records: Sequence[Record], first_offset: int, *, file: str) -> None:
    previous, last = first_offset - 1, batch.header.last_offset
    for record in records:
        if not previous < record.offset <= last:
            raise _corrupt_record(
                batch, file, f"record offset {record.offset} after {previous}, in a batch that ends at {last}"
            )
        previous = record.offset


def _require_memory_for(batch: Batch, records: int, inflated_bytes: int, memory_bytes: int, *, file: str) -> None:
    """Raise BatchTooLargeError if the records of a batch take more than `memory_bytes`."""
    require_memory(
        MEMORY_FACTOR * inflated_bytes + RECORD_BYTES * records,
        memory_bytes,
        problem=f"a batch of {batch.header.size_bytes:,} bytes with {records:,} records in {inflated_bytes:,} bytes",
        file=file,
        position=batch.position,
        offset=batch.header.base_offset,
    )


def _read_legacy(batch: Batch, *, file: str, memory_bytes: int) -> list[Record]:
    entries = legacy_entries(batch, file=file, memory_bytes=memory_bytes)
    _require_memory_for(batch, entries.records, len(entries.data), memory_bytes, file=file)
    try:
        records = [Record(*message) for message in legacy.messages_of(entries)]
    except ValueError as damage:
        raise _corrupt_record(batch, file, str(damage)) from None
    _verify_offsets(batch, records, 0, file=file)
    return records


def legacy_base_offset(batch: Batch, *, file: str, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> int:
    """Return the offset of the first record of a batch of magic 0 or 1, whose header has only the last one's.

    Raises as `read_records`.
    """
    return legacy_entries(batch, file=file, memory_bytes=memory_bytes).first_offset


def legacy_entries(batch: Batch, *, file: str, memory_bytes: int) -> legacy.Entries:
    """Return the messages of a batch of magic 0 or 1, not read yet. Raises as `read_records`."""
    try:
        return legacy.read_entries(
            batch.data,
            max_bytes=most_inflated_bytes(len(batch.data), memory_bytes),
            file=file,
            position=batch.position,
        )
    except ValueError as damage:
        raise _corrupt_record(batch, file, str(damage)) from None


def _corrupt_record(batch: Batch, file: str, problem: str) -> CorruptBatchError:
    return CorruptBatchError(file=file, position=batch.position, offset=batch.header.base_offset, problem=problem)


def _decode(section: bytes, header: Header) -> list[Record]:
    records = []
    append_time = header.max_timestamp if header.is_log_append_time else None
    position = 0
    for _ in range(header.records_count):
        body_length, position = read_varint(section, position)
        end = position + body_length
        if body_length < 0 or end > len(section):
            raise ValueError(f"a record of {body_length} bytes, {len(section) - position} are left")
        position += 1  # The record attributes; no bit is in use.
        timestamp_delta, position = read_varlong(section, position)
        offset_delta, position = read_varint(section, position)
        key, position = _read_bytes(section, position, end)
        value, position = _read_bytes(section, position, end)
        header_count, position = read_varint(section, position)
        if not 0 <= header_count <= end - position:
            raise ValueError(f"{header_count} record headers in {end - position} bytes")
        headers = []
        for _ in range(header_count):
            name, position = _read_bytes(section, position, end)
            if name is None:
                raise ValueError("a record header without a key")
            content, position = _read_bytes(section, position, end)
            headers.append((name, content))
        if position != end:
            fields_bytes = body_length - (end - position)
            raise ValueError(f"a record declares {body_length} bytes, but its fields have {fields_bytes}")
        timestamp = _wrap64(header.base_timestamp + timestamp_delta) if append_time is None else append_time
        records.append(Record(header.base_offset + offset_delta, timestamp, key, value, tuple(headers)))
    if position != len(section):
        raise ValueError(f"{len(section) - position} bytes after the last record")
    return records


def read_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the zigzag varint of at most 5 bytes at `position`, and the position after it."""
    byte = data[position]
    if byte < 0x80:  # The usual case.
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_zigzag(data, position, bits=32)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """Return the zigzag varlong of at most 10 bytes at `position`, and the position after it."""
    return _read_zigzag(data, position, bits=64)


def _read_zigzag(data: bytes | memoryview, position: int, *, bits: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise ValueError("a variable-length integer is too long")
    value &= (1 << bits) - 1  # The last byte may carry more bits than the type has; Java drops them.
    return (value >> 1) ^ -(value & 1), position


def _read_bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    if length > end - position:
        raise ValueError(f"a field of {length} bytes, {end - position} are left in its record")
    return data[position : position + length], position + length


def write_varint(value: int) -> bytes:
    """Return the shortest zigzag encoding of a 64-bit value, as a varint or a varlong: their bytes are the same."""
    zigzag = ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def _encode_record(record: Record, *, base_offset: int, base_timestamp: int) -> bytes:
    parts = [
        b"\0",
        write_varint(_wrap64(record.timestamp - base_timestamp)),
        write_varint(record.offset - base_offset),
    ]
    for field in (record.key, record.value):
        parts.append(b"\x01" if field is None else write_varint(len(field)) + field)
    parts.append(write_varint(len(record.headers)))
    for name, content in record.headers:
        text = java_string(name).encode()
        parts.append(write_varint(len(text)) + text)
        parts.append(b"\x01" if content is None else write_varint(len(content)) + content)
    body = b"".join(parts)
    return write_varint(len(body)) + body


def java_string(data: bytes) -> str:
    """Return bytes as the text that Kafka makes of them, as of the name of a record header: invalid UTF-8 is U+FFFD.

    Java replaces an encoded surrogate, also an incomplete one, as a whole; Python replaces each of its bytes.
    Rule: `RecordHeader.key`, `String`.
    """
    return _ENCODED_SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def _wrap64(value: int) -> int:
    """Return the value as a Java `long` after overflow."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


# Writing


def rebuild(header: Header, kept: Sequence[Record], *, delete_horizon_ms: int | None) -> bytes:
    """Return the batch of `header` with only the `kept` records: one or more of its own, in order.

    Base offset, last offset, producer, epochs and codec stay. The base timestamp becomes the delete horizon if there
    is one, else the timestamp of the first kept record. With CreateTime the maximum timestamp is that of the kept
    records. A batch of magic 0 or 1 becomes one of version 2, from the first kept offset to the last.
    Rule: `MemoryRecords.filterTo` with `MemoryRecordsBuilder`.
    """
    base_timestamp = kept[0].timestamp if delete_horizon_ms is None else delete_horizon_ms
    if header.magic < 2:
        first, last = kept[0].offset, kept[-1].offset
        header = header._replace(magic=2, base_offset=first, last_offset_delta=last - first)
    section = b"".join(
        _encode_record(record, base_offset=header.base_offset, base_timestamp=base_timestamp) for record in kept
    )
    if header.codec_id:
        section = compress(Codec(header.codec_id), section)
    attributes = header.attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_BIT
    max_timestamp = header.max_timestamp if header.is_log_append_time else max(record.timestamp for record in kept)
    return sealed(
        header._replace(
            length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(section),
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            records_count=len(kept),
        ),
        section,
    )


def empty(header: Header) -> bytes:
    """Return the batch of `header` without records: the 61 bytes that keep its offsets and its producer's state.

    The codec and the delete horizon are cleared. Rule: `DefaultRecordBatch.writeEmptyHeader`.
    """
    return sealed(
        header._replace(
            length=HEADER_BYTES - LOG_OVERHEAD_BYTES,
            attributes=header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT),
            base_timestamp=NO_TIMESTAMP,
            records_count=0,
        ),
        b"",
    )


def build(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    partition_leader_epoch: int = 0,
    log_append_time: bool = False,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Return a new batch of `records`, at least one, as a producer and a broker write it."""
    first, last = records[0], records[-1]
    attributes = (
        (LOG_APPEND_TIME_BIT if log_append_time else 0)
        | (TRANSACTIONAL_BIT if transactional else 0)
        | (CONTROL_BIT if control else 0)
        | codec
    )
    header = Header(
        base_offset=first.offset,
        length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=last.offset - first.offset,
        base_timestamp=first.timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        records_count=len(records),
    )
    return rebuild(header, records, delete_horizon_ms=None)


def sealed(header: Header, section: bytes) -> bytes:
    """Return the bytes of a batch: header and section of records, with the checksum computed."""
    start = header._replace(crc=0).pack()
    crc = crc32c(section, crc32c(start[_CRC_START:]))
    return b"".join((start[: _CRC_FIELD.start], crc.to_bytes(4, "big"), start[_CRC_FIELD.stop :], section))
