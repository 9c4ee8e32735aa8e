"""Checks of the input that need more than one split: ends of indexes, leader epochs, last index times.

A difference means damage, and the partition is refused before anything is written. `damage_behind` decides whether the
log or an index is damaged when a scan fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kcompact.clean.scan import Scanned
from kcompact.errors import CorruptBatchError, CorruptDataError, CorruptIndexError, UnsupportedError
from kcompact.format import index
from kcompact.format.messages.control_records import QUORUM_TYPES
from kcompact.format.names import Suffix
from kcompact.kernels import columns as c
from kcompact.log.directory import PartitionLog
from kcompact.log.index_files import read_offset_index, read_time_index
from kcompact.log.offset_index import contradiction, index_or_log
from kcompact.log.producer_state import replay_start, verified_producer_headers
from kcompact.log.segments import Segment
from kcompact.plan.clean_plan import CleanPlan
from kcompact.release import NEWEST


def verify_index_ends(plan: CleanPlan) -> None:
    """Raise CorruptIndexError where an index points beyond its log: the log has lost its end, or all its data.

    No split contains such an entry, and a cleaning would delete the only evidence of the loss. Raises CorruptBatchError
    if the log is damaged too.
    """
    for segment in plan.segments:
        try:
            _verify_ends(plan.log, segment)
        except CorruptIndexError as problem:
            raise index_or_log(problem, plan.log.file(segment.log_name)) from None


def _verify_ends(log: PartitionLog, segment: Segment) -> None:
    file = log.index_file(segment, Suffix.INDEX)
    if file is not None:
        index.verify_end(read_offset_index(file), size_bytes=segment.size_bytes, file=str(file))
    file = log.index_file(segment, Suffix.TIME_INDEX)
    if file is not None and segment.size_bytes == 0 and read_time_index(file):
        raise CorruptIndexError(file=str(file), position=0, problem="has entries, but its log is empty")


def verify_replayed(plan: CleanPlan) -> None:
    """Raise CorruptBatchError for damage in segments after the cleanable range whose headers decide about producers.

    The plan has verified the active segment, and the scan verifies the segments that it reads.
    """
    log, start_offset = plan.log, replay_start(plan.log)
    for segment in log.segments[len(plan.segments) : -1]:
        if log.end_of(segment) > start_offset:
            for _ in verified_producer_headers(
                log.file(segment.log_name),
                base_offset=segment.base_offset,
                end_offset=log.end_of(segment),
                end_position=segment.size_bytes,
            ):
                pass


def damage_behind(problem: CorruptDataError, plan: CleanPlan) -> CorruptDataError:
    """Return what is really wrong when a scan has failed: damage of the log if there is any, else a wrong index.

    Splits begin where the index says, so with a wrong index the scan reads bytes that are not batches. And damage of
    the log makes a right index look wrong. Raises RefusedError, StorageError.
    """
    if isinstance(problem, CorruptIndexError):
        return index_or_log(problem, plan.log.file(Path(problem.file).name).with_suffix(Suffix.LOG))
    files = {segment.log_name: plan.log.index_file(segment, Suffix.INDEX) for segment in plan.segments}
    file = files.get(Path(problem.file).name)
    return problem if file is None else contradiction(file) or problem


def verify_epochs(plan: CleanPlan, scanned: Sequence[Scanned]) -> None:
    """Raise CorruptBatchError where the leader epoch falls from one split to the next. The scan checks inside a split.

    The checksum does not cover the leader epoch, so only a comparison with other batches finds damage.
    """
    epoch = -1
    for split, _, summary, _ in sorted(scanned, key=lambda scan: scan.split.number):
        if -1 < summary.first_epoch < epoch:
            raise CorruptBatchError(
                file=str(split.log),
                position=split.start_position,
                problem=f"leader epoch {summary.first_epoch} follows epoch {epoch}",
            )
        epoch = max(epoch, summary.last_epoch)


def verify_control_types(scanned: Sequence[Scanned]) -> None:
    """Raise UnsupportedError for a control record of a type that Kafka does not have yet.

    Kafka's cleaner keeps it, as it keeps the known types that end no transaction. But a type that a newer Kafka has
    added may decide which records count. Rule: `CleanedTransactionMetadata.onControlBatchRead`.
    """
    for split, _, summary, _ in scanned:
        kinds = summary.transactional.kinds
        is_unknown = (kinds < c.ABORT) | (kinds > max(QUORUM_TYPES)) & (kinds < c.NO_RECORD)
        if is_unknown.any():
            row = summary.transactional.table[is_unknown][0]
            raise UnsupportedError(
                path=str(split.log),
                problem=f"offset {row[c.TXN_BASE_OFFSET]}: a control record of type {row[c.TXN_KIND]}, which Kafka "
                f"{NEWEST.name} does not have: it may decide which records count",
                hint="It is of a newer Kafka: let that broker clean the log, or use a newer kcompact.",
            )


def verify_time_indexes(plan: CleanPlan, scanned: Sequence[Scanned]) -> None:
    """Raise CorruptIndexError where a time index ends with a greater timestamp than its segment has.

    It may end with a lower one, or have no entries, after the truncation of a follower: `LogSegment.truncateTo` goes on
    with what the shortened index has. Rule: `LogSegment.onBecomeInactiveSegment`.
    """
    greatest: dict[str, int] = {}
    for split, _, summary, _ in scanned:
        greatest[split.log.name] = max(greatest.get(split.log.name, -1), summary.max_timestamp)
    for segment in plan.segments:
        file = plan.log.index_file(segment, Suffix.TIME_INDEX)
        if file is None or segment.size_bytes == 0:
            continue
        entries = read_time_index(file)
        if entries and entries[-1].timestamp > greatest[segment.log_name]:
            raise CorruptIndexError(
                file=str(file),
                position=(len(entries) - 1) * index.TIME_ENTRY_BYTES,
                problem=f"ends with timestamp {entries[-1].timestamp}, "
                f"the greatest in the log is {greatest[segment.log_name]}",
            )
