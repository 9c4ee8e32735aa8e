"""The files of a copied log directory that its partitions share: checkpoints, `meta.properties` and the like."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path

from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    build_offset_checkpoint,
    updated_offset_checkpoint,
)
from kcompact.format.names import TopicPartition
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE
from kcompact.log.directory import PartitionLog
from kcompact.log.files import read_file
from kcompact.log.lock import LOCK_NAME
from kcompact.swap.attributes import copy_status, give_to_owner
from kcompact.swap.checkpoint import read_checkpoint
from kcompact.swap.copy.contents import LOG_DIR_FILES
from kcompact.swap.copy.marker import FinishedDirectory
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.small_files import write_small_file
from kcompact.swap.steps import Remove, SyncDir


def offsets_of(log: PartitionLog, checkpoint_offset: int | None) -> dict[str, int]:
    """Return the entries of a partition in the checkpoints of the output."""
    checkpoints = {
        RECOVERY_POINT_CHECKPOINT: log.log_dir.recovery_points,
        LOG_START_OFFSET_CHECKPOINT: log.log_dir.log_start_offsets,
        REPLICATION_OFFSET_CHECKPOINT: log.log_dir.high_watermarks,
    }
    partition = log.topic_partition
    offsets = {name: entries[partition] for name, entries in checkpoints.items() if entries and partition in entries}
    return offsets if checkpoint_offset is None else {**offsets, CLEANER_OFFSET_CHECKPOINT: checkpoint_offset}


def write_whole(
    log_dir: Path, output: OpenDirectory, records: Sequence[FinishedDirectory], *, is_beside_broker: bool
) -> None:
    """Copy the files of a log directory, `meta.properties` last, with the cleaner's new checkpoint.

    Beside a running broker the checkpoints have the entries that the partitions had when they were read, because those
    of now may be ahead of the copies, and there is no `.kafka_cleanshutdown`.
    Raises CorruptCheckpointError, RefusedError, StorageError.
    """
    with OpenDirectory(log_dir, follow=True) as source:
        present = {name for name in LOG_DIR_FILES if source.status(name) is not None}
        if is_beside_broker:
            present -= {CLEAN_SHUTDOWN_FILE}
        entries = _entries(records, CLEANER_OFFSET_CHECKPOINT)
        _remove_others(output, {*present, CLEANER_OFFSET_CHECKPOINT} if entries else present)
        for name in LOG_DIR_FILES:
            if is_beside_broker and name in OFFSET_CHECKPOINTS:
                if read := _entries(records, name):
                    model = source if name in present else None
                    write_small_file(output, name, _checkpoint(read), mode=0o644, source=model)
            elif name == CLEANER_OFFSET_CHECKPOINT:
                _write_cleaner_offsets(source, output, entries)
            elif name in present:
                _write_one(source, output, name)


def _write_cleaner_offsets(source: OpenDirectory, output: OpenDirectory, entries: dict[TopicPartition, int]) -> None:
    before = read_checkpoint(source)
    after = before | entries
    is_there = source.status(CLEANER_OFFSET_CHECKPOINT) is not None
    if after != before:
        content = _checkpoint(after)
        copied = source if is_there else None
        write_small_file(output, CLEANER_OFFSET_CHECKPOINT, content, mode=0o644, source=copied)
    elif is_there:
        _write_one(source, output, CLEANER_OFFSET_CHECKPOINT)


def write_chosen(
    log_dirs: Sequence[Path], output: OpenDirectory, records: Sequence[FinishedDirectory], *, is_beside_broker: bool
) -> None:
    """Write the checkpoints of chosen partitions.

    `.kafka_cleanshutdown` is written if all the log directories have it, but not beside a running broker.
    Without `meta.properties` no broker starts on the output, which would take the other partitions for empty ones.
    """
    checkpoints = {name: _entries(records, name) for name in OFFSET_CHECKPOINTS}
    _remove_others(output, {name for name, entries in checkpoints.items() if entries})
    with ExitStack() as stack:
        sources = [stack.enter_context(OpenDirectory(log_dir, follow=True)) for log_dir in log_dirs]
        for name, entries in checkpoints.items():
            if entries:
                source = next((each for each in sources if each.status(name) is not None), None)
                write_small_file(output, name, _checkpoint(entries), mode=0o644, source=source)
    if not is_beside_broker and log_dirs and all((log_dir / CLEAN_SHUTDOWN_FILE).exists() for log_dir in log_dirs):
        with OpenDirectory(log_dirs[0], follow=True) as source:
            _write_one(source, output, CLEAN_SHUTDOWN_FILE)


def give_away(source: OpenDirectory, output: OpenDirectory) -> None:
    """Give a new output the mode and extended attributes of the directory it is a copy of and, as root, the owner.

    Checkpoints and `.lock` have the owner of those in the source, or of the directory.
    """
    for name in sorted(output.names().intersection((*LOG_DIR_FILES, LOCK_NAME))):
        with output.opened(name) as fd:
            if source.size(name) is None:
                give_to_owner(source, fd)
            else:
                with source.opened(name) as model:
                    copy_status(model, fd)
    copy_status(source.fd(), output.fd())


def _remove_others(output: OpenDirectory, kept: Collection[str]) -> None:
    """Remove the shared files that an interrupted run has written and that the source no longer has."""
    names = {each for name in LOG_DIR_FILES if name not in kept for each in (name, f"{name}.tmp")}
    others = sorted(names & output.names())
    if others:
        apply_steps(output, (*(Remove(name) for name in others), SyncDir()))


def _write_one(source: OpenDirectory, output: OpenDirectory, name: str) -> None:
    """Copy one small file of a log directory with its time, in place of an existing one.

    Raises RefusedError, StorageError.
    """
    content = read_file(source.path / name, dir_fd=source.fd())
    write_small_file(output, name, content, mode=0o644, source=source, with_times=True)


def _entries(records: Sequence[FinishedDirectory], checkpoint: str) -> dict[TopicPartition, int]:
    partitions = {TopicPartition.parse(record.name): record.offsets.get(checkpoint) for record in records}
    return {
        partition: offset for partition, offset in partitions.items() if partition is not None and offset is not None
    }


def _checkpoint(entries: dict[TopicPartition, int]) -> bytes:
    """Return the bytes of a checkpoint, with the entries in Kafka's order."""
    last = next(reversed(entries))
    return build_offset_checkpoint(updated_offset_checkpoint(entries, last, entries[last]))
