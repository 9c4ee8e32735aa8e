"""Where offsets of a log are missing, and what that proves about compaction.

Kafka gives every record the next offset. So a missing one was removed by a compaction: here, or on the replica that
this log was copied from. A transaction marker has an offset too, but no consumer sees it; on the disk the two can be
told apart. What proves a compaction is a *proof* here. What merely fits one, such as the times of files, is a
*hint* (`rewrite_hints`).

A row is a data record, numbered from 1 on. A gap is noted at the row after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import repeat

import numpy as np

from kcompact.errors import CorruptDataError, KcompactError, RefusedError
from kcompact.format.batch import read_records
from kcompact.format.index import NO_TIMESTAMP
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.host.machine import available_cores, in_parallel
from kcompact.kernels import Mask, Table
from kcompact.kernels import columns as c
from kcompact.log.directory import PartitionLog
from kcompact.log.markers import are_control, end_transactions
from kcompact.log.segment_reader import batch_at
from kcompact.log.segments import Segment
from kcompact.log.transactions import Outcome, PackedTables, TransactionEnds, read_transaction_tables
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.transactions import end_of_uncommitted_view, end_of_view
from kcompact.questions.contents import LogContents, log_contents
from kcompact.questions.gaps.batches import Chunk, chunks, count, rising
from kcompact.questions.gaps.rewrite_hints import evidence
from kcompact.questions.gaps.walks import GapRow, Gaps, GapWalk, OffsetCounts, SegmentGaps, Walk, walk
from kcompact.values import dataclass

Advance = Callable[[int], None]


def log_gaps(
    plan: CleanPlan,
    *,
    contents: LogContents | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    advance: Advance | None = None,
) -> Gaps:
    """Return where offsets of a log are missing, and what that proves.

    Reads all headers, and the records of the batches that have fewer records than offsets. `contents` are those of
    `log_contents`, if they are known already. `advance` receives the bytes of each segment that was counted.
    Damage ends the count. Raises StorageError.
    """
    log = plan.log
    scope = _Scope.of(plan, contents or log_contents(log), memory_bytes)
    segment_walks: list[_SegmentWalks] = []
    damage: KcompactError | None = None
    for segment, counted in zip(log.segments, _counted_segments(scope, log.segments), strict=False):
        segment_walks.append(counted)
        if advance is not None:
            advance(segment.size_bytes)
        if counted.damage is not None:
            damage = counted.damage
            break
    total = _SegmentWalks(end_offset=log.log_start_offset)
    of_segments: list[SegmentGaps] = []
    for segment, counted in zip(log.segments, segment_walks, strict=False):
        before, total = total, total + counted
        of_segments.append(_of_segment(segment, counted, new_gaps=total.on_disk.gaps - before.on_disk.gaps))
    # A segment can end below the log start, and damage there ends the count too.
    total = replace(total, end_offset=max(total.end_offset, log.log_start_offset))
    counts, places = total.counts, _Places(log, memory_bytes)
    gaps = Gaps(
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        counted_to_offset=total.end_offset,
        first_dirty_offset=plan.first_dirty_offset,
        checkpoint_offset=log.checkpoint_offset,
        on_disk=places.gap_walk(total.on_disk, total.end_offset, present=counts.present),
        read_uncommitted=places.gap_walk(total.uncommitted, min(total.end_offset, scope.uncommitted_end)),
        read_committed=places.gap_walk(total.committed, min(total.end_offset, scope.committed_end)),
        dirty=total.dirty,
        missing_before_first_row=total.on_disk.missing_before if total.on_disk.rows else None,
        missing_after_last_row=total.on_disk.missing_after if total.on_disk.rows else None,
        counts=counts,
        segments=tuple(of_segments),
        evidence=(),
    )
    return replace(gaps, evidence=evidence(plan, gaps), damage=damage or places.damage)


def _of_segment(segment: Segment, walks: _SegmentWalks, *, new_gaps: int) -> SegmentGaps:
    """Return the gaps that end in a segment. One more than in its walk ends at its first row."""
    first, last = walks.on_disk.first_gap, walks.on_disk.last_gap
    if new_gaps > walks.on_disk.gaps:
        first = walks.on_disk.first
        last = last or first
    return SegmentGaps(
        base_offset=segment.base_offset,
        end_offset=walks.end_offset,
        counts=walks.counts,
        first_offset=walks.first_offset,
        gaps=new_gaps,
        first_gap_offset=first.offset if first else None,
        last_gap_offset=last.offset if last else None,
    )


# The segments


@dataclass(frozen=True, slots=True, kw_only=True)
class _SegmentWalks:
    """The walks over some segments, up to `end_offset` or to their damage."""

    end_offset: int
    on_disk: Walk = field(default_factory=Walk)
    uncommitted: Walk = field(default_factory=Walk)
    committed: Walk = field(default_factory=Walk)
    dirty: Walk = field(default_factory=Walk)
    counts: OffsetCounts = field(default_factory=OffsetCounts)
    first_offset: int | None = None
    damage: KcompactError | None = None

    def __add__(self, later: _SegmentWalks) -> _SegmentWalks:
        return _SegmentWalks(
            end_offset=later.end_offset,
            on_disk=self.on_disk + later.on_disk,
            uncommitted=self.uncommitted + later.uncommitted,
            committed=self.committed + later.committed,
            dirty=self.dirty + later.dirty,
            counts=self.counts + later.counts,
            first_offset=later.first_offset if self.first_offset is None else self.first_offset,
            damage=later.damage,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """What the walks over the segments of a log need to know about it."""

    log: PartitionLog
    first_dirty_offset: int
    uncommitted_end: int
    committed_end: int
    transaction_ends: TransactionEnds
    memory_bytes: int

    @classmethod
    def of(cls, plan: CleanPlan, contents: LogContents, memory_bytes: int) -> _Scope:
        log = plan.log
        return cls(
            log=log,
            first_dirty_offset=plan.first_dirty_offset,
            uncommitted_end=end_of_uncommitted_view(plan),
            committed_end=end_of_view(plan),
            transaction_ends=_transaction_ends(log, contents),
            memory_bytes=memory_bytes,
        )

    def walks(self, segment: Segment) -> _SegmentWalks:
        """Return the walks over one segment. Raises StorageError."""
        file = self.log.file(segment.log_name)
        end_offset = self.log.end_of(segment)
        offset = min(max(segment.base_offset, self.log.log_start_offset), end_offset)
        segment_walks, after_offset = _SegmentWalks(end_offset=offset), segment.base_offset - 1
        try:
            for chunk in chunks(
                file,
                end_position=segment.size_bytes,
                log_start_offset=self.log.log_start_offset,
                memory_bytes=self.memory_bytes,
            ):
                sound, problem = rising(chunk, after_offset=after_offset, end_offset=end_offset, file=file)
                if len(sound.table):
                    segment_walks = segment_walks + self._walks_of(sound, segment, segment_walks.end_offset)
                    after_offset = sound.last_offset
                if problem is not None:
                    return replace(segment_walks, damage=problem)
        except (CorruptDataError, RefusedError) as problem:
            return replace(segment_walks, damage=problem)
        rest = end_offset - segment_walks.end_offset
        counts = OffsetCounts(between_batches=rest, missing_to=end_offset - 1 if rest else -1)
        return segment_walks + replace(self._empty(segment_walks.end_offset, end_offset), counts=counts)

    def _walks_of(self, chunk: Chunk, segment: Segment, start_offset: int) -> _SegmentWalks:
        """Return the walks over some batches, from `start_offset` on."""
        counted = count(
            chunk,
            _is_aborted(chunk.table, self.transaction_ends),
            start_offset=start_offset,
            index_interval_bytes=self.log.index_interval_bytes,
        )
        runs, end_offset = counted.runs, counted.end_offset
        base = segment.base_offset
        is_data = ~counted.is_control
        replicated_end = max(start_offset, min(end_offset, self.uncommitted_end))
        replicated, replicated_mask = runs.between(start_offset, replicated_end)
        stable_end = max(start_offset, min(end_offset, self.committed_end))
        stable, stable_mask = runs.between(start_offset, stable_end)
        dirty_start = self._dirty_start(start_offset, end_offset)
        dirty, dirty_mask = runs.between(dirty_start, end_offset)
        return _SegmentWalks(
            end_offset=end_offset,
            on_disk=walk(
                runs,
                is_data,
                start_offset=start_offset,
                end_offset=end_offset,
                segment=base,
                passes_over=counted.is_control,
            ),
            uncommitted=walk(
                replicated,
                is_data[replicated_mask],
                start_offset=start_offset,
                end_offset=replicated_end,
                segment=base,
            ),
            committed=walk(
                stable,
                (is_data & ~counted.is_aborted)[stable_mask],
                start_offset=start_offset,
                end_offset=stable_end,
                segment=base,
            ),
            dirty=walk(
                dirty,
                is_data[dirty_mask],
                start_offset=dirty_start,
                end_offset=end_offset,
                segment=base,
                passes_over=counted.is_control[dirty_mask],
            ),
            counts=counted.counts,
            first_offset=int(runs.first[0]) if len(runs.first) else None,
        )

    def _empty(self, start_offset: int, end_offset: int) -> _SegmentWalks:
        """Return the walks over a range without batches."""
        whole = Walk(missing_before=end_offset - start_offset)
        return _SegmentWalks(
            end_offset=end_offset,
            on_disk=whole,
            uncommitted=Walk(missing_before=max(0, min(end_offset, self.uncommitted_end) - start_offset)),
            committed=Walk(missing_before=max(0, min(end_offset, self.committed_end) - start_offset)),
            dirty=Walk(missing_before=end_offset - self._dirty_start(start_offset, end_offset)),
        )

    def _dirty_start(self, start_offset: int, end_offset: int) -> int:
        return min(end_offset, max(start_offset, self.first_dirty_offset))


def _counted_segments(scope: _Scope, segments: Sequence[Segment]) -> Iterator[_SegmentWalks]:
    """Return the walks over the segments in order; several segments are walked at the same time."""
    scope = replace(scope, memory_bytes=scope.memory_bytes // available_cores())
    return in_parallel(_Scope.walks, repeat(scope, len(segments)), segments)


def _transaction_ends(log: PartitionLog, contents: LogContents) -> TransactionEnds:
    """Return how the transactions of a log end. Beyond damage no marker is known."""
    packed_tables: list[PackedTables] = []
    if any(segment.transactional_batches for segment in contents.segments):
        for segment in log.segments:
            file = log.file(segment.log_name)
            try:
                packed_tables.append(read_transaction_tables(file, end_position=segment.size_bytes))
            except (CorruptDataError, RefusedError):
                break
    return TransactionEnds.of_tables(_deciding_markers(PackedTables.joined(packed_tables)))


def _deciding_markers(tables: Iterable[Table]) -> Iterator[Table]:
    """Yield the markers that decide how transactions ended, each with the greatest base offset so far.

    No checksum covers a base offset. The count ends before a marker whose offset is too low, which must not end what
    lies before. Of the markers of a producer that follow each other with the same outcome the last is enough.
    """
    greatest = -1
    for table in tables:
        offsets = np.maximum.accumulate(np.maximum(table[:, c.TXN_BASE_OFFSET], greatest))
        greatest = int(offsets[-1]) if len(offsets) else greatest
        is_marker = end_transactions(table[:, c.TXN_KIND])
        markers = table[is_marker]
        markers[:, c.TXN_BASE_OFFSET] = offsets[is_marker]
        by_producer = np.argsort(markers[:, c.TXN_PRODUCER_ID], kind="stable")
        outcomes = markers[by_producer][:, [c.TXN_PRODUCER_ID, c.TXN_KIND]]
        is_last = np.ones(len(markers), dtype=bool)
        is_last[:-1] = np.any(outcomes[1:] != outcomes[:-1], axis=1)
        yield markers[np.sort(by_producer[is_last])]


def _is_aborted(table: Table, ends: TransactionEnds) -> Mask:
    """Return which batches hold data of an aborted transaction."""
    is_data = ~are_control(table) & (table[:, c.PRODUCER_ID] >= 0)
    is_aborted: Mask = is_data & (ends.of(table) == Outcome.ABORTED)
    return is_aborted


# From walks to answers


class _Places:
    """Finds the times of rows, by reading their batches. `damage` is that of such a batch."""

    def __init__(self, log: PartitionLog, memory_bytes: int) -> None:
        self._log, self._memory_bytes = log, memory_bytes
        self.damage: KcompactError | None = None

    def gap_walk(self, reader_walk: Walk, end_offset: int, *, present: int | None = None) -> GapWalk:
        """Return what a reader found up to an offset. `present` are the offsets that count as present, not the rows."""
        offsets = end_offset - self._log.log_start_offset
        last_gap = reader_walk.last_gap
        return GapWalk(
            rows=reader_walk.rows,
            gaps=reader_walk.gaps,
            first_gap_offset=reader_walk.first_gap.offset if reader_walk.first_gap else None,
            last_gap_offset=last_gap.offset if last_gap else None,
            last_gap_row=last_gap.row if last_gap else None,
            last_gap_timestamp_ms=self._timestamp(last_gap) if last_gap else None,
            last_offset=reader_walk.last_offset,
            last_row=reader_walk.rows or None,
            contiguous_rows_since_gap=reader_walk.rows - (last_gap.row if last_gap else 0)
            if reader_walk.rows
            else None,
            offsets_present_ratio=(reader_walk.rows if present is None else present) / offsets if offsets > 0 else None,
        )

    def _timestamp(self, place: GapRow) -> int | None:
        """Return the timestamp of a row, None if it has none or its batch is damaged."""
        (segment,) = (each for each in self._log.segments if each.base_offset == place.segment)
        file = self._log.file(segment.log_name)
        try:
            batch = batch_at(file, place.position, memory_bytes=self._memory_bytes)
            records = read_records(batch, file=str(file), memory_bytes=self._memory_bytes)
        except (CorruptDataError, RefusedError) as problem:
            self.damage = self.damage or problem
            return None
        timestamp = next((record.timestamp for record in records if record.offset == place.offset), NO_TIMESTAMP)
        return None if timestamp == NO_TIMESTAMP else timestamp
