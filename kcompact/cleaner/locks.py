"""The locks of the log directories of a round or of `recover`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from kcompact.errors import LogDirLockedError
from kcompact.log.lock import LogDirLock, is_locked, log_dir_lock
from kcompact.log.per_log_dir import PerLogDir


class Locks(PerLogDir[LogDirLock | None]):
    """The locks of the log directories. Each is taken once and held until the stack is closed.

    With `only_check` no lock is taken, and `of` returns None. `of` raises LogDirLockedError.
    """

    def __init__(self, stack: ExitStack, *, only_check: bool) -> None:
        super().__init__(
            _require_unlocked if only_check else lambda log_dir: stack.enter_context(log_dir_lock(log_dir))
        )


def _require_unlocked(log_dir: Path) -> None:
    if is_locked(log_dir):
        raise LogDirLockedError(lock=log_dir / ".lock")
