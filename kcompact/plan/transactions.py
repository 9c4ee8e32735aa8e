"""What open transactions hold back: where readers of committed records stop, and what ends such a transaction.

An open transaction is ended by its producer, by its coordinator, or by nobody. The coordinator keeps the state of each
transactional id in `__transaction_state`: the producer id, the partitions of the transaction, when it began, and the
producer's own `transaction.timeout.ms`. If partitions of that topic lie beside the log, the state says when the
coordinator aborts the transaction. Otherwise only `transaction.max.timeout.ms` is known, the limit of all producers.
Rules: `TransactionStateManager.timedOutTransactions`, `TransactionMetadata`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any

from kcompact import readable
from kcompact.errors import CorruptDataError, KcompactError
from kcompact.format.batch import Record, read_records
from kcompact.format.messages.coordinators import TRANSACTION_LOG, decode
from kcompact.format.names import TRANSACTION_STATE, DirectoryKind, TopicPartition, parse_directory
from kcompact.log.batch_headers import headers
from kcompact.log.directory import LogDir, PartitionLog, partition_directories, read_log
from kcompact.log.files import files_in
from kcompact.log.offset_index import position_near
from kcompact.log.producer_state import Producer
from kcompact.log.segment_reader import WINDOW_BYTES, verified_batches
from kcompact.log.unchanged_reading import read_unchanged
from kcompact.plan.clean_plan import CleanPlan, uncleanable_from
from kcompact.values import dataclass

_NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a producer in two-phase commit: the coordinator never aborts its transactions (KIP-939)."""
_START_BYTES = 10
"""A value starts with its version and the producer id."""


