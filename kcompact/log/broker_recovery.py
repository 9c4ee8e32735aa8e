"""What a broker keeps of a segment that it recovers after an unclean shutdown. Reads only.

It reads the segment batch by batch, and cuts it at the first batch that is incomplete or has a wrong checksum.
Rule: `LogLoader.recoverLog`, `LogSegment.recover`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kcompact import readable
from kcompact.errors import CorruptBatchError
from kcompact.format import index
from kcompact.format.batch import HEADER_BYTES, computed_crc_of
from kcompact.format.legacy import CRC_START, LOG_OVERHEAD_BYTES
from kcompact.format.names import MAX_OFFSET
from kcompact.kernels import columns as c
from kcompact.log.files import FileIdentity, Files, LogFile, pieces_of
from kcompact.log.segment_reader import verified_runs
from kcompact.remarks import Note, RemarkCode

_UP_TO_MAGIC_BYTES = 17
_LEAST_LEGACY_BYTES = 14
_START = struct.Struct(">qi4xb")  # Base offset, length, magic.
_CRC = struct.Struct(">I")
_CRC_AT = 17


class Kept(NamedTuple):
    """What a broker keeps of a segment: its first `size_bytes`. `torn` is why it cuts off the rest, if there is one.

    The timestamps, in Unix milliseconds, are the maximum timestamp of the first batch and the greatest of all; None
    and -1 if there is no batch.
    """

    size_bytes: int
    next_offset: int
    first_batch_max_timestamp: int | None
    largest_timestamp: int
    torn: CorruptBatchError | None


def first_recovered(bases: Sequence[int], recovery_point: int) -> int:
    """Return the base offset, of the ascending ones, of the first segment that a broker recovers.

    Rule: `LogSegments.values(from, to)`.
    """
    return max((base for base in bases if base <= recovery_point), default=bases[0])


class Recovered(NamedTuple):
    """What a broker keeps of consecutive segments; of those after a torn one, nothing. `notes` are for the user."""

    kept: list[Kept]
    notes: list[Note]
    damage: list[CorruptBatchError]


def recovered_segments(files: Files, logs: Sequence[FileIdentity]) -> Recovered:
    """Return what a broker keeps of the segments of a log from the first one on that it recovers.

    Damage is a batch that makes `kept_by_broker` raise; the segment then counts as whole. Raises RefusedError,
    StorageError.
    """
    bases = [int(Path(log.name).stem) for log in logs]
    segments = readable.counted(len(logs), "segment")
    note = Note.of(RemarkCode.RECOVERED_AT_START, segments=segments, offset=bases[0])
    recovered = Recovered([], [note], [])
    for number, (log, base) in enumerate(zip(logs, bases, strict=True), start=1):
        following = bases[number] if number < len(bases) else MAX_OFFSET
        limit = min(following, base + index.MAX_RELATIVE_OFFSET + 1)
        try:
            kept = kept_by_broker(files.file(log.name), base_offset=base, end_offset=limit, size_bytes=log.size_bytes)
        except CorruptBatchError as problem:
            recovered.damage.append(problem)
            kept = Kept(log.size_bytes, base, None, index.NO_TIMESTAMP, None)
        recovered.kept.append(kept)
        if kept.torn is not None:
            recovered.notes.append(_torn_note(log, kept, kept.torn, later=len(logs) - number))
            break
    return recovered


def _torn_note(log: FileIdentity, kept: Kept, torn: CorruptBatchError, *, later: int) -> Note:
    """Return what a broker will cut off and delete; kcompact leaves it."""
    return Note.of(
        RemarkCode.TORN_END,
        log=log.name,
        position=kept.size_bytes,
        problem=torn.problem,
        size_bytes=log.size_bytes - kept.size_bytes,
        offset=kept.next_offset,
        deleted=f", and deletes {readable.counted(later, 'later segment')}" if later else "",
    )


def kept_by_broker(log: LogFile, *, base_offset: int, end_offset: int, size_bytes: int) -> Kept:
    """Return what a broker keeps of a segment, whose batches must be below `end_offset`.

    Raises CorruptBatchError for a batch that a broker keeps and a cleaning refuses, because its offsets do not rise or
    its leader epoch falls; RefusedError, StorageError.
    """
    position, next_offset, first_timestamp, largest_timestamp = 0, base_offset, None, index.NO_TIMESTAMP
    torn = None
    try:
        for run in verified_runs(log, base_offset=base_offset, end_offset=end_offset, end_position=size_bytes):
            timestamps = run.table[:, c.MAX_TIMESTAMP]
            first, greatest = int(timestamps[0]), int(timestamps.max())
            position, next_offset = run.end_position, run.next_offset
            first_timestamp = first if first_timestamp is None else first_timestamp
            largest_timestamp = max(largest_timestamp, greatest)
    except CorruptBatchError as problem:
        if is_kept(log, position, size_bytes):
            raise
        torn = problem
    return Kept(position, next_offset, first_timestamp, largest_timestamp, torn)


def is_kept(log: LogFile, position: int, end: int) -> bool:
    """Return whether a broker keeps the batch at a position of a segment of `end` bytes.

    Rule: `FileLogInputStream.nextBatch`, `DefaultRecordBatch.ensureValid`, `LegacyRecord.ensureValid`. A batch whose
    last offset does not fit into the segment counts as kept: a broker splits the segment there.
    """
    if position >= end - _UP_TO_MAGIC_BYTES:
        return False
    with log.open() as opened:
        prefix = opened.read(HEADER_BYTES, position)
        _, length, magic = _START.unpack_from(prefix)
        if length < _LEAST_LEGACY_BYTES or position + LOG_OVERHEAD_BYTES + length > end:
            return False
        batch_end = position + LOG_OVERHEAD_BYTES + length
        if magic >= 2 and batch_end - position < HEADER_BYTES:
            return False
        (crc,) = _CRC.unpack_from(prefix, _CRC_AT if magic >= 2 else CRC_START - _CRC.size)
        pieces = pieces_of(opened, position, batch_end)
        return bool(computed_crc_of(pieces, magic=2 if magic >= 2 else magic) == crc)
