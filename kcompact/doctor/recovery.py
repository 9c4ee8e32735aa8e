"""What a broker that recovers a log cuts off, and where it ends. It recovers the metadata log at each start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from kcompact.doctor.believed_index import end_from
from kcompact.doctor.broken_batches import RawBatch, raw_batches
from kcompact.doctor.damage import bad_transaction_index
from kcompact.doctor.findings import Finding
from kcompact.errors import CorruptBatchError, CorruptTransactionIndexError, KcompactError
from kcompact.format.batch import Batch
from kcompact.format.index import MAX_RELATIVE_OFFSET
from kcompact.format.names import Suffix, log_bases, txn_index_name
from kcompact.log.broker_recovery import is_kept
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile
from kcompact.log.past_damage import readable_batches
from kcompact.log.segments import Segment
from kcompact.log.transaction_index import read_transaction_index
from kcompact.readable import counted
from kcompact.release import Release
from kcompact.remarks import RemarkCode


def recovery_findings(
    log: PartitionLog, problems: Sequence[KcompactError], *, snapshot_offset: int = 0
) -> Iterator[Finding]:
    """Yield what a broker that recovers the log cuts off, if more than a torn batch at the end is lost with it.

    What lies below `snapshot_offset` is not lost: a snapshot of the metadata log has it. Yield also which of the
    problems end the broker. Raises RefusedError, StorageError.
    """
    yield from _overflows(log, problems)
    last = log.active_segment
    if log.recovered_from is None:
        return
    finding = partial(Finding, directory=log.directory, file=log.directory / last.log_name, offset=log.log_end_offset)
    file, cut_at = log.file(last.log_name), last.size_bytes
    later = [base for base in log_bases(log.files.names()) if base > last.base_offset]
    high_watermark = (log.log_dir.high_watermarks or {}).get(log.topic_partition, 0)
    behind = readable_batches(file, start_position=cut_at, after_offset=log.log_end_offset - 1)
    if later or any(isinstance(part, Batch) and part.header.next_offset > snapshot_offset for part in behind):
        deleted = f", and deletes {counted(len(later), 'later segment')}" if later else ""
        yield finding(
            code=RemarkCode.TORN_END,
            position=cut_at,
            problem=f"a broker that starts cuts off {file.identity().size_bytes - cut_at:,} bytes, from offset "
            f"{log.log_end_offset} on{deleted}; records that can still be read are among them",
            broker_says=f"Corruption found in segment {last.base_offset}, truncating to offset {log.log_end_offset}",
        )
    elif high_watermark > log.log_end_offset:
        yield finding(
            code=RemarkCode.LOST_END,
            problem=f"a broker that starts finds the end of the log at offset {log.log_end_offset}, below the high "
            f"watermark {high_watermark}: records that were replicated are lost here. It fetches them from the other "
            "replicas, if there are any",
        )


def refused_indexes(log: PartitionLog, release: Release) -> Iterator[Finding]:
    """Yield the `.txnindex` files that end a broker before it recovers their segments, and makes them again.

    Raises RefusedError, StorageError.
    """
    known = () if log.needs_recovery else log.segments
    read = {file.name for segment in known for file in segment.files}
    for name in map(txn_index_name, log_bases(log.files.names())) if log.log_dir.is_unclean else ():
        file = log.file(name)
        if name not in read and file.exists():
            try:
                read_transaction_index(file)
            except CorruptTransactionIndexError as problem:
                if (finding := bad_transaction_index(problem, release)) is not None:
                    yield finding


def _overflows(log: PartitionLog, problems: Sequence[KcompactError]) -> Iterator[Finding]:
    """Yield the segments in which a recovery finds an offset that no index of theirs can have.

    A broker then splits the segment, but only if the end of the segment is too far away as well; otherwise it ends. It
    also recovers a segment without `.index`. Rules: LogSegment.recover, LogSegment.hasOverflow,
    LocalLog.splitOverflowedSegment.
    """
    damaged = {Path(each.file).name for each in problems if isinstance(each, CorruptBatchError)}
    for segment in log.segments:
        if segment.log_name not in damaged or segment.has(Suffix.INDEX):
            continue
        file, base_offset = log.file(segment.log_name), segment.base_offset
        wrong = _first_outside(file, segment)
        if wrong is None:
            continue
        with file.open() as opened:
            end_offset = end_from(opened, 0, base_offset, base_offset)
        if end_offset - 1 - base_offset <= MAX_RELATIVE_OFFSET:
            yield Finding(
                code=RemarkCode.UNLOADABLE_SEGMENT,
                directory=log.directory,
                file=file.path,
                position=wrong.position,
                offset=wrong.last_offset,
                problem=f"offset {wrong.last_offset} is none of a segment with the base offset {base_offset}: a broker "
                "that recovers the segment ends",
                broker_says="IllegalArgumentException: Split operation is only permitted for segments with overflow",
            )


def _first_outside(file: LogFile, segment: Segment) -> RawBatch | None:
    """Return the first batch that a recovery keeps and whose offset is none of the segment."""
    with file.open() as opened:
        for batch in raw_batches(opened, 0):
            if not is_kept(file, batch.position, segment.size_bytes):
                return None
            if not 0 <= batch.last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET:
                return batch
    return None
