"""What killed runs have left in a log directory, besides the staging directories: unfinished copies, a `.tmp` file."""

from __future__ import annotations

import stat
from pathlib import Path

from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT
from kcompact.log.lock import LogDirLock
from kcompact.swap.copy.added import remove_unfinished
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.steps import Remove, SyncDir

_UNFINISHED_CHECKPOINT = f"{CLEANER_OFFSET_CHECKPOINT}.tmp"
"""Only a cleaner writes it, and none is running while the lock is held."""


def sweep_log_dir(log_dir: Path, lock: LogDirLock) -> tuple[str, ...]:
    """Remove what killed runs have left in a log directory, and return the names. Raises RefusedError, StorageError."""
    with OpenDirectory(log_dir, fd=lock.directory_fd) as directory:
        removed = remove_unfinished(directory)
        status = directory.status(_UNFINISHED_CHECKPOINT)
        if status is not None and stat.S_ISREG(status.st_mode):
            apply_steps(directory, (Remove(_UNFINISHED_CHECKPOINT), SyncDir()))
            removed = (*removed, _UNFINISHED_CHECKPOINT)
        return removed
