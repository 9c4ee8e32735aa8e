"""The locks of the log directories of a round or of `recover`."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

from kcompact.errors import KcompactError, LogDirLockedError
from kcompact.log.directory import is_running
from kcompact.log.lock import LOCK_NAME, LogDirLock, holder_in_words, is_locked, log_dir_lock
from kcompact.log.per_log_dir import PerLogDir
from kcompact.notes import Note, NoteCode
from kcompact.swap.copy.unfinished import sweep_log_dir


class Locks(PerLogDir[LogDirLock | None]):
    """The locks of the log directories. Each is taken once and held until the stack is closed.

    With `only_check` no lock is taken, and `of` returns None. A lock that another kcompact holds is then an error, or
    with `notes_held` one of the `notes`, as is that of a broker. `removed` are files and directories of killed runs
    that were found beside the partitions and removed. `of` raises LogDirLockedError.
    """

    def __init__(self, stack: ExitStack, *, only_check: bool = False, notes_held: bool = False) -> None:
        self.notes: list[Note] = []
        self.removed: list[Path] = []
        self._stack = stack
        self._only_check = only_check
        self._notes_held = notes_held
        super().__init__(self._lock)

    def _lock(self, log_dir: Path) -> LogDirLock | None:
        if not self._only_check:
            lock = self._stack.enter_context(log_dir_lock(log_dir))
            with suppress(KcompactError):  # What cannot be removed does no harm.
                self.removed += [log_dir / name for name in sweep_log_dir(log_dir, lock)]
            return lock
        if is_locked(log_dir):
            held = LogDirLockedError(lock=log_dir / LOCK_NAME, holder=holder_in_words(log_dir))
            if not self._notes_held:
                if is_running(log_dir):
                    return None
                raise held
            self.notes.append(Note.of(NoteCode.LOCK_HELD, problem=str(held).splitlines()[0]))
        return None