class CoordinatorStatus(IntEnum):
    """The statuses of a transaction that its coordinator is going to end."""

    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionState:
    """The newest state of a transactional id. `status` is None if its transaction has ended."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    status: CoordinatorStatus | None
    partitions: frozenset[TopicPartition]
    start_ms: int
    timeout_ms: int

    def has(self, producer: Producer, partition: TopicPartition) -> bool:
        """Return whether the coordinator is going to end the open transaction of a producer in a partition.

        An ongoing transaction has the producer's epoch. To end it the coordinator can raise the epoch.
        """
        if self.status is None or self.producer_id != producer.producer_id or partition not in self.partitions:
            return False
        if self.status is CoordinatorStatus.ONGOING:
            return self.producer_epoch == producer.epoch
        return self.producer_epoch >= producer.epoch


def oldest_open(plan: CleanPlan) -> Producer | None:
    """Return the producer of the oldest open transaction, None without one."""
    open_producers = [each for each in plan.producers.values() if each.transaction_first_offset is not None]
    return min(open_producers, key=lambda each: each.transaction_first_offset or 0, default=None)


def holds_back(plan: CleanPlan) -> bool:
    """Return whether an open transaction keeps the cleaner out of a closed segment."""
    limit = uncleanable_from(plan.log, plan.first_dirty_offset, plan.last_stable_offset)
    return plan.last_stable_offset < plan.high_watermark and limit < plan.log.active_segment.base_offset


# How it ends


def how_it_ends(plan: CleanPlan, producer: Producer | None, state: TransactionState | None) -> str:
    """Return who ends an open transaction and when. `state` is that of its transactional id, None if it is unknown."""
    named = "transactional.id unknown; " if holds_back(plan) else ""
    if producer is not None and state is not None:
        named = f"transactional.id {readable.shown(state.transactional_id)}"
        if state.has(producer, plan.log.topic_partition):
            return f"{named}; {_by_coordinator(state, plan.now_ms)}"
        named += ", whose state does not have it; "
    last_ms = -1 if producer is None else producer.last_timestamp
    if last_ms >= 0 and plan.now_ms - last_ms <= plan.config.transaction_max_timeout_ms:
        return f"{named}not longer ago than transaction.max.timeout.ms, so its producer or coordinator may still end it"
    return f"{named}kafka-transactions.sh find-hanging, then abort"


def _by_coordinator(state: TransactionState, now_ms: int) -> str:
    if state.status is not CoordinatorStatus.ONGOING:
        decision = "commit" if state.status is CoordinatorStatus.PREPARE_COMMIT else "abort"
        return f"its coordinator has decided to {decision} it, and writes the marker as soon as it runs"
    if state.timeout_ms == _NO_TIMEOUT_MS:
        return "it has no timeout, so only its producer ends it"
    from_ms = state.start_ms + state.timeout_ms + 1
    timeout = f"transaction.timeout.ms {state.timeout_ms}"
    if from_ms > now_ms:
        return f"unless its producer ends it, its coordinator aborts it from {readable.time(from_ms)} on, by {timeout}"
    return f"{timeout} has passed at {readable.time(from_ms)}, so its coordinator aborts it as soon as it runs"


# The states of the transactional ids


def read_all_transactions(plans: Sequence[CleanPlan]) -> list[TransactionState | None]:
    """Return for each log the state of the transaction that holds it back, None if there is none or it is not found.

    Each `__transaction_state` partition is read at most once, and only if a transaction in its log directory holds
    something back. A partition that is damaged or cannot be read counts as absent: other commands report it.
    """
    producers = [oldest_open(plan) if holds_back(plan) else None for plan in plans]
    log_dirs = {plan.log.log_dir.path: plan.log.log_dir for plan in plans}
    wanted: dict[Path, set[int]] = {path: set() for path in log_dirs}
    for plan, producer in zip(plans, producers, strict=True):
        if producer is not None:
            wanted[plan.log.log_dir.path].add(producer.producer_id)
    states = {path: read_states(log_dirs[path], producer_ids) for path, producer_ids in wanted.items() if producer_ids}
    return [
        states[plan.log.log_dir.path].get(producer.producer_id) if producer is not None else None
        for plan, producer in zip(plans, producers, strict=True)
    ]


def read_states(log_dir: LogDir, producer_ids: set[int]) -> dict[int, TransactionState]:
    """Return the states of these producers by their ids, as `__transaction_state` of a log directory has them."""
    states: dict[int, TransactionState] = {}
    with suppress(KcompactError, OSError):
        for directory in partition_directories(log_dir.path):
            named = parse_directory(directory.name)
            if named and named.kind is DirectoryKind.PARTITION and named.topic_partition.topic == TRANSACTION_STATE:
                with suppress(KcompactError, OSError):
                    states |= read_unchanged(files_in(directory), log_dir, partial(_states_in, directory, producer_ids))
    return states


def _states_in(directory: Path, producer_ids: set[int], log_dir: LogDir) -> dict[int, TransactionState]:
    log = read_log(directory, log_dir=log_dir)
    versions = range(TRANSACTION_LOG.last_version + 1)
    starts = {struct.pack(">hq", version, each) for version in versions for each in producer_ids}
    if log.damage or log.leftovers or not _contains(log, starts):
        return {}
    newest: dict[bytes, bytes] = {}
    """By key the newest value of each transactional id that has had one of the producer ids."""
    for record in _records(log):
        if record.key is None or record.value is None:
            newest.pop(record.key or b"", None)
        elif record.key in newest or record.value[:_START_BYTES] in starts:
            newest[record.key] = record.value
    states = [_state(key, value) for key, value in newest.items()]
    return {each.producer_id: each for each in states if each is not None and each.producer_id in producer_ids}


def _contains(log: PartitionLog, starts: Iterable[bytes]) -> bool:
    """Return whether a log contains one of the starts of a value. A coordinator does not compress its records.

    One of many partitions has a producer, and searching bytes is much faster than reading records.
    """
    for segment in log.segments:
        with log.file(segment.log_name).open() as opened:
            for position in range(0, segment.size_bytes, WINDOW_BYTES):
                data = opened.read(WINDOW_BYTES + _START_BYTES - 1, position)
                if any(each in data for each in starts):
                    return True
    return False


def _records(log: PartitionLog) -> Iterable[Record]:
    for segment in log.segments:
        file = log.file(segment.log_name)
        base, end = segment.base_offset, log.end_of(segment)
        for batch in verified_batches(file, base_offset=base, end_offset=end, end_position=segment.size_bytes):
            if not batch.header.is_control:
                yield from read_records(batch, file=str(file))


def _state(key: bytes, value: bytes) -> TransactionState | None:
    """Return the state in a record, None if Kafka could not decode it."""
    try:
        decoded = decode(TRANSACTION_STATE, key, value)
    except ValueError:
        return None
    fields: Any = decoded.value
    status = fields["transactionStatus"]
    return TransactionState(
        transactional_id=str(decoded.key["transactionalId"]),
        producer_id=fields["producerId"],
        producer_epoch=fields["producerEpoch"],
        status=CoordinatorStatus(status) if status in list(CoordinatorStatus) else None,
        partitions=frozenset(
            TopicPartition(each["topic"], partition)
            for each in fields["transactionPartitions"] or ()
            for partition in each["partitionIds"]
        ),
        start_ms=fields["transactionStartTimestampMs"],
        timeout_ms=fields["transactionTimeoutMs"],
    )


# Where the view of a consumer ends


def end_of_view(plan: CleanPlan) -> int:
    """Return the first offset that a `read_committed` reader does not see: the last stable one, or that of its batch.

    Rule: `FetchIsolation.TXN_COMMITTED`.
    """
    return _end_of_fetch(plan, plan.last_stable_offset)


def end_of_uncommitted_view(plan: CleanPlan) -> int:
    """Return the same of a `read_uncommitted` reader: the high watermark, or the first offset of its batch.

    Rule: `FetchIsolation.HIGH_WATERMARK`.
    """
    return _end_of_fetch(plan, plan.high_watermark)


def _end_of_fetch(plan: CleanPlan, offset: int) -> int:
    """Return where a fetch ends that must not reach an offset: before the batch that the offset lies in.

    Rule: LocalLog.convertToOffsetMetadataOrThrow, LogSegment.read.
    """
    log = plan.log
    segment = log.segment_at(offset)
    if segment is None or offset >= log.log_end_offset:
        return offset
    path, before = log.file(segment.log_name), segment.base_offset
    start_position = 0 if log.ignores_indexes else position_near(path, offset - 1)
    try:
        for _, header in headers(path, start_position=start_position, end_position=segment.size_bytes):
            if header.last_offset >= offset:
                # The header of a compressed batch of format 0 or 1 does not have its first offset.
                has_base_offset = header.magic == 2 or not header.codec_id
                is_whole = has_base_offset and header.base_offset >= offset
                return offset if is_whole else max(log.log_start_offset, min(before, offset))
            before = header.next_offset
    except CorruptDataError:  # Found again, and reported, by what reads the records.
        pass
    return offset
