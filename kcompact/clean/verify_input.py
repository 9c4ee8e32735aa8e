"""Checks of the input that need more than one split: ends of indexes, leader epochs, last index times.

A difference means damage, and the partition is refused before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcompact.clean.scan import Scanned
from kcompact.errors import CorruptBatchError, CorruptIndexError
from kcompact.format import index
from kcompact.format.names import Suffix
from kcompact.log.files import read_file
from kcompact.plan.clean_plan import CleanPlan


def verify_index_ends(plan: CleanPlan) -> None:
    """Raise CorruptIndexError where an index points beyond its log: the log has lost its end, or all its data.

    No split contains such an entry, and a cleaning would delete the only evidence of the loss.
    """
    for segment in plan.segments:
        path = (plan.log.directory / segment.log_name).with_suffix(Suffix.INDEX)
        if path.exists():
            entries = index.parse_offset_index(read_file(path), base_offset=segment.base_offset, file=str(path))
            index.verify_end(entries, size_bytes=segment.size_bytes, file=str(path))
        path = path.with_suffix(Suffix.TIME_INDEX)
        if segment.size_bytes == 0 and path.exists():
            times = index.parse_time_index(read_file(path), base_offset=segment.base_offset, file=str(path))
            if times:
                raise CorruptIndexError(file=path, position=0, problem="has entries, but its log is empty")


def verify_epochs(plan: CleanPlan, scanned: Sequence[Scanned]) -> None:
    """Raise CorruptBatchError where the leader epoch falls from one split to the next. The scan checks inside a split.

    The checksum does not cover the leader epoch, so only a comparison with other batches finds damage.
    """
    epoch = -1
    for split, _, summary in sorted(scanned, key=lambda scan: scan.split.number):
        if -1 < summary.first_epoch < epoch:
            raise CorruptBatchError(
                file=plan.log.directory / split.log_name,
                position=split.start_position,
                problem=f"leader epoch {summary.first_epoch} follows epoch {epoch}",
            )
        epoch = max(epoch, summary.last_epoch)


def verify_time_indexes(plan: CleanPlan, scanned: Sequence[Scanned]) -> None:
    """Raise CorruptIndexError where a time index does not end with its segment's greatest timestamp.

    An index without entries is allowed. Rule: `LogSegment.onBecomeInactiveSegment`.
    """
    greatest: dict[str, int] = {}
    for split, _, summary in scanned:
        greatest[split.log_name] = max(greatest.get(split.log_name, -1), summary.max_timestamp)
    for segment in plan.segments:
        path = (plan.log.directory / segment.log_name).with_suffix(Suffix.TIME_INDEX)
        if not path.exists() or segment.size_bytes == 0:
            continue
        entries = index.parse_time_index(read_file(path), base_offset=segment.base_offset, file=str(path))
        if entries and entries[-1].timestamp != greatest[segment.log_name]:
            raise CorruptIndexError(
                file=path,
                position=(len(entries) - 1) * index.TIME_ENTRY_BYTES,
                problem=f"ends with timestamp {entries[-1].timestamp}, "
                f"the greatest in the log is {greatest[segment.log_name]}",
                hint="The log itself may be intact: --rebuild-indexes builds the indexes again from the batches.",
            )
