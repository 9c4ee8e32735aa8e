"""What remains of one batch: the readable definition.

`batch_fates` decides about whole batches. For `Fate.FILTER`, `rules` decides about each record. The surviving records
are encoded again, as Kafka's writer does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kcompact.clean.batch_fates import Fate, decide_batch_fates, table_of
from kcompact.clean.job import CleanerStats, CleanJob, RecordCounts
from kcompact.clean.rules import RecordFate, needs_delete_horizon, record_fate
from kcompact.errors import RefusedError
from kcompact.format import batch as batch_format
from kcompact.format import legacy
from kcompact.format.batch import Batch, Header, Record, read_records
from kcompact.release import KAFKA_3_9
from kcompact.values import dataclass


class FilteredRun(NamedTuple):
    """What remains of a run of batches.

    `pieces` are the bytes to write, in order; they may be valid only until the next run is requested. The arrays i64[n]
    hold the last offset, the greatest timestamp and the size of each batch to write.
    """

    pieces: list[bytes | memoryview]
    last_offsets: npt.NDArray[np.int64]
    max_timestamps: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    stats: CleanerStats
    counts: RecordCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedBatch:
    """What remains of one batch: its new bytes, or None if nothing remains. `is_read`: the batch counts as read."""

    data: bytes | memoryview | None
    is_read: bool
    counts: RecordCounts

    @property
    def stats(self) -> CleanerStats:
        """The messages of the batch in Kafka's terms; the bytes are counted elsewhere."""
        return CleanerStats(
            messages_read=self.counts.read if self.is_read else 0,
            messages_written=self.counts.kept,
            invalid_messages=self.counts.unkeyed,
        )


def clean_batch(
    batch: Batch,
    job: CleanJob,
    is_latest: Sequence[bool],
    *,
    is_discardable: bool = False,
    keeps_legacy_tombstones: bool = True,
    file: str,
) -> CleanedBatch:
    """Return what remains of one batch: `decide_batch_fates` and then `apply_fate`. Raises as `apply_fate`."""
    fates = decide_batch_fates(table_of([batch.header], is_discardable=[is_discardable]), job)
    fate, keeps_header = fates.of(0)
    return apply_fate(
        batch,
        job,
        is_latest,
        fate,
        keeps_header=keeps_header,
        is_discardable=is_discardable,
        keeps_legacy_tombstones=keeps_legacy_tombstones,
        file=file,
    )


def apply_fate(
    batch: Batch,
    job: CleanJob,
    is_latest: Sequence[bool],
    fate: Fate,
    *,
    keeps_header: bool,
    is_discardable: bool,
    keeps_legacy_tombstones: bool,
    file: str,
) -> CleanedBatch:
    """Return what remains of one batch, given its fate.

    `is_latest` has an element for each record, in order: no newer record supersedes it. Only records with a key use it.
    An unchanged batch keeps its bytes. Raises CorruptBatchError, and RefusedError for a batch that Kafka's writer would
    not write. Rule: `MemoryRecords.filterTo`.
    """
    header = batch.header
    if fate is Fate.DROP:
        return CleanedBatch(data=None, is_read=False, counts=_discarded(header.records_count, is_latest))
    records = read_records(batch, file=file, memory_bytes=job.memory_bytes)
    fates = [RecordFate.KEPT] * len(records)
    if fate is Fate.FILTER and not header.is_control:
        horizon_ms = header.delete_horizon_ms
        if header.magic < 2 and not (keeps_legacy_tombstones or job.keep_tombstones):
            horizon_ms = job.now_ms  # The age of the segment decides.
        is_held_back = job.holds_back(header.last_offset)
        fates = _record_fates(records, job, is_latest, delete_horizon_ms=horizon_ms, is_held_back=is_held_back)
    kept, counts = _divided(records, fates, is_latest)
    if header.is_control:
        # Past its horizon only a hold keeps the marker of a transaction without a batch.
        is_held = is_discardable and _is_past(header.delete_horizon_ms, job)
        counts = replace(counts, kept_control=counts.kept, held_markers=counts.kept if is_held else 0)
    if fate is Fate.CLEAR:
        kept, counts = [], _discarded(len(records), is_latest)
    data: bytes | memoryview | None = None
    if kept:
        data = _kept_batch(
            batch, kept, drops_some=len(kept) < len(records), is_discardable=is_discardable, job=job, file=file
        )
        sets_horizon = _needs_horizon(header, kept, job, is_discardable=False) and not header.is_control
        counts = replace(counts, new_horizons=int(sets_horizon and job.new_horizon_ms is not None))
    elif keeps_header:
        data = _empty_batch(batch, job, file=file)
    return CleanedBatch(data=data, is_read=True, counts=counts)


def _is_past(delete_horizon_ms: int | None, job: CleanJob) -> bool:
    return delete_horizon_ms is not None and delete_horizon_ms <= job.expires_ms


