"""Producer state: the state that a broker has of each producer, from the newest snapshot and a replay of later batches.

A cleaning keeps the last batch of every active producer, empty if necessary: without it a broker rejects the
producer's next batch as out of sequence or as from an unknown producer. A plan needs the oldest open transaction,
because nothing at or above its first offset may be cleaned. Rules: `ProducerStateManager`, `ProducerAppendInfo`,
`ProducerStateEntry`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from kcompact.errors import CorruptIndexError
from kcompact.format.batch import legacy_base_offset
from kcompact.format.messages.schema import unknown_record
from kcompact.format.names import MAX_OFFSET, Suffix
from kcompact.format.producer_snapshot import ProducerEntry, parse_snapshot
from kcompact.kernels import Rows, Table
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import header_of, header_tables
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile
from kcompact.log.markers import ENDS, BatchHeader, Marker, are_control, header_with_marker, with_marker
from kcompact.log.offset_index import contradiction, looked_up
from kcompact.log.segment_reader import VerifiedRun, verified_runs
from kcompact.log.segments import Segment
from kcompact.release import NEWEST, Release
from kcompact.values import dataclass


class LastRecord(NamedTuple):
    """The offset of a producer's last data record, or None when the broker has no such offset; and its epoch.

    Kafka: `LastRecord`. A broker drops the offset at a marker of a newer epoch.
    """

    data_offset: int | None
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """The state of a producer in a broker. Unknown values are -1 or None. `last_timestamp` is in Unix milliseconds.

    `transaction_first_offset` is the first offset of its open transaction. Kafka: `ProducerStateEntry`.
    """

    producer_id: int
    epoch: int
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    last_sequence: int = -1
    last_data_offset: int | None = None
    transaction_first_offset: int | None = None


def load_producers(log: PartitionLog, *, now_ms: int, expiration_ms: int) -> dict[int, Producer]:
    """Return the producers, by id, that a broker has after it loads the log at `now_ms`.

    The state is that of the newest snapshot that the broker would not delete, plus a replay of the later batches.
    Without such a snapshot, a cleanly stopped log directory has no producers, and any other log is replayed from its
    start. Of a log that a broker recovers, the state is that after the recovery. Raises CorruptDataError, StorageError.
    Rule: `UnifiedLog.rebuildProducerState`.
    """
    if log.recovered_from is not None:
        return _recovered(log, _before_recovery(log, now_ms, expiration_ms), now_ms, expiration_ms)
    state, later = _snapshot_and_later_batches(log, now_ms=now_ms, expiration_ms=expiration_ms)
    return _rebuilt(state, later)


def _before_recovery(log: PartitionLog, now_ms: int, expiration_ms: int) -> dict[int, Producer]:
    """Return the producers at the first segment that a broker recovers.

    Rule: `LogLoader.recoverSegment`, which begins with the newest snapshot at or below the segment, a stray one too.
    """
    assert log.recovered_from is not None
    state, later = _snapshot_and_later_batches(
        log, now_ms=now_ms, expiration_ms=expiration_ms, end_offset=log.recovered_from
    )
    return _rebuilt(state, later)


def _recovered(
    log: PartitionLog, producers: Mapping[int, Producer], now_ms: int, expiration_ms: int
) -> dict[int, Producer]:
    """Return the producers after the recovery. It writes a snapshot after each segment, and reads it again."""
    assert log.recovered_from is not None
    state = dict(producers)
    for segment in log.segments_between(log.recovered_from, MAX_OFFSET):
        end_offset = log.end_of(segment)
        batches = chain.from_iterable(_headers_from(log, segment.base_offset, MAX_OFFSET, end_offset=end_offset))
        state = replay(state, batches)
        state = {
            known.producer_id: known
            for known in state.values()
            if not _is_expired(known.transaction_first_offset, known.last_timestamp, now_ms, expiration_ms)
        }
    return state


def _checkpointed_start(log: PartitionLog) -> int:
    return (log.log_dir.log_start_offsets or {}).get(log.topic_partition, 0)


def _snapshot_and_later_batches(
    log: PartitionLog,
    *,
    now_ms: int,
    expiration_ms: int,
    undecided_from: int = MAX_OFFSET,
    end_offset: int = MAX_OFFSET,
) -> tuple[dict[int, Producer], Iterator[Iterator[BatchHeader]]]:
    """Return the state of the newest usable snapshot, and the batches to replay after it, of each segment.

    From `undecided_from` on these include every marker, and the first batch of every transaction. `end_offset` as for
    `_headers_from`.
    """
    state = {}
    snapshot = _usable_snapshot(log)
    if snapshot is not None:
        file = log.file(log.snapshots[snapshot].name)
        entries = parse_snapshot(file.read(), file=str(file))
        state = from_snapshot(entries, now_ms=now_ms, expiration_ms=expiration_ms)
    return state, _headers_from(log, replay_start(log), undecided_from, end_offset=end_offset)


def replay_start(log: PartitionLog) -> int:
    """Return the offset from which batches are replayed: the log end if there is nothing to replay."""
    snapshot = _usable_snapshot(log)
    if snapshot is not None:
        return snapshot
    is_empty = log.log_dir.is_clean_shutdown and not _kept_snapshots(log)
    return log.log_end_offset if is_empty else log.log_start_offset


def _usable_snapshot(log: PartitionLog) -> int | None:
    """Return the offset of the snapshot that a broker begins with."""
    if log.recovered_from is not None:
        start, end = _checkpointed_start(log), log.recovered_from
        return max((offset for offset in log.snapshots if start < offset <= end), default=None)
    usable = [offset for offset in _kept_snapshots(log) if log.log_start_offset < offset <= log.log_end_offset]
    return usable[-1] if usable else None


def _headers_from(
    log: PartitionLog, start_offset: int, undecided_from: int, *, end_offset: int = MAX_OFFSET
) -> Iterator[Iterator[BatchHeader]]:
    """Yield the headers of each segment that matter to producers, from the batch with `start_offset` to the log end.

    With `end_offset`, the base offset of a segment, the segments from there on are left out.

    In the active segment every batch is verified. A cleaning verifies those of the other segments.
    """
    segments = log.segments_between(start_offset, min(end_offset, log.log_end_offset))
    for segment in segments:
        file = log.file(segment.log_name)
        batches: Iterable[BatchHeader]
        if segment is log.active_segment:
            batches = verified_producer_headers(
                file,
                base_offset=0,
                end_offset=log.log_end_offset,
                end_position=segment.size_bytes,
                first_offset=start_offset,
                undecided_from=undecided_from,
            )
        else:
            batches = producer_headers(
                file,
                end_position=segment.size_bytes,
                first_offset=start_offset,
                undecided_from=undecided_from,
            )
        yield _with_end_markers(batches, file)


def _with_end_markers(batches: Iterable[BatchHeader], file: LogFile) -> Iterator[BatchHeader]:
    """Yield batches. Raises UnsupportedError for a control record of a producer that is neither COMMIT nor ABORT.

    What it does to the transaction is unknown, and no broker loads such a log. Where nothing is replayed, Kafka's
    cleaner keeps the record for ever, and so does kcompact (`clean.transactions.TransactionTracker`).
    Rule: `EndTransactionMarker.deserialize`.
    """
    for batch in batches:
        header, marker = batch.header, batch.marker
        if marker is not None and header.has_producer_id and not marker.ends_transaction:
            raise unknown_record(
                file=str(file),
                position=batch.position,
                offset=header.base_offset,
                problem=f"control record type {marker.kind} of producer {header.producer_id}: only 0 (abort) and 1 "
                "(commit) end a transaction",
            )
        yield batch


def _kept_snapshots(log: PartitionLog) -> list[int]:
    """Return the offsets of the snapshots that a broker keeps when it loads the log, ascending.

    A snapshot is a stray if no segment has its offset as base offset. A broker deletes strays, except the newest one
    if that is at or above the active segment's base offset. It reads only snapshots in (log start, log end].
    Rule: `ProducerStateManager.removeStraySnapshots`, `truncateAndReload`.
    """
    bases = {segment.base_offset for segment in log.segments}
    strays = sorted(offset for offset in log.snapshots if offset not in bases)
    kept = {offset for offset in log.snapshots if offset in bases}
    if strays and strays[-1] >= max(bases):
        kept.add(strays[-1])
    return sorted(kept)


def from_snapshot(entries: Iterable[ProducerEntry], *, now_ms: int, expiration_ms: int) -> dict[int, Producer]:
    """Return the producers of a snapshot, by id, that have not expired at `now_ms`.

    A producer has expired when it has no open transaction and its last timestamp is `expiration_ms` or more ago.
    Rule: `ProducerStateManager.loadFromSnapshot`.
    """
    producers = {}
    for entry in entries:
        open_transaction = entry.current_txn_first_offset if entry.current_txn_first_offset >= 0 else None
        if _is_expired(open_transaction, entry.timestamp, now_ms, expiration_ms):
            continue
        producers[entry.producer_id] = Producer(
            producer_id=entry.producer_id,
            epoch=entry.producer_epoch,
            coordinator_epoch=entry.coordinator_epoch,
            last_timestamp=entry.timestamp,
            last_sequence=entry.last_sequence,
            last_data_offset=entry.last_offset if entry.last_offset >= 0 else None,
            transaction_first_offset=open_transaction,
        )
    return producers


def _is_expired(open_transaction: int | None, last_timestamp: int, now_ms: int, expiration_ms: int) -> bool:
    return open_transaction is None and now_ms - last_timestamp >= expiration_ms


def _rebuilt(producers: Mapping[int, Producer], segments: Iterable[Iterable[BatchHeader]]) -> dict[int, Producer]:
    """Return the state after the batches of some segments are replayed.

    A broker collects what a segment does to a producer before it adds that to its state. A producer that ends a segment
    with the epoch that it had before keeps its last batch, unless the segment has another one: also if markers of other
    epochs have come between. Rule: `UnifiedLog.loadProducersFromRecords`, `ProducerStateEntry.update`.
    """
    state = dict(producers)
    for batches in segments:
        seen = set[int]()
        before, state = state, replay(state, _noting(batches, seen))
        for producer_id in before.keys() & seen:
            known, after = before[producer_id], state[producer_id]
            if after.epoch == known.epoch and after.last_data_offset is None:
                state[producer_id] = replace(
                    after, last_sequence=known.last_sequence, last_data_offset=known.last_data_offset
                )
    return state


def _noting(batches: Iterable[BatchHeader], seen: set[int]) -> Iterator[BatchHeader]:
    """Yield batches, and add their producers to a set."""
    for batch in batches:
        seen.add(batch.header.producer_id)
        yield batch


def replay(producers: Mapping[int, Producer], batches: Iterable[BatchHeader]) -> dict[int, Producer]:
    """Return the state after `batches` are appended. An empty control batch changes nothing.

    Rule: `ProducerAppendInfo.append`.
    """
    state = dict(producers)
    for batch in batches:
        header = batch.header
        if not header.has_producer_id:
            continue
        known = state.get(header.producer_id) or Producer(producer_id=header.producer_id, epoch=-1)
        if header.is_control:
            if batch.marker is not None:
                state[header.producer_id] = _after_marker(known, header.producer_epoch, batch.marker)
            continue
        opened = known.transaction_first_offset
        if header.is_transactional and opened is None:
            opened = header.base_offset
        state[header.producer_id] = replace(
            known,
            epoch=header.producer_epoch,
            last_timestamp=header.max_timestamp,
            last_sequence=header.last_sequence,
            last_data_offset=header.last_offset,
            transaction_first_offset=opened,
        )
    return state


def _after_marker(known: Producer, epoch: int, marker: Marker) -> Producer:
    # At a marker of a newer epoch the broker drops the producer's last batches; transactions v2 end with a new epoch.
    same_epoch = epoch == known.epoch
    return replace(
        known,
        epoch=epoch,
        coordinator_epoch=marker.coordinator_epoch,
        last_timestamp=marker.timestamp,
        last_sequence=known.last_sequence if same_epoch else -1,
        last_data_offset=known.last_data_offset if same_epoch else None,
        transaction_first_offset=None,
    )


def last_records(producers: Mapping[int, Producer]) -> dict[int, LastRecord]:
    """Return the last record of each producer, by id. Rule: `UnifiedLog.lastRecordsOfActiveProducers`."""
    return {
        producer.producer_id: LastRecord(producer.last_data_offset, producer.epoch) for producer in producers.values()
    }


def first_open_transaction_offset(producers: Mapping[int, Producer]) -> int | None:
    """Return the first offset of the oldest open transaction, or None when no transaction is open.

    Rule: `ProducerStateManager.firstUndecidedOffset`.
    """
    return min(_open_transactions(producers).values(), default=None)


def _open_transactions(producers: Mapping[int, Producer]) -> dict[int, int]:
    """Return the first offset of each open transaction, by producer."""
    return {
        producer.producer_id: producer.transaction_first_offset
        for producer in producers.values()
        if producer.transaction_first_offset is not None
    }


def first_unstable_offset(
    log: PartitionLog,
    producers: Mapping[int, Producer],
    *,
    high_watermark: int | None,
    now_ms: int,
    expiration_ms: int,
    release: Release = NEWEST,
) -> int | None:
    """Return the first offset of the oldest undecided transaction, or None when all transactions are decided.

    A transaction is undecided while it is open, and while its marker is at or above the high watermark, because the
    marker can still be lost. `high_watermark` None is the log end. A broker that loads a log looks up the batch at the
    first offset, or at the log start if that is greater. The result is the base offset of the batch that contains this
    offset. In a gap, for example where a cleaning has removed the transaction's first batch, the result is the base
    offset of the next batch, or the log end. So the result can be below the log start or far above it.
    A broker of an older release takes the offset itself.
    Of a log that a broker recovers, a transaction is undecided too if it is open where the recovery begins: its marker
    may not be on the disk yet.
    Raises CorruptDataError, RefusedError, StorageError.
    Rule: `UnifiedLog.maybeIncrementFirstUnstableOffset`, `ProducerStateManager.completeTxn`.
    """
    opened = _open_transactions(producers)
    if log.recovered_from is not None:
        opened |= _open_transactions(_before_recovery(log, now_ms, expiration_ms))
    starts = [*opened.values()]
    # After a recovery a broker has all producers from a snapshot, without the transactions that have ended.
    if log.recovered_from is None and high_watermark is not None and high_watermark < log.log_end_offset:
        undecided_from = max(high_watermark, log.log_start_offset)
        state, later = _snapshot_and_later_batches(
            log, now_ms=now_ms, expiration_ms=expiration_ms, undecided_from=undecided_from
        )
        starts += _unreplicated_transactions(state, chain.from_iterable(later), undecided_from)
    offset = min(starts, default=None)
    if offset is None:
        return None
    looked_up = max(offset, log.log_start_offset)
    return _batch_offset_at(log, looked_up) if release.finds_unstable_batch else looked_up


def _unreplicated_transactions(
    producers: Mapping[int, Producer], batches: Iterable[BatchHeader], high_watermark: int
) -> Iterator[int]:
    """Yield the first offsets of the transactions that have a marker in `batches` at or above the high watermark."""
    opened = _open_transactions(producers)
    for batch in batches:
        header = batch.header
        if not header.has_producer_id:
            continue
        if batch.marker is not None:
            first_offset = opened.pop(header.producer_id, None)
            if first_offset is not None and header.last_offset >= high_watermark:
                yield first_offset
        elif header.is_transactional and not header.is_control:
            opened.setdefault(header.producer_id, header.base_offset)


def _batch_offset_at(log: PartitionLog, offset: int) -> int:
    """Return the base offset of the batch that contains `offset`, or of the next batch, or else the log end.

    Rule: `LocalLog.convertToOffsetMetadataOrThrow`.
    """
    for segment in log.segments_between(offset, log.log_end_offset):
        file = log.file(segment.log_name)
        start = _search_start(log, segment, offset)
        for run in verified_runs(
            file,
            base_offset=0,
            end_offset=log.end_of(segment),
            start_position=start,
            end_position=segment.size_bytes,
        ):
            if run.next_offset > offset:
                row = int(run.table[:, c.LAST_OFFSET].searchsorted(offset))
                # A compressed batch of format 0 or 1 has its last offset in the header.
                if run.table[row, c.MAGIC] < 2:
                    return legacy_base_offset(run.batch(row, file), file=str(file))
                return int(run.table[row, c.BASE_OFFSET])
    return log.log_end_offset


def _search_start(log: PartitionLog, segment: Segment, offset: int) -> int:
    """Return the position of a batch in `segment` that is not after the first batch that ends at or above `offset`.

    The offset index saves reading all headers from the start of the segment. Raises CorruptDataError if the entry is
    not a batch of the log, because a wrong entry hides batches from the search; RefusedError, StorageError.
    """
    path = log.index_file(segment, Suffix.INDEX)
    if path is None:
        return 0
    try:
        return looked_up(path, offset)
    except CorruptIndexError as problem:
        raise contradiction(path) or problem from None


# The headers that decide about producers


def producer_headers(
    file: LogFile, *, end_position: int, first_offset: int = 0, undecided_from: int = MAX_OFFSET
) -> Iterator[BatchHeader]:
    """Yield the headers that decide about producers, from the batch with `first_offset` on.

    Of many batches of a producer in a table only those are yielded that matter (`decisive_rows`).
    Raises CorruptBatchError, RefusedError, StorageError.
    """
    for table in header_tables(file, end_position=end_position):
        for row in table[decisive_rows(table, first_offset, undecided_from=undecided_from)].tolist():
            yield header_with_marker(file, row[c.POSITION], header_of(row))


def verified_producer_headers(
    file: LogFile,
    *,
    base_offset: int,
    end_offset: int,
    end_position: int,
    first_offset: int = 0,
    undecided_from: int = MAX_OFFSET,
) -> Iterator[BatchHeader]:
    """Yield the headers that decide about producers, from the batch with `first_offset` on.

    Every batch of the file is checked as by `verified_runs`. Of many batches of a producer in a run only those are
    yielded that matter (`decisive_rows`). Raises CorruptBatchError, RefusedError, StorageError.
    """
    for run in verified_runs(file, base_offset=base_offset, end_offset=end_offset, end_position=end_position):
        decisive = decisive_rows(run.table, first_offset, undecided_from=undecided_from)
        for row in np.union1d(decisive, _unusual_markers(run, first_offset)).tolist():
            yield with_marker(run.batch(row, file), file=str(file))


_MARKER_BYTES = 17
_MARKER_PATTERN = ((0, 32), (3, 0), (4, 8), (7, 0), (9, 12), (16, 0))
_MARKER_KIND_AT = 8
"""Bytes of a usual control record: its length, its offset delta, the lengths of key and value, no headers."""


def decisive_rows(table: Table, first_offset: int, *, undecided_from: int = c.MAX_OFFSET) -> Rows:
    """Return the rows from `first_offset` on that the state of the producers after them depends on, ascending.

    These are a few for each producer. From `undecided_from` on every transaction matters: then also each marker, and
    the first data batch after it. Batches without a producer id decide nothing, nor do emptied control batches.
    """
    last_offsets = table[:, c.LAST_OFFSET]
    is_control = are_control(table)
    decides = (table[:, c.PRODUCER_ID] >= 0) & (~is_control | (table[:, c.RECORDS_COUNT] > 0))
    rows = np.flatnonzero(decides & (last_offsets >= first_offset))
    rows = rows[np.argsort(table[rows, c.PRODUCER_ID], kind="stable")]
    is_late = last_offsets[rows] >= undecided_from
    return np.sort(np.concatenate([_last_states(table, rows[~is_late]), _changes(table, rows[is_late])]))


def _changes(table: Table, rows: Rows) -> Rows:
    """Return the markers, and between them the first and last data batches of each kind, of rows sorted by producer."""
    kinds = table[rows, c.ATTRIBUTES] & (c.CONTROL_BIT | c.TRANSACTIONAL_BIT)
    differs = (np.diff(table[rows, c.PRODUCER_ID]) != 0) | (np.diff(kinds) != 0)
    is_first, is_last = np.ones(len(rows), bool), np.ones(len(rows), bool)
    is_first[1:] = is_last[:-1] = differs
    changes: Rows = rows[is_first | is_last | (kinds & c.CONTROL_BIT != 0)]
    return changes


def _last_states(table: Table, rows: Rows) -> Rows:
    """Return those of the rows that decide about the state after them (`producer_state.replay`).

    The rows are sorted by producer. The decisive ones are the last data batch, the last marker, and the first
    transactional batch after it; of the markers after the last data batch, the first, and the first with another epoch,
    because that drops what the data batch has left.
    """
    if not len(rows):
        return rows
    is_first = np.ones(len(rows), bool)
    is_first[1:] = np.diff(table[rows, c.PRODUCER_ID]) != 0
    starts, group, number = np.flatnonzero(is_first), np.cumsum(is_first) - 1, np.arange(len(rows))
    is_marker = are_control(table)[rows]
    is_transactional = ~is_marker & (table[rows, c.ATTRIBUTES] & c.TRANSACTIONAL_BIT != 0)
    last_data = np.maximum.reduceat(np.where(is_marker, -1, number), starts)
    last_marker = np.maximum.reduceat(np.where(is_marker, number, -1), starts)
    is_after_data = is_marker & (number > last_data[group])
    is_new_epoch = np.zeros(len(rows), bool)
    is_new_epoch[1:] = np.diff(table[rows, c.PRODUCER_EPOCH]) != 0
    firsts = [
        np.minimum.reduceat(np.where(chosen, number, len(rows)), starts)
        for chosen in (
            is_transactional & (number > last_marker[group]),
            is_after_data,
            is_after_data & is_new_epoch & ~is_first,
        )
    ]
    decisive = np.unique(np.concatenate([last_data, last_marker, *firsts]))
    deciding_rows: Rows = rows[decisive[(decisive >= 0) & (decisive < len(rows))]]
    return deciding_rows


def _unusual_markers(run: VerifiedRun, first_offset: int) -> Rows:
    """Return the rows, from `first_offset` on, of the control batches that are not as Kafka writes them.

    The definition must read them. The usual one has a record with a one-byte timestamp delta, a key of 4 bytes, a value
    of 6 and no headers, and ends a transaction.
    """
    table = run.table
    is_marker = are_control(table) & (table[:, c.RECORDS_COUNT] > 0)
    rows = np.flatnonzero(is_marker & (table[:, c.LAST_OFFSET] >= first_offset))
    is_usual = table[rows, c.SIZE] == c.HEADER_BYTES + _MARKER_BYTES
    is_usual &= (table[rows, c.RECORDS_COUNT] == 1) & (table[rows, c.ATTRIBUTES] & c.CODEC_MASK == 0)
    starts = table[rows[is_usual], c.POSITION] + c.HEADER_BYTES
    if len(starts):
        section = np.lib.stride_tricks.sliding_window_view(run.buffer, _MARKER_BYTES)[starts]
        is_as_written = section[:, 2] < 0x80
        for at, byte in _MARKER_PATTERN:
            is_as_written &= section[:, at] == byte
        is_as_written &= section[:, _MARKER_KIND_AT] <= max(ENDS)
        is_usual[is_usual] = is_as_written
    unusual_rows: Rows = rows[~is_usual]
    return unusual_rows
