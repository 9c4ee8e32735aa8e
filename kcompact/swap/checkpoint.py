"""`cleaner-offset-checkpoint`: sets the entries of some partitions, keeps the others."""

from __future__ import annotations

import stat
import threading
from collections.abc import Mapping
from pathlib import Path

from kcompact.errors import CorruptCheckpointError
from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    MAX_CHECKPOINT_BYTES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    build_offset_checkpoint,
    parse_offset_checkpoint,
    updated_offset_checkpoint,
    updated_offset_checkpoint_by_many,
)
from kcompact.format.names import TopicPartition
from kcompact.host import turns
from kcompact.log.files import read_file
from kcompact.log.lock import LogDirLock
from kcompact.swap.attributes import require_same_owners
from kcompact.swap.open_directory import OpenDirectory, apply_steps, opened
from kcompact.swap.protection import require_replaceable
from kcompact.swap.small_files import write_small_file
from kcompact.swap.staging import require_writable
from kcompact.swap.steps import Remove, SyncDir

_WRITING = threading.Lock()
"""The partitions of a log directory share each checkpoint, and threads may clean them at the same time."""


def write_checkpoints(log_dir: OpenDirectory | Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Set the offsets of some partitions in the cleaner's checkpoint. Other entries are kept.

    All are set by one write, which gives the file that setting one after the other gives. The checkpoint is the last
    change of a cleaning. A checkpoint ahead of the log would bring deleted keys back; a checkpoint behind it only costs
    work. The file keeps its owner and mode; a new file gets those of another checkpoint. Raises CorruptCheckpointError,
    with nothing changed, if the existing file is malformed.
    Rule: LogCleanerManager.updateCheckpoints, CheckpointFile.write.
    """
    with turns.holding(_WRITING), opened(log_dir, follow=True) as directory:
        content = build_offset_checkpoint(updated_offset_checkpoint_by_many(read_checkpoint(directory), offsets))
        write_small_file(directory, CLEANER_OFFSET_CHECKPOINT, content, mode=0o644, model=_model(directory))


def put_back_checkpoint(
    log_dir: OpenDirectory, topic_partition: TopicPartition, offset: int | None, *, original: bytes | None
) -> None:
    """Set the offset of one partition in the cleaner's checkpoint to what it was; None removes the entry.

    `original` is the content of the file before the cleaning, None if there was no file. Where it has the same entries
    as the new file would have, the file gets this content again, or is removed. Raises as `write_checkpoints`.
    """
    with turns.holding(_WRITING), opened(log_dir) as directory:
        present = read_checkpoint(directory)
        if present.get(topic_partition) == offset:
            return
        if offset is None:
            wanted = {each: value for each, value in present.items() if each != topic_partition}
        else:
            wanted = updated_offset_checkpoint(present, topic_partition, offset)
        if not wanted and original is None:
            apply_steps(directory, (Remove(CLEANER_OFFSET_CHECKPOINT), SyncDir()))
            return
        content = build_offset_checkpoint(wanted)
        if original is not None and parse_offset_checkpoint(original, file=CLEANER_OFFSET_CHECKPOINT) == wanted:
            content = original
        write_small_file(directory, CLEANER_OFFSET_CHECKPOINT, content, mode=0o644, model=_model(directory))


def require_checkpoint(log_dir: Path) -> None:
    """Raise RefusedError if this user cannot write the cleaner's checkpoint. Changes nothing."""
    with OpenDirectory(log_dir, follow=True) as directory:
        require_writable(directory)
        require_replaceable(directory, CLEANER_OFFSET_CHECKPOINT)
        model = _model(directory)
        if model is not None:
            require_same_owners(directory, (model,))


def remove_unfinished_checkpoint(log_dir: Path, lock: LogDirLock) -> tuple[str, ...]:
    """Remove what a killed run has left of a cleaner's checkpoint, and return the names.

    Only a cleaner writes this file, and none is running while the lock is held. Raises RefusedError, StorageError.
    """
    name = f"{CLEANER_OFFSET_CHECKPOINT}.tmp"
    with OpenDirectory.of_log_dir(log_dir, lock) as directory:
        status = directory.status(name)
        if status is None or not stat.S_ISREG(status.st_mode):
            return ()
        apply_steps(directory, (Remove(name), SyncDir()))
        return (name,)


def _model(directory: OpenDirectory) -> str | None:
    """Return the file whose owner and mode the checkpoint gets: itself, or another checkpoint, None without any."""
    models = (
        CLEANER_OFFSET_CHECKPOINT,
        RECOVERY_POINT_CHECKPOINT,
        REPLICATION_OFFSET_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
    )
    return next((candidate for candidate in models if directory.size(candidate) is not None), None)


def read_checkpoint(directory: OpenDirectory) -> dict[TopicPartition, int]:
    """Return the offsets in the cleaner's checkpoint, none if it is missing. Raises CorruptCheckpointError."""
    if directory.status(CLEANER_OFFSET_CHECKPOINT) is None:
        return {}
    path = directory.path / CLEANER_OFFSET_CHECKPOINT
    size = directory.size(CLEANER_OFFSET_CHECKPOINT)
    if size is None or size > MAX_CHECKPOINT_BYTES:
        raise CorruptCheckpointError(file=path, problem="not a regular file of reasonable size")
    content = read_file(path, max_bytes=MAX_CHECKPOINT_BYTES, dir_fd=directory.fd())
    return parse_offset_checkpoint(content, file=str(path))
