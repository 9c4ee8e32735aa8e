"""The fate of transactional batches and markers, found out before anything is written.

What becomes of a marker depends on every batch before it, over segments and groups, so it cannot be decided where a
part is written. But it depends on headers and on the kinds of markers alone: this module reads those once, folds
them with `retain.TransactionTracker`, and hands each split the base offsets that concern it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kcompact.format import index
from kcompact.format.index import AbortedTxn
from kcompact.format.names import Suffix, index_name
from kcompact.log import PartitionLog, Segment, read_file
from kcompact.plan import CleanPlan
from kcompact.producers import Glimpse, glance_at_producers
from kcompact.retain import TransactionTracker


@dataclass(frozen=True, slots=True, kw_only=True)
class Fates:
    """What the tracker decided, by base offset of a segment or number of a group.

    `left_out` are the batches that do not enter the map of keys, `discardable` those of aborted transactions and the
    markers that have nothing left to mark, `kept_index` the entries of the output's `.txnindex`.
    """

    left_out: Mapping[int, frozenset[int]]
    discardable: Mapping[int, frozenset[int]]
    kept_index: Mapping[int, tuple[AbortedTxn, ...]]


class SegmentHeaders(NamedTuple):
    """What one walk over a segment's headers tells: its transactional and control batches, and the offset after the
    last batch, which is the base where there is none (`LogSegment.readNextOffset`)."""

    batches: Sequence[Glimpse]
    next_offset: int


def fates(plan: CleanPlan, seen: Mapping[int, SegmentHeaders], aborted: Mapping[int, Sequence[AbortedTxn]]) -> Fates:
    """Return the fate of every transactional and control batch that the plan rewrites.

    `seen` and `aborted` are by base offset: what the headers tell, and `aborted_of_segments`.

    Raises CorruptDataError. Rules: `Cleaner.buildOffsetMap`, `Cleaner.cleanSegments`.
    """
    discardable, kept_index = _clean_fold(plan, seen, aborted)
    return Fates(left_out=_map_fold(plan, seen, aborted), discardable=discardable, kept_index=kept_index)


def walk(plan: CleanPlan, *, compiled: bool) -> dict[int, SegmentHeaders]:
    """Return what the headers of each segment tell, by its base offset. Raises CorruptBatchError."""
    found = {}
    for segment in plan.segments:
        path = plan.log.directory / segment.log_name
        own = glance_at_producers(path, end_position=segment.size_bytes, compiled=compiled, transactions_only=True)
        next_offset = segment.base_offset if own.next_offset is None else own.next_offset
        found[segment.base_offset] = SegmentHeaders(own.batches, next_offset)
    return found


def aborted_of_segments(plan: CleanPlan) -> dict[int, tuple[AbortedTxn, ...]]:
    """Return what the `.txnindex` of each segment names, by its base offset. Raises CorruptDataError.

    Only where one names something can a batch be left out of the map of keys, and headers must be read before the scan.
    Otherwise the scan itself tells what it sees, for nothing else in it depends on the fates.
    """
    return {segment.base_offset: _aborted_of(plan.log, segment) for segment in plan.log.segments}


def _aborted_of(log: PartitionLog, segment: Segment) -> tuple[AbortedTxn, ...]:
    for file in segment.files:
        if file.name.endswith(Suffix.TXN_INDEX):
            path = log.directory / file.name
            return index.parse_txn_index(read_file(path), base_offset=segment.base_offset, file=str(path))
    return ()


def collect(
    log: PartitionLog, aborted: Mapping[int, Sequence[AbortedTxn]], start_offset: int, end_offset: int
) -> list[AbortedTxn]:
    """Return the aborted transactions that may reach into [start_offset, end_offset).

    Looks from the segment of `start_offset` on, and stops behind the first entry whose last stable offset reaches
    the end. Compared is with the log start, not with `start_offset`. Rule: `LocalLog.collectAbortedTransactions`.
    """
    found: list[AbortedTxn] = []
    first = max((base for base in aborted if base <= start_offset), default=None)
    if first is None:
        return found
    for base in sorted(base for base in aborted if base >= first):
        for transaction in aborted[base]:
            if transaction.last_offset >= log.log_start_offset and transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                return found
    return found


def _map_fold(
    plan: CleanPlan, seen: Mapping[int, SegmentHeaders], aborted: Mapping[int, Sequence[AbortedTxn]]
) -> dict[int, frozenset[int]]:
    tracker = TransactionTracker()
    tracker.expect(collect(plan.log, aborted, plan.first_dirty_offset, plan.first_uncleanable_offset))
    left_out = {}
    for segment in plan.log.segments_between(plan.first_dirty_offset, plan.first_uncleanable_offset):
        start_position = map_start_position(plan.log, segment, plan.first_dirty_offset)
        skipped = set()
        for batch in seen[segment.base_offset].batches:
            if batch.position < start_position:
                continue
            if batch.header.is_control:
                tracker.see_marker(batch.header, _kind(batch))
            elif tracker.see_data(batch.header):
                skipped.add(batch.header.base_offset)
        left_out[segment.base_offset] = frozenset(skipped)
    return left_out


def map_start_position(log: PartitionLog, segment: Segment, first_dirty_offset: int) -> int:
    """Return where Kafka starts to read a segment for its map of keys. Rule: `Cleaner.buildOffsetMapForSegment`."""
    path = log.directory / index_name(segment.base_offset)
    if first_dirty_offset <= segment.base_offset or not path.exists():
        return 0
    entries = index.parse_offset_index(read_file(path), base_offset=segment.base_offset, file=str(path))
    return index.lookup(entries, first_dirty_offset, base_offset=segment.base_offset).position


def _clean_fold(
    plan: CleanPlan, seen: Mapping[int, SegmentHeaders], aborted: Mapping[int, Sequence[AbortedTxn]]
) -> tuple[dict[int, frozenset[int]], dict[int, tuple[AbortedTxn, ...]]]:
    tracker = TransactionTracker()
    discardable, kept_index = {}, {}
    for number, group in enumerate(plan.groups):
        kept: list[AbortedTxn] = []
        for place, segment in enumerate(group):
            following = group[place + 1 : place + 2]
            end_offset = following[0].base_offset if following else seen[segment.base_offset].next_offset
            tracker.expect(collect(plan.log, aborted, segment.base_offset, end_offset))
            marked = set()
            for batch in seen[segment.base_offset].batches:
                entry = None
                if batch.header.is_control:
                    is_discardable, entry = tracker.see_marker(batch.header, _kind(batch))
                else:
                    is_discardable = tracker.see_data(batch.header)
                if is_discardable:
                    marked.add(batch.header.base_offset)
                if entry is not None:
                    kept.append(entry)
            discardable[segment.base_offset] = frozenset(marked)
        kept_index[number] = tuple(kept)
    return discardable, kept_index


def _kind(batch: Glimpse) -> int | None:
    return None if batch.marker is None else batch.marker.kind
