"""Single files: the kind of a file, and the entries of an index, a snapshot or a checkpoint under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kcompact.errors import RefusedError
from kcompact.format import index
from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_leader_epochs,
    parse_offset_checkpoint,
)
from kcompact.format.names import BOOTSTRAP_CHECKPOINT, Suffix, Temporary, parse_file_name, parse_metadata_snapshot_name
from kcompact.format.producer_snapshot import ENTRY_BYTES as PRODUCER_ENTRY_BYTES
from kcompact.format.producer_snapshot import ProducerEntry, parse_snapshot
from kcompact.format.properties import (
    META_PROPERTIES,
    PARTITION_METADATA,
    parse_meta_properties,
    parse_partition_metadata,
)
from kcompact.log.files import read_file
from kcompact.log.index_files import read_entries

_OFFSET_CHECKPOINTS = (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)

METADATA_SNAPSHOT = "checkpoint"
"""The kind of a snapshot of a KRaft metadata log: batches, as in a log."""

_ENTRY_BYTES = {
    "index": index.OFFSET_ENTRY_BYTES,
    "timeindex": index.TIME_ENTRY_BYTES,
    "txnindex": index.TXN_ENTRY_BYTES,
    "snapshot": PRODUCER_ENTRY_BYTES,
}
_LISTED_BYTES = 1000
"""What a listed entry takes: its fields, and its line or its part of the JSON."""


def kind_of(path: Path) -> str:
    """Return what a single file is: `log`, `index`, ..., or the name of a checkpoint. Raises RefusedError."""
    if path.name in (*_OFFSET_CHECKPOINTS, LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, META_PROPERTIES):
        return path.name
    if parse_metadata_snapshot_name(path.name) is not None or path.name == BOOTSTRAP_CHECKPOINT:
        return METADATA_SNAPSHOT
    parsed = parse_file_name(path.name)
    if parsed is None:
        raise RefusedError(
            path=path,
            problem="not the name of a Kafka file",
            hint="inspect reads .log, .index, .timeindex, .txnindex, .snapshot and the checkpoint files.",
        )
    return parsed.suffix.removeprefix(".")


def base_offset_of(path: Path) -> int:
    """Return the base offset in a file's name, 0 without one."""
    parsed = parse_file_name(path.name)
    return parsed.base_offset if parsed else 0


def has_second_suffix(path: Path) -> bool:
    """Return whether the file has a second suffix: `.cleaned`, `.swap` or `.deleted`."""
    parsed = parse_file_name(path.name)
    return parsed is not None and parsed.temporary is not Temporary.NO


def entries_of(path: Path, *, memory_bytes: int) -> list[dict[str, Any]]:
    """Return the entries of a file other than a log.

    Raises CorruptDataError, RefusedError for more entries than `memory_bytes` can hold, StorageError.
    """
    kind, file, base = kind_of(path), str(path), base_offset_of(path)
    is_sparse = kind in ("index", "timeindex")
    data = read_entries(path, _ENTRY_BYTES[kind]) if is_sparse else read_file(path)
    count = len(data) // _ENTRY_BYTES[kind] if kind in _ENTRY_BYTES else data.count(b"\n")
    if count * _LISTED_BYTES > memory_bytes:
        raise RefusedError(
            path=path,
            problem=f"{count:,} entries are too many to list with the memory that may be used",
            hint="With a greater --memory they are listed.",
        )
    readers: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "index": lambda: _offset_entries(data, base, file),
        "timeindex": lambda: _time_entries(data, base, file),
        "txnindex": lambda: _txn_entries(data, base, file),
        "snapshot": lambda: _producer_entries(data, file),
        LEADER_EPOCH_CHECKPOINT: lambda: [
            {"epoch": entry.epoch, "startOffset": entry.start_offset} for entry in parse_leader_epochs(data, file=file)
        ],
        PARTITION_METADATA: lambda: [asdict(parse_partition_metadata(data, file=file))],
        META_PROPERTIES: lambda: [asdict(parse_meta_properties(data, file=file))],
    } | dict.fromkeys(_OFFSET_CHECKPOINTS, lambda: _checkpoint_entries(data, file))
    return readers[kind]()


def _offset_entries(data: bytes, base: int, file: str) -> list[dict[str, Any]]:
    entries = index.parse_offset_index(data, base_offset=base, file=file)
    return [{"offset": base + relative, "position": position} for relative, position in entries]


def _time_entries(data: bytes, base: int, file: str) -> list[dict[str, Any]]:
    entries = index.parse_time_index(data, base_offset=base, file=file)
    return [{"timestamp": timestamp, "offset": base + relative} for timestamp, relative in entries]


def _txn_entries(data: bytes, base: int, file: str) -> list[dict[str, Any]]:
    return [
        {
            "version": index.ABORTED_TXN_VERSION,
            "producerId": entry.producer_id,
            "firstOffset": entry.first_offset,
            "lastOffset": entry.last_offset,
            "lastStableOffset": entry.last_stable_offset,
        }
        for entry in index.parse_txn_index(data, base_offset=base, file=file)
    ]


def _producer_entries(data: bytes, file: str) -> list[dict[str, Any]]:
    return [
        {
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": entry.current_txn_first_offset,
            "lastTimestamp": entry.timestamp,
            "firstSequence": _first_sequence(entry),
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "offsetDelta": entry.offset_delta,
        }
        for entry in parse_snapshot(data, file=file)
    ]


def _first_sequence(entry: ProducerEntry) -> int:
    """Return the sequence number of the first record of the producer's last batch, -1 if no batch is known."""
    return -1 if entry.last_offset < 0 else (entry.last_sequence - entry.offset_delta) & 0x7FFFFFFF


def _checkpoint_entries(data: bytes, file: str) -> list[dict[str, Any]]:
    return [
        {"topic": key.topic, "partition": key.partition, "offset": offset}
        for key, offset in parse_offset_checkpoint(data, file=file).items()
    ]


def is_log(path: Path) -> bool:
    """Return whether the file consists of batches. Raises RefusedError for a name that Kafka does not use."""
    return kind_of(path) in (Suffix.LOG.removeprefix("."), METADATA_SNAPSHOT)
