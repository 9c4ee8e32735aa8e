"""Single files: the kind of a file, and the entries of an index, a snapshot or a checkpoint under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kcompact.cli.json.files import ENTRIES
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
from kcompact.format.producer_snapshot import parse_snapshot
from kcompact.format.properties import (
    META_PROPERTIES,
    PARTITION_METADATA,
    parse_meta_properties,
    parse_partition_metadata,
)
from kcompact.log.files import LogFile
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
    stored = LogFile.at(path)
    data = read_entries(stored, _ENTRY_BYTES[kind]) if is_sparse else stored.read()
    count = len(data) // _ENTRY_BYTES[kind] if kind in _ENTRY_BYTES else data.count(b"\n")
    if count * _LISTED_BYTES > memory_bytes:
        raise RefusedError(
            path=path,
            problem=f"{count:,} entries are too many to list with the memory that may be used",
            hint="With a greater --memory they are listed.",
        )
    return list(map(ENTRIES[kind].of, _entries(kind, data, base, file)))


def _entries(kind: str, data: bytes, base: int, file: str) -> Iterable[Any]:
    """Return the entries as values that `cli.json.files` describes."""
    match kind:
        case "index":
            positions = index.parse_offset_index(data, base_offset=base, file=file)
            return ((base + relative, position) for relative, position in positions)
        case "timeindex":
            times = index.parse_time_index(data, base_offset=base, file=file)
            return ((timestamp, base + relative) for timestamp, relative in times)
        case "txnindex":
            return index.parse_txn_index(data, base_offset=base, file=file)
        case "snapshot":
            return parse_snapshot(data, file=file)
        case _ if kind == LEADER_EPOCH_CHECKPOINT:
            return parse_leader_epochs(data, file=file)
        case _ if kind == PARTITION_METADATA:
            return [parse_partition_metadata(data, file=file)]
        case _ if kind == META_PROPERTIES:
            return [parse_meta_properties(data, file=file)]
    return parse_offset_checkpoint(data, file=file).items()


def is_log(path: Path) -> bool:
    """Return whether the file consists of batches. Raises RefusedError for a name that Kafka does not use."""
    return kind_of(path) in (Suffix.LOG.removeprefix("."), METADATA_SNAPSHOT)
