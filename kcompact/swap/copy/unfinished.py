"""Unfinished directories in an output that brokers may use: their mark, and their removal after a killed run.

Such a directory has the name of one that a broker has marked for deletion. The mark in it tells it from a broker's.
Its `.lock` is held while it is written. `sweep_log_dir` removes what killed runs have left in a log directory, besides
the staging directories: these directories, and a `.tmp` file.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from contextlib import ExitStack, suppress
from pathlib import Path

from kcompact.errors import KcompactError, LogDirLockedError
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT
from kcompact.format.names import DirectoryKind, PartitionDirectoryName, TopicPartition, parse_directory
from kcompact.log.lock import LOCK_NAME, LogDirLock, log_dir_lock
from kcompact.swap.copy.marker import MARKER
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.steps import Remove, SyncDir

_UNFINISHED_CHECKPOINT = f"{CLEANER_OFFSET_CHECKPOINT}.tmp"
"""Only a cleaner writes it, and none is running while the lock is held."""


def marked_for_deletion(source: Path) -> str:
    """Return a name for an unfinished directory that a broker accepts: it deletes the directory when it starts."""
    partition = TopicPartition.parse(source.name)
    assert partition is not None, source
    name = PartitionDirectoryName(topic_partition=partition, kind=DirectoryKind.DELETE, unique_id=secrets.token_hex(16))
    return str(name)


def mark(directory: OpenDirectory, stack: ExitStack) -> None:
    """Mark a new directory as unfinished, and hold its lock until the stack is closed or `unmark` is called."""
    stack.enter_context(log_dir_lock(directory.path, dir_fd=directory.fd()))
    os.close(directory.open(MARKER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def unmark(directory: OpenDirectory) -> None:
    """Remove the mark of a directory that is complete.

    The mark goes first, durably: with a mark and without a lock, `remove_unfinished` would delete the directory.
    """
    apply_steps(directory, (Remove(MARKER), SyncDir(), Remove(LOCK_NAME)))


def sweep_log_dir(log_dir: Path, lock: LogDirLock) -> tuple[str, ...]:
    """Remove what killed runs have left in a log directory, and return the names. Raises RefusedError, StorageError."""
    with OpenDirectory.of_log_dir(log_dir, lock) as directory:
        removed = remove_unfinished(directory)
        status = directory.status(_UNFINISHED_CHECKPOINT)
        if status is not None and stat.S_ISREG(status.st_mode):
            apply_steps(directory, (Remove(_UNFINISHED_CHECKPOINT), SyncDir()))
            removed = (*removed, _UNFINISHED_CHECKPOINT)
        return removed


def remove_unfinished(log_dir: OpenDirectory) -> tuple[str, ...]:
    """Remove the marked directories that no process writes any more, and return their names.

    What cannot be removed stays: a broker deletes it when it starts, if it may.
    """
    removed = []
    for name in sorted(log_dir.names()):
        parsed = parse_directory(name)
        if parsed is not None and parsed.kind is DirectoryKind.DELETE:
            with suppress(KcompactError, OSError):
                if _is_left_behind(log_dir, name):
                    shutil.rmtree(name, dir_fd=log_dir.fd())
                    removed.append(name)
    if removed:
        apply_steps(log_dir, (SyncDir(),))
    return tuple(removed)


def _is_left_behind(log_dir: OpenDirectory, name: str) -> bool:
    if log_dir.size(f"{name}/{MARKER}") is None:
        return False
    try:
        with log_dir_lock(log_dir.path / name, dir_fd=log_dir.fd(name)):
            return True
    except LogDirLockedError:
        return False
