"""Producer state: what a broker knows of each producer, from the newest snapshot and a replay of what follows.

The cleaner needs the last batch of every active producer (it is kept, empty if need be, or the broker would take
the producer's next batch for a gap or a stranger), and the planner the oldest open transaction (nothing from there
on may be cleaned). Rules: `ProducerStateManager`, `ProducerAppendInfo`, `ProducerStateEntry` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kcompact.format.batch import read_records
from kcompact.format.producer_snapshot import ProducerEntry
from kcompact.log.batch_headers import BatchHeader, Marker, read_producer_headers
from kcompact.log.directory import PartitionLog, read_snapshot
from kcompact.log.segment_reader import batches

COMPILED_BYTES = 256 << 20
"""From which size on it pays to load the kernels for the headers alone."""


class LastRecord(NamedTuple):
    """The last trace of a producer: the offset of its last data, or None where a marker came after it."""

    data_offset: int | None
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """A producer as the broker remembers it."""

    producer_id: int
    epoch: int
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    last_sequence: int = -1
    last_data_offset: int | None = None
    transaction_first_offset: int | None = None


def load(log: PartitionLog, *, now_ms: int, expiration_ms: int) -> dict[int, Producer]:
    """Return the state a broker would have after loading the log at `now_ms`.

    The newest snapshot that the broker would not delete, and a replay of the batches after it. A cleanly shut down log
    directory in which that leaves none means that there are no producers; a partition copied out of its log directory
    is replayed from its start. Raises CorruptDataError. Rule: `UnifiedLog.rebuildProducerState`.
    """
    state, following = _snapshot_and_rest(log, now_ms=now_ms, expiration_ms=expiration_ms)
    return replay(state, following)


def _snapshot_and_rest(
    log: PartitionLog, *, now_ms: int, expiration_ms: int
) -> tuple[dict[int, Producer], Iterator[BatchHeader]]:
    """Return the state that the log's snapshot holds, and the batches to replay on it."""
    found = _snapshots_of_broker(log)
    if not found and log.log_dir.is_clean_shutdown:
        return {}, iter(())
    usable = [offset for offset in found if log.log_start_offset < offset <= log.log_end_offset]
    if not usable:
        return {}, _headers_from(log, log.log_start_offset)
    entries = read_snapshot(log.directory, log.snapshots[usable[-1]])
    state = from_snapshot(entries, now_ms=now_ms, expiration_ms=expiration_ms)
    return state, _headers_from(log, usable[-1])


def _headers_from(log: PartitionLog, start_offset: int) -> Iterator[BatchHeader]:
    segments = log.segments_between(start_offset, log.log_end_offset)
    compiled = sum(segment.size_bytes for segment in segments) >= COMPILED_BYTES
    if compiled:
        from kcompact import kernels

        compiled = kernels.is_compiled()  # A plan compiles nothing: that takes longer than reading the headers.
    for segment in segments:
        path = log.directory / segment.log_name
        for batch in read_producer_headers(path, end_position=segment.size_bytes, compiled=compiled).batches:
            if batch.header.last_offset >= start_offset:
                yield batch


def _snapshots_of_broker(log: PartitionLog) -> list[int]:
    """Return the offsets of the snapshots that a broker would not delete as strays when it loads the log, ascending.

    It deletes those that are no segment's, but for the newest, if that is not below the active segment. Of the others
    it reads only those in (log start, log end]. Rule: `ProducerStateManager.removeStraySnapshots`, `truncateAndReload`.
    """
    bases = {segment.base_offset for segment in log.segments}
    strays = sorted(offset for offset in log.snapshots if offset not in bases)
    kept = {offset for offset in log.snapshots if offset in bases}
    if strays and strays[-1] >= max(bases):
        kept.add(strays[-1])
    return sorted(kept)


def from_snapshot(entries: Iterable[ProducerEntry], *, now_ms: int, expiration_ms: int) -> dict[int, Producer]:
    """Return the producers of a snapshot that have not expired at `now_ms`.

    Expired: no open transaction, and silent for `expiration_ms` or longer.
    Rule: `ProducerStateManager.loadFromSnapshot`.
    """
    producers = {}
    for entry in entries:
        open_transaction = entry.current_txn_first_offset if entry.current_txn_first_offset >= 0 else None
        if open_transaction is None and now_ms - entry.timestamp >= expiration_ms:
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


def replay(producers: Mapping[int, Producer], batches: Iterable[BatchHeader]) -> dict[int, Producer]:
    """Return the state after `batches` were appended.

    Rule: `ProducerAppendInfo.append`; an empty control batch says nothing any more.
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
    # A marker of a newer epoch (transactions v2 bump it at each end) makes the broker forget the producer's batches.
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
    """Return the last trace of each producer. Rule: `UnifiedLog.lastRecordsOfActiveProducers`."""
    return {
        producer.producer_id: LastRecord(producer.last_data_offset, producer.epoch) for producer in producers.values()
    }


def first_open_transaction_offset(producers: Mapping[int, Producer]) -> int | None:
    """Return where the oldest open transaction began, or None. Rule: `ProducerStateManager.firstUndecidedOffset`."""
    offsets = [
        producer.transaction_first_offset
        for producer in producers.values()
        if producer.transaction_first_offset is not None
    ]
    return min(offsets, default=None)


def first_unstable_offset(
    log: PartitionLog,
    producers: Mapping[int, Producer],
    *,
    high_watermark: int | None,
    now_ms: int,
    expiration_ms: int,
) -> int | None:
    """Return from where on the log is undecided, or None where nothing is.

    It is where the oldest transaction began that is open, or of which the replay of the log meets a marker that is not
    below the high watermark: the marker may yet be lost. Where that has fallen below the log start, it is the base
    offset of the batch that the log start lies in or, in a gap, before, so below the log start or far above it.
    Raises CorruptDataError. Rule: `UnifiedLog.maybeIncrementFirstUnstableOffset`, `ProducerStateManager.completeTxn`.
    """
    starts = [one.transaction_first_offset for one in producers.values() if one.transaction_first_offset is not None]
    if high_watermark is not None and high_watermark < log.log_end_offset:
        state, following = _snapshot_and_rest(log, now_ms=now_ms, expiration_ms=expiration_ms)
        starts += _starts_of_unreplicated(state, following, max(high_watermark, log.log_start_offset))
    offset = min(starts, default=None)
    if offset is None or offset >= log.log_start_offset:
        return offset
    return _batch_offset_at(log, log.log_start_offset)


def _starts_of_unreplicated(
    producers: Mapping[int, Producer], batches: Iterable[BatchHeader], high_watermark: int
) -> Iterator[int]:
    """Yield where the transactions began whose markers are among the batches, at or above the high watermark."""
    opened = {
        one.producer_id: one.transaction_first_offset
        for one in producers.values()
        if one.transaction_first_offset is not None
    }
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
    """Return the base offset of the batch that holds `offset`, else of the next one, else the log end."""
    for segment in log.segments_between(offset, log.log_end_offset):
        path = log.directory / segment.log_name
        for batch in batches(path, end_position=segment.size_bytes):
            if batch.header.last_offset >= offset:
                is_legacy = batch.header.magic < 2  # Its first offset stands with its records.
                return read_records(batch, file=str(path))[0].offset if is_legacy else batch.header.base_offset
    return log.log_end_offset
