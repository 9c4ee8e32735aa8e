"""Which records of a run are chosen, decided by columns as `record_filter` decides about one record."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from kcompact.errors import BatchTooLargeError, CorruptBatchError, CorruptDataError, KcompactError, StorageError
from kcompact.format.batch import Batch
from kcompact.inspect.record_filter import RecordFilter, Transactional
from kcompact.inspect.records import Mask, RecordRun
from kcompact.kernels import Column, Table
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import BatchHeader, read_marker
from kcompact.log.files import LogFile
from kcompact.log.past_damage import readable_batches
from kcompact.log.transactions import Outcome, TransactionEnds, of_headers, read_transaction_tables, table_of

_OUTCOMES = {
    Transactional.COMMITTED: Outcome.COMMITTED,
    Transactional.ABORTED: Outcome.ABORTED,
    Transactional.OPEN: Outcome.OPEN,
    Transactional.NONE: Outcome.NONE,
}


class Outcomes(NamedTuple):
    """How transactions end, and the first damage. If a marker is in it, the producer's next one counts, or none."""

    known: TransactionEnds
    problem: KcompactError | None


def read_outcomes(files: Sequence[LogFile]) -> Outcomes:
    """Return how the transactions end whose batches are in these logs, the segments of a partition in their order.

    What is readable before and after damage counts. Raises RefusedError, StorageError.
    """
    tables: list[Table] = []
    problem: KcompactError | None = None
    for file in files:
        try:
            with file.open() as opened:
                end_position = opened.size_bytes
            tables += read_transaction_tables(file, end_position=end_position)
        except (CorruptDataError, StorageError) as found:
            problem = problem or found
            tables.append(table_of(of_headers(_readable_headers(file))))
    return Outcomes(TransactionEnds.of_tables(tables), problem)


def _readable_headers(file: LogFile) -> Iterator[BatchHeader]:
    for part in readable_batches(file):
        if isinstance(part, Batch):
            with suppress(CorruptBatchError, BatchTooLargeError):
                marker = read_marker(part, file=str(file)) if part.header.is_control else None
                yield BatchHeader(part.position, part.header, marker)


def mask_of(chosen: RecordFilter, run: RecordRun, outcomes: TransactionEnds | None = None) -> Mask:
    """Return which records of a run are chosen. `outcomes` are needed for a condition on transactions."""
    batches = _batches(chosen, run, outcomes)
    mask = np.ones(len(run), bool) if batches.all() else batches[run.batch]
    if chosen.offsets:
        mask &= np.isin(run.offset, chosen.offsets)
    for column, least, end in (
        (run.offset, chosen.from_offset, chosen.until_offset),
        (run.timestamp, chosen.since_ms, chosen.until_ms),
    ):
        if least is not None:
            mask &= column >= least
        if end is not None:
            mask &= column < end
    if chosen.tombstones:
        mask &= (run.value_size < 0) & (run.key_size >= 0) & ~_is_control(run)
    if chosen.keys or chosen.key_prefixes or chosen.key_hashes:
        _choose_keys(chosen, run, mask)
    return mask


def _batches(chosen: RecordFilter, run: RecordRun, outcomes: TransactionEnds | None) -> Mask:
    """Return which batches of a run may have chosen records."""
    table = run.table
    mask = np.ones(len(table), bool)
    if chosen.producer_ids:
        mask &= np.isin(table[:, c.PRODUCER_ID], chosen.producer_ids)
    if chosen.leader_epochs:
        mask &= np.isin(table[:, c.EPOCH], chosen.leader_epochs)
    if chosen.transactions:
        assert outcomes is not None, "the outcomes of the transactions"
        mask &= np.isin(outcomes.of(table), [_OUTCOMES[one] for one in chosen.transactions])
    return mask


def _choose_keys(chosen: RecordFilter, run: RecordRun, mask: Mask) -> None:
    """Clear the records whose keys are not chosen."""
    mask &= (run.key_size >= 0) & ~_is_control(run)
    rows = np.flatnonzero(mask)
    mask[:] = False
    if chosen.keys:
        rows = _any_of([_with_prefix(run, rows[run.key_size[rows] == len(key)], key) for key in chosen.keys])
    if chosen.key_prefixes:
        rows = _any_of([_with_prefix(run, rows, prefix) for prefix in chosen.key_prefixes])
    if chosen.key_hashes:
        data, starts = run.data.data, run.key_start[rows]
        spans = zip(starts.tolist(), (starts + run.key_size[rows]).tolist(), strict=True)
        hashes = (hashlib.sha256(data[start:end]).hexdigest() for start, end in spans)
        rows = rows[np.fromiter((digits.startswith(chosen.key_hashes) for digits in hashes), bool, len(rows))]
    mask[rows] = True


def _any_of(found: Sequence[Column]) -> Column:
    rows: Column = np.unique(np.concatenate(found)) if len(found) > 1 else found[0]
    return rows


def _with_prefix(run: RecordRun, rows: Column, prefix: bytes) -> Column:
    """Return those of the rows whose keys begin with these bytes."""
    rows = rows[run.key_size[rows] >= len(prefix)]
    for at, byte in enumerate(prefix):
        if not len(rows):
            break
        rows = rows[run.data[run.key_start[rows] + at] == byte]
    return rows


def _is_control(run: RecordRun) -> Mask:
    is_control: Mask = run.batch_column(c.ATTRIBUTES) & c.CONTROL_BIT != 0
    return is_control
