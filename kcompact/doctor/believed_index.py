"""What a broker does with an index that contradicts its log: it believes the index.

A broker that starts checks no entry. A look-up takes the last entry at or below an offset, by bisection of all slots of
the file, and looks for the batch from its position on. What lies before that position is not found:

    batches   0      9     17      24      34
    entries          9     24 (wrong: it has the position of 34)
                                  ^^^^^^^ a consumer that asks for 24 to 33 gets 34

In the last segment the last entry also decides where the log ends. Nothing is appended to an index whose last entry is
above the new offset.
Rules: `AbstractIndex.indexSlotRangeFor`, `LogSegment.translateOffset`, `LogSegment.readNextOffset`,
`FileRecords.searchForOffsetFromPosition`, `OffsetIndex.append`, `TimeIndex.maybeAppend`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from kcompact.doctor.broken_batches import broken_end, raw_batches, unreadable_wrapper
from kcompact.doctor.findings import Finding
from kcompact.errors import CorruptBatchError
from kcompact.format import index
from kcompact.format.names import MAX_OFFSET, Suffix
from kcompact.log.batch_headers import headers
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile, OpenFile
from kcompact.log.index_files import MAX_ENTRIES_BYTES, last_time_slot
from kcompact.log.segments import Segment
from kcompact.readable import counted
from kcompact.remarks import RemarkCode

_WARM_SLOTS = 8192 // index.OFFSET_ENTRY_BYTES
"""A look-up begins with so many slots at the end of an index. Rule: `AbstractIndex.warmEntries`."""

Slot = tuple[int, int]
"""A relative offset and a position."""


def offset_index_findings(log: PartitionLog, segment: Segment) -> Iterator[Finding]:
    """Yield what a broker makes of the `.index` of a segment. Raises RefusedError, StorageError."""
    file = log.file(segment.log_name)
    slots = _slots(log, segment)
    finding = partial(Finding, directory=log.directory, file=file.path.with_suffix(Suffix.INDEX))
    positions, end_offset = _batches(file, segment.base_offset)
    is_last = segment is log.active_segment
    behind = [slot[0] + segment.base_offset for slot in slots if slot[1] >= segment.size_bytes]
    yield from _lost_end(log, segment, Suffix.INDEX, behind, end_offset)
    starts = {position for _, position in positions}
    hidden = []
    for (first, position), end in zip(positions, [*(each[0] for each in positions[1:]), end_offset], strict=False):
        offset = max(first, log.log_start_offset)
        # Nobody asks for what was deleted, and what follows is looked up in the next segment.
        if offset < end and (is_last or offset < log.end_of(segment)):
            search_position = _looked_up(slots, offset - segment.base_offset)
            if search_position > position or search_position not in starts:
                hidden.append(offset)
    if hidden:
        problem = (
            f"leads to wrong places: of {counted(len(positions), 'batch', 'batches')} a consumer that asks for one "
            f"does not find {len(hidden)}, the first at offset {hidden[0]}"
        )
        yield finding(code=RemarkCode.HIDDEN_RECORDS, offset=hidden[0], problem=problem)
    if is_last:
        yield from _end_findings(log, segment, slots, end_offset)


def unstable_findings(log: PartitionLog, offset: int, memory_bytes: int) -> Iterator[Finding]:
    """Yield whether a broker ends when it looks for the first batch of an open transaction.

    It does so at each start, and asks each batch on the way for its first offset (since Kafka 4.1; before, only the
    last one of them). For that of a compressed old message it reads the messages inside.
    Rules: UnifiedLog.convertToOffsetMetadataOrThrow, FileRecords.searchForOffsetFromPosition,
    AbstractLegacyRecordBatch.baseOffset. Raises RefusedError, StorageError.
    """
    segment = log.segment_at(offset) or log.segments[0]
    if log.recovers(segment):
        return
    file = log.file(segment.log_name)
    position = _looked_up(_slots(log, segment), offset - segment.base_offset)
    looks = f"It looks there for the open transaction that begins at offset {offset}"
    first_batch = None
    with file.open() as opened:
        for batch in raw_batches(opened, position):
            exception = unreadable_wrapper(opened, batch, file, memory_bytes)
            if exception:
                yield Finding(
                    code=RemarkCode.UNLOADABLE_SEGMENT,
                    directory=log.directory,
                    file=file.path,
                    position=batch.position,
                    problem=f"a compressed message of an old format, whose contents cannot be read: a broker ends. "
                    f"{looks}",
                    broker_says=exception,
                )
                return
            if batch.base_offset >= offset:
                first_batch = batch
                break
    broken = broken_end(file, position, end_position=None if first_batch is None else first_batch.position)
    if broken is not None and broken.code is RemarkCode.UNLOADABLE_SEGMENT:
        yield replace(broken, problem=f"{broken.problem}. {looks}")


def end_look_up(log: PartitionLog, segment: Segment) -> int:
    """Return the position from which a broker looks for the end of the log in its last segment; 0 if it finds none."""
    slots = _slots(log, segment)
    position = _looked_up(slots, slots[-1][0]) if slots else 0
    return position if position < segment.size_bytes else 0


def _slots(log: PartitionLog, segment: Segment) -> list[Slot]:
    """Return all slots of an `.index`, as a broker sees them: also what follows the entries."""
    if not segment.has(Suffix.INDEX):
        return []
    with log.file(segment.log_name).with_suffix(Suffix.INDEX).open() as opened:
        size_bytes = min(opened.size_bytes, MAX_ENTRIES_BYTES) // index.OFFSET_ENTRY_BYTES * index.OFFSET_ENTRY_BYTES
        slots: list[Slot] = np.frombuffer(opened.read(size_bytes, 0), index.OffsetColumns.row).tolist()
        return slots


def _lost_end(
    log: PartitionLog, segment: Segment, suffix: Suffix, offsets: Iterable[int], end_offset: int
) -> Iterator[Finding]:
    """Yield a finding if an index has entries for offsets behind the end of its log.

    If the broker was stopped at the end of the log, or another segment has the offset, the entry is wrong.
    """
    if segment is log.active_segment:
        stopped_at = (log.log_dir.recovery_points or {}).get(log.topic_partition)
        limit = end_offset if log.log_dir.is_clean_shutdown and stopped_at == end_offset else MAX_OFFSET
    else:
        limit = log.end_of(segment)
    offset = next((each for each in offsets if end_offset <= each < limit), None)
    if offset is not None:
        yield Finding(
            code=RemarkCode.LOST_END,
            directory=log.directory,
            file=log.file(segment.log_name).path.with_suffix(suffix),
            offset=end_offset,
            problem=f"has an entry for offset {offset}, but the log has {segment.size_bytes:,} bytes and ends at "
            f"offset {end_offset}. Kafka writes an entry after its batch: unless the entry is wrong, the log has lost "
            "its end, and this file is the proof",
        )


def _batches(file: LogFile, base_offset: int) -> tuple[list[tuple[int, int]], int]:
    """Return for each batch the first offset that it answers for and its position, and the end offset."""
    batches, end_offset = [], base_offset
    try:
        for position, header in headers(file):
            batches.append((end_offset, position))
            end_offset = header.next_offset
    except CorruptBatchError:  # What lies behind it is told as damage.
        pass
    return batches, end_offset


def _looked_up(slots: Sequence[Slot], relative_offset: int) -> int:
    """Return the position at which a broker begins to look for an offset. It takes a negative one for 0."""
    return max(_slot_below(slots, relative_offset), 0)


def _slot_below(slots: Sequence[Slot], relative_offset: int) -> int:
    """Return the position in the last slot at or below an offset, as a broker finds it; 0 if there is none."""
    first_warm = max(0, len(slots) - 1 - _WARM_SLOTS)
    if not slots:
        return 0
    if slots[first_warm][0] < relative_offset:
        low, high = first_warm, len(slots) - 1
    elif slots[0][0] > relative_offset:
        return 0
    else:
        low, high = 0, first_warm
    while low < high:
        middle = (low + high + 1) // 2
        if slots[middle][0] == relative_offset:
            return slots[middle][1]
        low, high = (low, middle - 1) if slots[middle][0] > relative_offset else (middle, high)
    return slots[low][1]


def _end_findings(log: PartitionLog, segment: Segment, slots: Sequence[Slot], end_offset: int) -> Iterator[Finding]:
    """Yield where a broker finds no end of the log, another one, or cannot append."""
    file = log.file(segment.log_name)
    last = slots[-1][0] if slots else 0
    position = _looked_up(slots, last)
    broken = broken_end(file, position)
    if broken is not None and broken.code is RemarkCode.UNLOADABLE_SEGMENT:
        yield broken
        return
    with file.open() as opened:
        end = end_from(opened, position, segment.base_offset, segment.base_offset + last)
    finding = partial(Finding, directory=log.directory, file=file.path.with_suffix(Suffix.INDEX))
    if end != end_offset:
        problem = (
            f"its last entry leads a broker to offset {end} as the end of the log, which is {end_offset}: it appends "
            "there, and what it appends is not found, or hides what is there"
        )
        yield finding(code=RemarkCode.LOST_END, offset=min(end, end_offset), problem=problem)
    elif segment.base_offset + last >= end_offset and last > 0:
        yield _unwritable(file.with_suffix(Suffix.INDEX), segment.base_offset + last, end_offset)


def end_from(opened: OpenFile, position: int, base_offset: int, sought: int) -> int:
    """Return the end of the log that a broker reads from a position on, after the first batch with an offset."""
    end_offset, is_found = base_offset, False
    for batch in raw_batches(opened, position):
        is_found = is_found or batch.last_offset >= sought
        end_offset = batch.last_offset + 1 if is_found else end_offset
    return end_offset


def time_index_findings(log: PartitionLog, segment: Segment, *, now_ms: int) -> Iterator[Finding]:
    """Yield what a broker makes of the end of the `.timeindex` of a segment.

    It adds entries for greater timestamps only. Raises RefusedError, StorageError.
    """
    # Without an offset index the segment's sizes are those of the indexes that a broker is going to make.
    if not any(
        each.size_bytes >= index.TIME_ENTRY_BYTES and each.name.endswith(Suffix.TIME_INDEX) for each in segment.files
    ):
        return
    file = log.file(segment.log_name)
    last = last_time_slot(file.with_suffix(Suffix.TIME_INDEX))
    offset = segment.base_offset + last.relative_offset
    if segment is log.active_segment and not log.damage and offset < log.log_end_offset:
        return
    end_offset = _batches(file, segment.base_offset)[1]
    yield from _lost_end(log, segment, Suffix.TIME_INDEX, [offset], end_offset)
    is_added_to = segment is log.active_segment and segment.has(Suffix.INDEX) and last.timestamp <= now_ms
    if is_added_to and offset > end_offset:
        yield _unwritable(file.with_suffix(Suffix.TIME_INDEX), offset, end_offset)


def too_large_index_findings(log: PartitionLog, segment_index_bytes: int) -> Iterator[Finding]:
    """Yield the indexes of the last segment that do not fit into the size that a broker gives them.

    Rule: LogLoader.load, AbstractIndex.resize.
    """
    segment = log.active_segment
    sizes = {
        Suffix.INDEX: (segment.index_bytes, index.OFFSET_ENTRY_BYTES),
        Suffix.TIME_INDEX: (segment.time_index_bytes, index.TIME_ENTRY_BYTES),
    }
    for suffix, (size_bytes, entry_bytes) in sizes.items():
        if segment.has(suffix) and size_bytes > segment_index_bytes // entry_bytes * entry_bytes:
            yield Finding(
                code=RemarkCode.UNLOADABLE_SEGMENT,
                directory=log.directory,
                file=log.file(segment.log_name).path.with_suffix(suffix),
                problem=f"has {size_bytes:,} bytes, and segment.index.bytes is {segment_index_bytes:,}: a broker that "
                "gives it this size ends",
                broker_says="IllegalArgumentException: newPosition > limit",
            )


def _unwritable(file: LogFile, offset: int, end_offset: int) -> Finding:
    return Finding(
        code=RemarkCode.UNWRITABLE_INDEX,
        directory=file.files.directory,
        file=file.path,
        offset=offset,
        problem=f"its last entry is for offset {offset}, and the log ends at {end_offset}: a broker that has to "
        "add an entry for an offset between cannot, and takes no more records",
        broker_says="InvalidOffsetException: Attempt to append an offset",
    )
