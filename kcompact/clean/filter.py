"""One batch: what is left of it, in bytes.

`clean_batch` is the readable definition of a cleaning. It applies the rulebook (`retain`) to the records of one batch
and encodes what survives. What it needs to know besides the batch is a `CleanJob`, the same for all tasks of a run, and
which of the records a newer one supersedes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kcompact.clean import rules
from kcompact.clean.job import CleanerStats, CleanJob
from kcompact.clean.rules import (
    Retention,
    batch_retention,
    delete_horizon_ms,
    is_last_of_producer,
    keeps_record,
    needs_delete_horizon,
)
from kcompact.errors import RefusedError
from kcompact.format import batch as batch_format
from kcompact.format.batch import Batch, Header, Record, read_records


class Filtered(NamedTuple):
    """What becomes of a run of batches: the bytes to write, in order, and for each batch among them its last offset,
    greatest timestamp and size, i64. The bytes may be valid only until the next run is asked for.
    """

    pieces: list[bytes | memoryview]
    last_offsets: npt.NDArray[np.int64]
    max_timestamps: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    stats: CleanerStats


# One batch


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedBatch:
    """What becomes of one batch: its new bytes, or None when nothing is left of it."""

    data: bytes | memoryview | None
    messages_read: int
    messages_written: int
    invalid_messages: int


def clean_batch(
    batch: Batch,
    job: CleanJob,
    alive: Sequence[bool],
    *,
    is_discardable: bool = False,
    keeps_legacy_tombstones: bool = True,
    file: str,
) -> CleanedBatch:
    """Return a batch as it is after the cleaning.

    `alive` says of each of its records, in their order, whether no newer one supersedes it; it counts for records with
    a key. Untouched batches come back as the same bytes. Rule: `MemoryRecords.filterTo`.
    """
    header = batch.header
    expires_ms = job.expires_ms
    drops_records = rules.drops_records(header, is_discardable=is_discardable, now_ms=expires_ms)
    fate = batch_retention(
        header,
        drops_records=drops_records,
        last_of_producer=is_last_of_producer(header, job.last_records.get(header.producer_id)),
        upper_bound_offset=job.upper_bound_offset,
    )
    if fate is Retention.DELETE:
        return CleanedBatch(data=None, messages_read=0, messages_written=0, invalid_messages=0)
    records = read_records(batch, file=file)
    kept: list[Record] = []
    invalid_messages = 0
    if header.is_control:
        kept = [] if drops_records else records
    elif not drops_records:
        horizon_ms = header.delete_horizon_ms
        if header.magic < 2 and not (keeps_legacy_tombstones or job.keep_tombstones):
            horizon_ms = job.now_ms  # It has come.
        kept = _kept_records(records, job, alive, delete_horizon_ms=horizon_ms, expires_ms=expires_ms)
        invalid_messages = sum(record.key is None and record.offset < job.upper_bound_offset for record in records)
    data: bytes | memoryview | None = None
    if kept:
        dropped = len(kept) < len(records)
        data = _kept_batch(batch, kept, dropped=dropped, is_discardable=is_discardable, job=job, file=file)
    elif fate is Retention.RETAIN_EMPTY:
        if header.magic < 2:
            raise RefusedError(
                path=file,
                problem=f"position {batch.position}: the last batch to clean is of magic {header.magic} and none of "
                "its records is kept; Kafka's cleaner stops here too, because that format has no empty batches",
            )
        data = batch_format.empty(header)
    return CleanedBatch(
        data=data, messages_read=len(records), messages_written=len(kept), invalid_messages=invalid_messages
    )


def _kept_records(
    records: Sequence[Record], job: CleanJob, alive: Sequence[bool], *, delete_horizon_ms: int | None, expires_ms: int
) -> list[Record]:
    return [
        record
        for record, is_alive in zip(records, alive, strict=True)
        if keeps_record(
            past_map=record.offset >= job.upper_bound_offset,
            has_key=record.key is not None,
            is_superseded=not is_alive,
            is_tombstone=record.value is None,
            delete_horizon_ms=delete_horizon_ms,
            now_ms=expires_ms,
        )
    ]


def _kept_batch(
    batch: Batch, kept: Sequence[Record], *, dropped: bool, is_discardable: bool, job: CleanJob, file: str
) -> bytes | memoryview:
    header = batch.header
    needs_horizon = needs_delete_horizon(header, kept, is_discardable=is_discardable)
    if not dropped and not needs_horizon and header.magic == 2:
        return batch.data
    problem = unwritable(header, kept)
    if problem:
        raise RefusedError(
            path=file,
            problem=f"position {batch.position}: a batch that must be written anew has {problem}; "
            "Kafka's cleaner stops here too",
        )
    horizon = header.delete_horizon_ms
    if needs_horizon:
        horizon = delete_horizon_ms(now_ms=job.now_ms, delete_retention_ms=job.delete_retention_ms)
    elif horizon is not None and horizon < 0:
        horizon = None  # A negative one is none to the writer, though it is one to the reader.
    return batch_format.rebuild(header, kept, delete_horizon_ms=horizon)


def unwritable(header: Header, kept: Sequence[Record]) -> str:
    """Return what Kafka's writer would not write of these records, "" if nothing.

    Its reader takes it all, so a log can hold it.
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
