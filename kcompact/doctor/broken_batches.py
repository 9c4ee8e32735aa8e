"""What a broker and its cleaner do with bytes that are no batch.

A broker that loads the last segment of a log, or a `.log.swap`, looks for the end from the last index entry on. A batch
size that is too small ends the whole broker. A batch that is longer than the file only ends the log: the broker appends
after its bytes, and no consumer gets past them.
Rules: `LogSegment.readNextOffset`, `FileLogInputStream.nextBatch`, `LogLoader.load`.

A cleaner checks no checksum and no offset, but some bytes stop it. Then the broker logs a warning and marks the
partition as uncleanable until it is started again.
Rules: `LogCleaner.CleanerThread.tryCleanFilthiestLog`, `Cleaner.growBuffersOrFail`, `ByteBufferLogInputStream`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from kcompact.doctor.findings import Finding
from kcompact.errors import CorruptDataError, KcompactError
from kcompact.format.batch import HEADER_BYTES, Batch, read_header, read_records
from kcompact.format.names import Suffix, Temporary, TopicPartition
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile, OpenFile
from kcompact.remarks import RemarkCode

UP_TO_MAGIC_BYTES = 17
OVERHEAD_BYTES = 12
"""Offset and size of a batch, before everything that the size counts."""
LEAST_RECORD_BYTES = 14
_LATEST_MAGIC = 2
_GREATEST_MAGIC = 127
"""A broker takes what is greater for a negative one, so for an old format."""
_LAST_OFFSET_DELTA = struct.Struct(">i")


class RawBatch(NamedTuple):
    """What a broker takes for a batch after a look at its first bytes."""

    position: int
    end_position: int
    base_offset: int
    last_offset: int


def raw_batches(opened: OpenFile, position: int) -> Iterator[RawBatch]:
    """Yield what a broker takes for batches, from a position on. Rule: `FileLogInputStream.nextBatch`."""
    while 0 <= position < opened.size_bytes - UP_TO_MAGIC_BYTES:
        data = opened.read(HEADER_BYTES, position)
        base_offset, size = struct.unpack_from(">qi", data)
        last_offset = base_offset
        end_position = position + OVERHEAD_BYTES + size
        if size < LEAST_RECORD_BYTES or end_position > opened.size_bytes:
            return
        if _LATEST_MAGIC <= data[UP_TO_MAGIC_BYTES - 1] <= _GREATEST_MAGIC and len(data) == HEADER_BYTES:
            last_offset += _LAST_OFFSET_DELTA.unpack_from(data, 23)[0]
        yield RawBatch(position, end_position, base_offset, last_offset)
        position = end_position


def wrong_start(file: LogFile) -> Finding | None:
    """Return what a broker does with the first batch of the last segment, which each append asks for its time.

    Rule: `LogSegment.shouldRoll`. Raises RefusedError, StorageError.
    """
    with file.open() as opened:
        first = next(raw_batches(opened, 0), None)
        magic = 0 if first is None else int.from_bytes(opened.read(1, UP_TO_MAGIC_BYTES - 1), signed=True)
    if magic >= 0:
        return None
    return Finding(
        code=RemarkCode.UNLOADABLE_SEGMENT,
        directory=file.files.directory,
        file=file.path,
        position=0,
        problem=f"the first batch has the magic {magic}: a broker takes no more records",
        broker_says=f"IllegalArgumentException: Invalid magic used in LegacyRecord: {magic}",
    )


def broken_end(file: LogFile, position: int, *, end_position: int | None = None) -> Finding | None:
    """Return what a broker does with the bytes from a position of a last segment on; None if it finds batches there.

    With an `end_position` only the batches before it are looked at. Raises RefusedError, StorageError.
    """
    with file.open() as opened:
        end = opened.size_bytes
        last = end if end_position is None else end_position
        for batch in raw_batches(opened, position):
            if position >= last:
                break
            position = batch.end_position
        if position >= last:
            return None
        prefix = opened.read(min(OVERHEAD_BYTES, end - position), position)
    finding = partial(Finding, directory=file.files.directory, file=file.path, position=position)
    # A broker does not look at the last bytes, if they are too few for a header.
    if position < end - UP_TO_MAGIC_BYTES and (size := struct.unpack_from(">i", prefix, 8)[0]) < LEAST_RECORD_BYTES:
        least = f"smaller than minimum record overhead ({LEAST_RECORD_BYTES})"
        return finding(
            code=RemarkCode.UNLOADABLE_SEGMENT,
            problem=f"a batch of {size} bytes: a broker cannot find the end of the log, and ends",
            broker_says=f"Found record size {size} {least} in file {file}",
        )
    problem = (
        f"{end - position:,} bytes at the end are no whole batch: a broker appends after them, and consumers do not "
        "get past them"
    )
    return finding(code=RemarkCode.TORN_END, problem=problem)


def torn_closed_end(file: LogFile, position: int, offsets: range) -> Finding | None:
    """Return the finding for a closed segment that ends with a part of a batch from a position on; None if it does not.

    `offsets` are those of the segment. What has no header of such a batch is not known to be a part of one.
    Raises RefusedError, StorageError.
    """
    with file.open() as opened:
        left_bytes = opened.size_bytes - position
        prefix = opened.read(min(UP_TO_MAGIC_BYTES, left_bytes), position)
    if len(prefix) < UP_TO_MAGIC_BYTES:
        return None
    offset, size = struct.unpack_from(">qi", prefix)
    is_batch = offset in offsets and size >= LEAST_RECORD_BYTES and prefix[-1] <= _LATEST_MAGIC
    if not is_batch or OVERHEAD_BYTES + size <= left_bytes:
        return None
    return Finding(
        code=RemarkCode.TORN_END,
        directory=file.files.directory,
        file=file.path,
        position=position,
        offset=offset,
        problem=f"{left_bytes:,} bytes at the end are a part of a batch: its records, and what came after them in this "
        "segment, are lost. Consumers go on with the next segment",
    )


def swap_findings(log: PartitionLog) -> Iterator[Finding]:
    """Yield the `.log.swap` files that a broker fails to load. Raises RefusedError, StorageError."""
    for name in log.leftovers:
        if name.endswith(f"{Suffix.LOG}{Temporary.SWAP}"):
            finding = broken_end(log.file(name), 0)
            if finding is not None and finding.code is RemarkCode.UNLOADABLE_SEGMENT:
                yield finding


_KEY_SIZE_AT = (18, 26)
"""Where a message of magic 0 or 1 has the size of its key."""
_CODEC_BITS = 7
_BUFFER_BYTES = 1_048_588
"""The default `max.message.bytes`, to which the cleaner's buffer grows."""


