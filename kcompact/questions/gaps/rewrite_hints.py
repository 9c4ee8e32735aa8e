"""What shows that a compaction has rewritten a log, each fact labelled: a proof, or only a hint.

A proof is something on the disk that nothing but a compaction makes. A hint fits a compaction, but has other
explanations too: times of files that a copy may have changed, settings that may have been others then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from kcompact.errors import CorruptIndexError
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT
from kcompact.format.index import OFFSET_ENTRY_BYTES
from kcompact.format.names import Suffix
from kcompact.plan.clean_plan import CleanPlan
from kcompact.questions.gaps.walks import Evidence, Gaps, Label
from kcompact.readable import counted, size, some_of, time

MOST_NAMED = 5
"""So many segments or snapshots are named in a sentence. The values have all of them."""
SPARSE, DENSE = 8, 2
"""An index with an eighth of the entries that its batches allow is sparse, one with twice as many dense."""
LEAST_SLOTS = 32
"""The index of a segment that has no room for more entries says nothing."""


def evidence(plan: CleanPlan, gaps: Gaps) -> tuple[Evidence, ...]:
    """Return the facts about a log, proofs first. Where records may have been lost otherwise, nothing is a proof."""
    doubtful = _doubtful_segment(plan)
    if doubtful is None:
        return (*_proofs(plan, gaps), *_hints(plan, gaps))
    text = f"{doubtful} is empty, or shorter than its index: what it had may be lost, so nothing here is a proof"
    proofs = (replace(each, label=Label.HINT, text=f"if nothing was lost: {each.text}") for each in _proofs(plan, gaps))
    return (_hint("lost-records", text, file=doubtful), *proofs, *_hints(plan, gaps))


def _doubtful_segment(plan: CleanPlan) -> str | None:
    """Return the first segment that may have lost records: a cleaning leaves an empty one too."""
    wrong = {Path(each.file).stem for each in plan.log.damage if isinstance(each, CorruptIndexError)}
    for segment in plan.log.segments:
        is_closed = segment is not plan.log.active_segment
        if (is_closed and segment.size_bytes == 0) or Path(segment.log_name).stem in wrong:
            return segment.log_name
    return None


def _proof(name: str, text: str, **values: object) -> Evidence:
    return Evidence(label=Label.PROOF, name=name, text=text, values=values)


def _hint(name: str, text: str, **values: object) -> Evidence:
    return Evidence(label=Label.HINT, name=name, text=text, values=values)


# Proofs


def _proofs(plan: CleanPlan, gaps: Gaps) -> Iterator[Evidence]:
    counts, walk = gaps.counts, gaps.on_disk
    offsets = gaps.counted_to_offset - gaps.log_start_offset
    if counts.missing:
        text = (
            f"{counts.missing:,} of {counted(offsets, 'offset')} have no record: compaction has removed them, in this "
        )
        yield _proof(
            "missing-offsets",
            f"{text}log or in the one that it was copied from",
            missing_offsets=counts.missing,
        )
    elif offsets > 0:  # A log without offsets proves nothing.
        yield _proof("nothing-missing", "no offset is missing: no compaction has removed anything after the log start")
    if walk.last_gap_offset is not None:
        row = f"row {walk.last_gap_row:,}, {time(walk.last_gap_timestamp_ms)}"
        yield _proof(
            "last-gap",
            f"the last gap ends at offset {walk.last_gap_offset} ({row}): up to there compaction provably ran",
            offset=walk.last_gap_offset,
            row=walk.last_gap_row,
            timestamp_ms=walk.last_gap_timestamp_ms,
        )
        if rows := walk.contiguous_rows_since_gap:
            yield _proof(
                "contiguous-rows",
                f"{counted(rows, 'row')} after the last gap: nothing was removed between them, they may be dirty",
                rows=rows,
            )
    if gaps.missing_after_last_row:
        lost = f"{counted(gaps.missing_after_last_row, 'offset')} after the last row, {walk.last_offset},"
        yield _proof(
            "after-last-row",
            f"{lost} have no record either: compaction ran up to offset {counts.missing_to}",
            missing_offsets=gaps.missing_after_last_row,
            to_offset=counts.missing_to,
        )
    yield from _proofs_in_batches(gaps)
    checkpoint = gaps.checkpoint_offset
    # A checkpoint above the log end is reset to the log start, and says nothing about this log.
    if checkpoint is not None and checkpoint <= gaps.first_dirty_offset and gaps.dirty.missing:
        missing, first_dirty = gaps.dirty.missing, gaps.first_dirty_offset
        yield _proof(
            "beyond-checkpoint",
            f"{counted(missing, 'offset')} from the first dirty offset {first_dirty} on are missing: a compaction went "
            "further than the checkpoint says",
            missing_offsets=missing,
            first_dirty_offset=first_dirty,
        )
    yield from _names(plan, gaps)


def _proofs_in_batches(gaps: Gaps) -> Iterator[Evidence]:
    """Yield what only the headers of batches show."""
    counts = gaps.counts
    if counts.batches_without_tail:
        lost = counted(counts.in_lost_tails, "offset")
        yield _proof(
            "lost-tails",
            f"{_batches(counts.batches_without_tail)} lost the last records, {lost}: only the headers show this",
            batches=counts.batches_without_tail,
            missing_offsets=counts.in_lost_tails,
        )
    if counts.emptied_batches:
        lost = counted(counts.in_empty_batches, "offset")
        yield _proof(
            "empty-batches",
            f"{_batches(counts.emptied_batches)} lost all records, {lost}: a cleaning keeps such a header for a "
            "producer, or for the end of its range",
            batches=counts.emptied_batches,
            missing_offsets=counts.in_empty_batches,
        )
    if counts.stamped_batches:
        yield _proof(
            "delete-horizons",
            f"delete horizons in {_batches(counts.stamped_batches)}, the last at offset {counts.stamped_to}: only a "
            "cleaning sets them",
            batches=counts.stamped_batches,
            to_offset=counts.stamped_to,
            last_horizon_ms=counts.last_horizon_ms if counts.last_horizon_ms >= 0 else None,
        )
    if counts.control_offsets:
        yield _proof(
            "markers",
            f"{counted(counts.control_offsets, 'offset')} of transaction markers and other control records: gaps to a "
            "consumer, but nothing was removed there",
            offsets=counts.control_offsets,
        )


def _batches(count: int) -> str:
    return f"{count:,} batch" + ("" if count == 1 else "es")


def _names(plan: CleanPlan, gaps: Gaps) -> Iterator[Evidence]:
    """Yield the segments that begin above the offset in their names."""
    start = plan.log.log_start_offset
    first_offsets = {
        each.base_offset: each.first_offset
        for each in gaps.segments
        if each.first_offset is not None and each.base_offset >= start and each.first_offset > each.base_offset
    }
    if first_offsets:
        shown = _some(f"segment {base} begins with offset {first}" for base, first in first_offsets.items())
        yield _proof(
            "segment-names",
            f"the first records of segments were removed: {shown}",
            segments=[{"base_offset": base, "first_offset": first} for base, first in first_offsets.items()],
        )


def _some(items: Iterator[str]) -> str:
    return some_of(list(items), at_most=MOST_NAMED)


# Hints


def _hints(plan: CleanPlan, gaps: Gaps) -> Iterator[Evidence]:
    if gaps.counts.stamped_batches and gaps.counts.last_horizon_ms >= 0:
        retention_ms = plan.config.delete_retention_ms
        ran_ms = gaps.counts.last_horizon_ms - retention_ms
        when = f"a cleaning set it at {time(ran_ms)}" if ran_ms >= 0 else "no cleaning can have set it"
        yield _hint(
            "horizon-time",
            f"the last delete horizon is {time(gaps.counts.last_horizon_ms)}; with delete.retention.ms={retention_ms} "
            f"{when}",
            ran_ms=ran_ms if ran_ms >= 0 else None,
            last_horizon_ms=gaps.counts.last_horizon_ms,
            delete_retention_ms=retention_ms,
        )
    yield from _checkpoint(plan, gaps)
    yield from _old_snapshots(plan)
    yield from _orphan_snapshots(plan)
    yield from _odd_indexes(plan, gaps)


def _checkpoint(plan: CleanPlan, gaps: Gaps) -> Iterator[Evidence]:
    log = plan.log
    if gaps.checkpoint_offset is None:
        return
    file = log.log_dir.file(CLEANER_OFFSET_CHECKPOINT)
    written_ms = file.identity().mtime_ms if file.exists() else None
    yield _hint(
        "checkpoint",
        f"the checkpoint says that the log is clean up to offset {gaps.checkpoint_offset}; it was written at "
        f"{time(written_ms)}, for this or another partition",
        checkpoint_offset=gaps.checkpoint_offset,
        written_ms=written_ms,
    )


def _old_snapshots(plan: CleanPlan) -> Iterator[Evidence]:
    """Yield the closed segments that were written long after the snapshot at their base offset.

    A broker writes it when it opens the segment, and rolls within `segment.ms`. A cleaned segment has the time of the
    last one of its group.
    """
    log, segment_ms = plan.log, plan.config.segment_ms
    modified_times_ms = {
        segment.base_offset: (log.snapshots[segment.base_offset].mtime_ms, segment.last_modified_ms)
        for segment in log.segments[:-1]
        if segment.base_offset in log.snapshots
        and segment.last_modified_ms - log.snapshots[segment.base_offset].mtime_ms > segment_ms
    }
    if modified_times_ms:
        shown = _some(f"{base} ({time(old)}, log {time(new)})" for base, (old, new) in modified_times_ms.items())
        yield _hint(
            "old-snapshots",
            f"a snapshot is older than its log by more than segment.ms={segment_ms}, as if that was rewritten: {shown}",
            segments=[
                {"base_offset": base, "snapshot_modified_ms": old, "log_modified_ms": new}
                for base, (old, new) in modified_times_ms.items()
            ],
            segment_ms=segment_ms,
        )


def _orphan_snapshots(plan: CleanPlan) -> Iterator[Evidence]:
    """Yield the snapshots that belong to no segment. One at the log end is the state of the producers there."""
    log = plan.log
    bases = {segment.base_offset for segment in log.segments}
    offsets = sorted(offset for offset in log.snapshots if offset not in bases and offset != log.log_end_offset)
    if offsets:
        yield _hint(
            "orphan-snapshots",
            f"snapshots without a segment at {_some(map(str, offsets))}: their segments were merged, or a broker once "
            "stopped there",
            offsets=offsets,
        )


def _odd_indexes(plan: CleanPlan, gaps: Gaps) -> Iterator[Evidence]:
    """Yield the closed segments whose offset index has far fewer or far more entries than one would think.

    An entry is due about every `index.interval.bytes`, but at most one for a batch. The cleaner of older Kafka wrote
    one for each of its buffers. Where the batches explain a sparse index, they are far larger than those of the others.
    """
    known = [
        (segment, segment.index_bytes // OFFSET_ENTRY_BYTES, segment_gaps.counts)
        for segment, segment_gaps in zip(plan.log.segments[:-1], gaps.segments, strict=False)
        if segment.has(Suffix.INDEX) and segment.size_bytes > LEAST_SLOTS * plan.config.index_interval_bytes
    ]
    usual_bytes = median([segment.size_bytes / max(1, entries) for segment, entries, _ in known] or [0])
    odd: dict[str, list[dict[str, int]]] = {name: [] for name in _WHY_ODD}
    for segment, entries, counts in known:
        fields = {
            "base_offset": segment.base_offset,
            "size_bytes": segment.size_bytes,
            "batches": counts.batches,
            "entries": entries,
            "possible_entries": counts.index_slots,
        }
        if entries * SPARSE < counts.index_slots:
            odd["sparse-index"].append(fields)
        elif segment.size_bytes > SPARSE * usual_bytes * max(1, entries):
            odd["large-batches"].append(fields)
        elif entries > counts.index_slots * DENSE:
            odd["dense-index"].append(fields)
    for name, segments in odd.items():
        if segments:
            shown = _some(
                f"{each['base_offset']} ({each['entries']:,} for {size(each['size_bytes'])})" for each in segments
            )
            interval = plan.config.index_interval_bytes
            yield _hint(name, f"{_WHY_ODD[name]}: {shown}", segments=segments, index_interval_bytes=interval)


_WHY_ODD = {
    "sparse-index": "an index has far fewer entries than its batches allow, as a cleaner of an older Kafka leaves it",
    "large-batches": "an index has far fewer entries for its size than the others have, so its batches are larger",
    "dense-index": "an index has far more entries than its batches allow, so it was made for others",
}
