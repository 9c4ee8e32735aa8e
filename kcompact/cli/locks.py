"""The locks of the log directories that `clean` and `recover` work in."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from kcompact.errors import KcompactError, LogDirLockedError
from kcompact.log.lock import LogDirLock, is_locked, log_dir_lock


class Locks:
    """The locks of the log directories. Each is taken once and held until the stack is closed.

    With `only_check` no lock is taken.

    A log directory that another process has locked is an error of every partition in it.
    """

    def __init__(self, stack: ExitStack, *, only_check: bool) -> None:
        self._stack = stack
        self._only_check = only_check
        self._held: dict[Path, LogDirLock | KcompactError | None] = {}

    def of(self, partition: Path) -> LogDirLock | None:
        """Return the lock that covers a partition, None with `only_check`. Raises LogDirLockedError."""
        log_dir = partition.parent
        if log_dir not in self._held:
            try:
                self._held[log_dir] = self._take(log_dir)
            except KcompactError as problem:
                self._held[log_dir] = problem
        found = self._held[log_dir]
        if isinstance(found, KcompactError):
            raise found
        return found

    def _take(self, log_dir: Path) -> LogDirLock | None:
        if not self._only_check:
            return self._stack.enter_context(log_dir_lock(log_dir))
        if is_locked(log_dir):
            raise LogDirLockedError(lock=log_dir / ".lock")
        return None