def uncleanable_batches(file: LogFile, partition: TopicPartition, *, memory_bytes: int) -> Iterator[Finding]:
    """Yield where a broker's cleaner fails in a segment: at the first place already, and at the others after a repair.

    The broker's log says so with the exception. Where no batch begins, the rest cannot be examined.
    Raises RefusedError, StorageError.
    """
    with file.open() as opened:
        end, position = opened.size_bytes, 0
        while position < end:
            left_bytes = end - position
            prefix = opened.read(min(UP_TO_MAGIC_BYTES, left_bytes), position)
            offset = struct.unpack_from(">q", prefix)[0] if len(prefix) >= 8 else None
            exception = _wrong_prefix(prefix, left_bytes, f"log segment {file} at position {position}")
            size_bytes = left_bytes
            if not exception:
                size_bytes = OVERHEAD_BYTES + struct.unpack_from(">i", prefix, 8)[0]
                exception = _wrong_records(opened.read(size_bytes, position), file, position, memory_bytes)
            if exception:
                yield Finding(
                    code=RemarkCode.UNCLEANABLE_BATCH,
                    directory=file.files.directory,
                    file=file.path,
                    position=position,
                    offset=offset,
                    problem="cannot be read as a batch",
                    broker_says=f"Marking its partition ({partition}) as uncleanable: {exception}",
                )
            position += size_bytes


def _wrong_prefix(prefix: bytes, left_bytes: int, where: str) -> str:
    """Return the exception for the first bytes of a batch, an empty text if they are right."""
    if len(prefix) < OVERHEAD_BYTES:
        return f"IllegalStateException: Could not determine next batch size for {where}"
    (size,) = struct.unpack_from(">i", prefix, 8)
    if size < LEAST_RECORD_BYTES:
        least = f"less than the minimum record overhead ({LEAST_RECORD_BYTES})"
        return f"CorruptRecordException: Record size {size} is {least}"
    if len(prefix) < UP_TO_MAGIC_BYTES:
        return f"IllegalStateException: Could not determine next batch size for {where}"
    (magic,) = struct.unpack_from(">b", prefix, 16)
    if not 0 <= magic <= _LATEST_MAGIC:
        return f"CorruptRecordException: Invalid magic found in record: {magic}"
    size_bytes = size + OVERHEAD_BYTES
    if size_bytes <= left_bytes:
        return ""
    if size_bytes <= _BUFFER_BYTES:
        problem = f"Batch size {size_bytes} < buffer size {_BUFFER_BYTES}, but not processed for {where}"
        return f"IllegalStateException: {problem}"
    problem = f"Log segment may be corrupt, batch size {size_bytes} > {left_bytes} bytes left in segment for {where}"
    return f"CorruptRecordException: {problem}"


def _wrong_records(data: bytes, file: LogFile, position: int, memory_bytes: int) -> str:
    """Return the exception for records that cannot be decoded, an empty text if they can."""
    magic = data[UP_TO_MAGIC_BYTES - 1]
    if magic < _LATEST_MAGIC and data[UP_TO_MAGIC_BYTES] & _CODEC_BITS == 0:
        return _wrong_key(data, _KEY_SIZE_AT[magic])
    try:
        header = read_header(data, file=str(file), position=position)
        batch = Batch(position, header, memoryview(data))
        read_records(batch, file=str(file), memory_bytes=memory_bytes, check_offsets=False)
    except CorruptDataError:
        return "KafkaException or InvalidRecordException"
    except KcompactError:
        return ""  # Too large to be checked here.
    return ""


def unreadable_wrapper(opened: OpenFile, batch: RawBatch, file: LogFile, memory_bytes: int) -> str:
    """Return the exception for what a broker takes for a compressed message of an old format; "" for all else."""
    prefix = opened.read(UP_TO_MAGIC_BYTES + 1, batch.position)
    if _LATEST_MAGIC <= prefix[-2] <= _GREATEST_MAGIC or prefix[-1] & _CODEC_BITS == 0:
        return ""
    data = opened.read(batch.end_position - batch.position, batch.position)
    return _wrong_records(data, file, batch.position, memory_bytes)


def _wrong_key(data: bytes, at: int) -> str:
    """Return the exception for an uncompressed message of magic 0 or 1, of which a cleaner only reads the key."""
    if len(data) < at + 4:
        return "IndexOutOfBoundsException"
    (size,) = struct.unpack_from(">i", data, at)
    return "IllegalArgumentException" if size > len(data) - at - 4 else ""
