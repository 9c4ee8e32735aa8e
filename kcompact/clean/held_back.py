"""What a cleaning by a plan would hold back for replicas that lag, counted at most: no key is looked up.

A batch with tombstones or a marker gets a delete horizon when a cleaning keeps it. So only batches whose horizon has
passed are inflated. A cleaning, or its dry run, counts exactly: `RecordCounts`.
"""

from __future__ import annotations

from collections.abc import Iterator

from kcompact.clean.job import RecordCounts
from kcompact.clean.splits import legacy_horizon_ms
from kcompact.format.batch import Header, read_records
from kcompact.log.batch_headers import headers
from kcompact.log.segment_reader import batches
from kcompact.log.segments import Segment
from kcompact.plan.clean_plan import CleanPlan
from kcompact.readable import counted, shown, some_of
from kcompact.remarks import Note, RemarkCode
from kcompact.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBack:
    """The tombstones and the transaction markers that stay although their delete horizons have passed."""

    tombstones: int = 0
    markers: int = 0

    @classmethod
    def of(cls, counts: RecordCounts) -> HeldBack:
        """Return what was held back among the counted records."""
        return cls(tombstones=counts.held_tombstones, markers=counts.held_markers)

    def note(self, code: RemarkCode, plan: CleanPlan) -> Note:
        """Return the note of this code about them."""
        return Note.of(
            code,
            name=plan.log.directory.name,
            tombstones=counted(self.tombstones, "tombstone"),
            markers=counted(self.markers, "marker"),
            replicas=some_of([shown(each.path) for each in plan.lagging_replicas], separator=" and "),
        )


def held_back_at_most(plan: CleanPlan) -> HeldBack:
    """Return what the cleaning of a plan holds back at most: a tombstone among them may be superseded.

    Nothing without a replica that lags, and for a partition that is not to be cleaned. Raises CorruptDataError,
    UnsupportedError, BatchTooLargeError, StorageError.
    """
    tombstones = markers = 0
    for segment in plan.segments if plan.held_back_from_offset is not None else ():
        file = plan.log.file(segment.log_name)
        for position, header in _past_horizon(plan, segment):
            if header.is_control:
                markers += max(0, header.records_count)
                continue
            (batch,) = batches(file, start_position=position, end_position=position + header.size_bytes)
            records = read_records(batch, file=str(file))
            tombstones += sum(record.value is None and record.key is not None for record in records)
    return HeldBack(tombstones=tombstones, markers=markers)


def _past_horizon(plan: CleanPlan, segment: Segment) -> Iterator[tuple[int, Header]]:
    """Yield the position and header of each batch in which something is held back."""
    start_offset = plan.held_back_from_offset
    if start_offset is None or plan.log.end_of(segment) <= start_offset:
        return
    is_legacy_past = segment.last_modified_ms <= legacy_horizon_ms(plan)
    for position, header in headers(plan.log.file(segment.log_name), end_position=segment.size_bytes):
        if header.last_offset < start_offset:
            continue
        horizon_ms = header.delete_horizon_ms
        if is_legacy_past if header.magic < 2 else horizon_ms is not None and horizon_ms <= plan.now_ms:
            yield position, header