def _discarded(records: int, is_latest: Sequence[bool]) -> RecordCounts:
    return RecordCounts(read=records, discarded=records, discarded_latest=sum(is_latest))


def _divided(
    records: Sequence[Record], fates: Sequence[RecordFate], is_latest: Sequence[bool]
) -> tuple[list[Record], RecordCounts]:
    """Return the kept records, and the number of records with each fate."""
    is_kept = [fate in (RecordFate.KEPT, RecordFate.HELD_BACK) for fate in fates]
    kept = [record for record, stays in zip(records, is_kept, strict=True) if stays]
    counts = RecordCounts(
        read=len(records),
        kept=len(kept),
        superseded=fates.count(RecordFate.SUPERSEDED),
        expired=fates.count(RecordFate.EXPIRED),
        unkeyed=fates.count(RecordFate.UNKEYED),
        kept_latest=sum(latest and stays for latest, stays in zip(is_latest, is_kept, strict=True)),
        held_tombstones=fates.count(RecordFate.HELD_BACK),
    )
    return kept, counts


def _empty_batch(batch: Batch, job: CleanJob, *, file: str) -> bytes:
    if batch.header.magic < 2:
        raise RefusedError(
            path=file,
            problem=f"position {batch.position}: the last batch to clean has magic {batch.header.magic} and keeps no "
            f"record. That format has no empty batches. The cleaner of Kafka {job.release.version} stops here too",
            hint=""
            if job.release.converts_old_formats
            else f"Before {KAFKA_3_9.version} the batch goes: --kafka-release names the version of an older broker.",
        )
    return batch_format.empty(batch.header)


def _record_fates(
    records: Sequence[Record],
    job: CleanJob,
    is_latest: Sequence[bool],
    *,
    delete_horizon_ms: int | None,
    is_held_back: bool,
) -> list[RecordFate]:
    return [
        record_fate(
            past_map=record.offset >= job.upper_bound_offset,
            has_key=record.key is not None,
            is_superseded=not is_latest_record,
            is_tombstone=record.value is None,
            delete_horizon_ms=delete_horizon_ms,
            is_held_back=is_held_back,
            now_ms=job.expires_ms,
        )
        for record, is_latest_record in zip(records, is_latest, strict=True)
    ]


def _kept_batch(
    batch: Batch, kept: Sequence[Record], *, drops_some: bool, is_discardable: bool, job: CleanJob, file: str
) -> bytes | memoryview:
    header = batch.header
    needs_horizon = _needs_horizon(header, kept, job, is_discardable=is_discardable)
    if not drops_some and not needs_horizon and _stays_as_it_is(batch, job, file=file):
        return batch.data
    problem = unwritable(header, kept)
    if problem:
        refused = RefusedError(
            path=file,
            problem=f"position {batch.position}: a batch that must be rewritten has {problem}. "
            "Kafka's cleaner stops here too",
        )
        refused.stops_cleaner = True
        raise refused
    if _stays_old(header, job):
        return legacy.rebuild(legacy.read_prefix(batch.data), [legacy.Message(*record[:4]) for record in kept])
    horizon = header.delete_horizon_ms
    if needs_horizon:
        horizon = job.new_horizon_ms
    elif horizon is not None and horizon < 0:
        horizon = None  # Kafka's reader accepts a negative horizon; its writer never writes one.
    return batch_format.rebuild(header, kept, delete_horizon_ms=horizon)


def _stays_old(header: Header, job: CleanJob) -> bool:
    return header.magic < 2 and not job.release.converts_old_formats


def _needs_horizon(header: Header, kept: Sequence[Record], job: CleanJob, *, is_discardable: bool) -> bool:
    return not _stays_old(header, job) and needs_delete_horizon(header, kept, is_discardable=is_discardable)


def _stays_as_it_is(batch: Batch, job: CleanJob, *, file: str) -> bool:
    """Return whether a batch that loses nothing is copied. An old one is, if all messages inside have its magic."""
    if not _stays_old(batch.header, job):
        return batch.header.magic == 2
    return legacy.has_one_magic(batch_format.legacy_entries(batch, file=file, memory_bytes=job.memory_bytes))


def unwritable(header: Header, kept: Sequence[Record]) -> str:
    """Return what prevents Kafka's writer from writing these records, or "".

    Kafka's reader accepts such records, so a log can contain them.
    Rule: `MemoryRecordsBuilder.appendWithOffset`, `MemoryRecordsBuilder.validateProducerState`.
    """
    lowest = min(record.timestamp for record in kept)
    if lowest < batch_format.NO_TIMESTAMP:
        return f"the timestamp {lowest}"
    if header.is_transactional and header.producer_id == batch_format.NO_PRODUCER_ID:
        return "a transaction but no producer id"
    if header.producer_id == batch_format.NO_PRODUCER_ID:
        return ""
    if header.producer_epoch == -1:
        return "a producer id but no producer epoch"
    if header.base_sequence < 0 and not header.is_control:
        return "a producer id but no sequence number"
    return ""
