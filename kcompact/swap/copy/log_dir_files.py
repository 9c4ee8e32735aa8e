"""The files of a copied log directory that its partitions share: checkpoints, `meta.properties` and the like."""

from __future__ import annotations

import stat
from collections.abc import Collection, Sequence
from pathlib import Path

from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    build_offset_checkpoint,
    parse_offset_checkpoint,
    updated_offset_checkpoint,
)
from kcompact.format.names import TopicPartition
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE
from kcompact.log.directory import BROKER_CHECKPOINTS
from kcompact.log.files import read_file
from kcompact.swap.copy.contents import LOG_DIR_FILES
from kcompact.swap.copy.journal import Record
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.small_files import write_small_file
from kcompact.swap.steps import Remove, SyncDir


def write_whole(log_dir: Path, output: Path, records: Sequence[Record]) -> None:
    """Copy the files of a log directory, `meta.properties` last, with the cleaner's new checkpoint.

    Raises CorruptCheckpointError, RefusedError, StorageError.
    """
    kept = {name for name in LOG_DIR_FILES if (log_dir / name).exists()}
    if _entries(records, CLEANER_OFFSET_CHECKPOINT):
        kept.add(CLEANER_OFFSET_CHECKPOINT)
    _remove_others(output, kept)
    for name in LOG_DIR_FILES:
        if name == CLEANER_OFFSET_CHECKPOINT:
            _write_cleaner_offsets(log_dir, output, records)
        elif (log_dir / name).exists():
            _write_one(log_dir, output, name)


def _write_cleaner_offsets(log_dir: Path, output: Path, records: Sequence[Record]) -> None:
    source = log_dir / CLEANER_OFFSET_CHECKPOINT
    before = parse_offset_checkpoint(read_file(source), file=str(source)) if source.exists() else {}
    after = before | _entries(records, CLEANER_OFFSET_CHECKPOINT)
    if after != before:
        _write(output, CLEANER_OFFSET_CHECKPOINT, _checkpoint(after), mode=0o644)
    elif source.exists():
        _write_one(log_dir, output, CLEANER_OFFSET_CHECKPOINT)


def write_chosen(log_dirs: Sequence[Path], output: Path, records: Sequence[Record]) -> None:
    """Write the checkpoints of chosen partitions, and `.kafka_cleanshutdown` if all their log directories have it.

    Without `meta.properties` no broker starts on the output, which would take the other partitions for empty ones.
    """
    checkpoints = {name: _entries(records, name) for name in (*BROKER_CHECKPOINTS, CLEANER_OFFSET_CHECKPOINT)}
    _remove_others(output, {name for name, entries in checkpoints.items() if entries})
    for name, entries in checkpoints.items():
        if entries:
            _write(output, name, _checkpoint(entries), mode=0o644)
    write_clean_shutdown(log_dirs, output)


def write_clean_shutdown(log_dirs: Sequence[Path], output: Path) -> None:
    """Write `.kafka_cleanshutdown` if all the log directories have it. Raises RefusedError, StorageError."""
    if log_dirs and all((log_dir / CLEAN_SHUTDOWN_FILE).exists() for log_dir in log_dirs):
        _write_one(log_dirs[0], output, CLEAN_SHUTDOWN_FILE)


def _remove_others(output: Path, kept: Collection[str]) -> None:
    """Remove the shared files that an interrupted run has written and that the source no longer has."""
    with OpenDirectory(output, follow=True) as directory:
        names = {each for name in LOG_DIR_FILES if name not in kept for each in (name, f"{name}.tmp")}
        others = sorted(names & directory.names())
        if others:
            apply_steps(directory, (*(Remove(name) for name in others), SyncDir()))


def _write_one(log_dir: Path, output: Path, name: str) -> None:
    """Copy one small file of a log directory, in place of an existing one. Raises RefusedError, StorageError."""
    _write(output, name, read_file(log_dir / name), mode=stat.S_IMODE((log_dir / name).stat().st_mode))


def _write(output: Path, name: str, content: bytes, *, mode: int) -> None:
    with OpenDirectory(output, follow=True) as directory:
        write_small_file(directory, name, content, mode=mode)


def _entries(records: Sequence[Record], checkpoint: str) -> dict[TopicPartition, int]:
    partitions = {TopicPartition.parse(record.name): record.offsets.get(checkpoint) for record in records}
    return {
        partition: offset for partition, offset in partitions.items() if partition is not None and offset is not None
    }


def _checkpoint(entries: dict[TopicPartition, int]) -> bytes:
    """Return the bytes of a checkpoint, with the entries in Kafka's order."""
    last = next(reversed(entries))
    return build_offset_checkpoint(updated_offset_checkpoint(entries, last, entries[last]))
