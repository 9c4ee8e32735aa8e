"""The directory of `keep_replaced`: checked before a round, made when it begins, and filled partition by partition."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from kcompact.errors import KcompactError, RefusedError, storage_errors
from kcompact.format.names import log_bases
from kcompact.host.access import why_not_writable
from kcompact.host.disk import nearest_existing
from kcompact.log.directory import log_dir_around
from kcompact.log.lock import LogDirLock
from kcompact.notes import Note, NoteCode
from kcompact.plan.clean_plan import CleanPlan
from kcompact.readable import shell_word, shown
from kcompact.swap.identity import identity_of
from kcompact.swap.kept import MANIFEST, KeptPartition, KeptSegments, untouched_log
from kcompact.swap.open_directory import OpenDirectory, apply_steps, made_without_links
from kcompact.swap.steps import RemoveDir, SyncDir

MOST_FILES = 6000
"""The most files of a group that can be kept: a manifest of the swap back holds no more."""

_OTHER = "Pass a new or empty directory as --keep-replaced, on the file system of the log and outside of it."


class Keep:
    """Where a round keeps what it replaces; a `with` block makes the directory and holds it open. Safe for threads.

    A directory that the block has made, and in which nothing is kept in the end, is removed again.

    The constructor checks the directory and writes nothing. It raises RefusedError if the directory is not empty,
    belongs to another user, lies in a log directory or on another file system than a partition; StorageError.
    """

    def __init__(self, path: Path, directories: Collection[Path]) -> None:
        with storage_errors(path):
            self.path = path.resolve()
            _require_outside(self.path, directories)
            _require_empty(self.path)
            _require_same_file_system(self.path, directories)
        if len({directory.name for directory in directories}) != len(directories):
            problem = "cannot hold what two directories of the same name replace"
            raise RefusedError(
                path=self.path, problem=problem, hint="Clean each log directory with a command of its own."
            )
        self._is_new = not self.path.exists()
        self._held: OpenDirectory | None = None
        self._count = 0
        self._counting = threading.Lock()

    @property
    def note(self) -> Note:
        """What the user should know before a cleaning that replaces something."""
        return Note.of(NoteCode.KEEPS_REPLACED, path=shown(self.path), word=shell_word(self.path))

    def __enter__(self) -> Keep:
        with storage_errors(self.path, "make"):
            self._held = made_without_links(self.path)
            status = os.fstat(self._held.fd())
            if status.st_uid != os.geteuid() or self._held.names():
                raise _not_empty(self.path)
            os.fchmod(self._held.fd(), 0o700)
            apply_steps(self._held, (SyncDir(),))
            with OpenDirectory(self.path.parent, follow=True) as above:
                apply_steps(above, (SyncDir(),))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._held is not None
        is_empty = not self._held.names()
        self._held.__exit__(kind, error, trace)
        if self._is_new and is_empty:
            with suppress(OSError), OpenDirectory(self.path.parent, follow=True) as above:
                apply_steps(above, (RemoveDir(self.path.name), SyncDir()))

    @contextmanager
    def partition(self, plan: CleanPlan, lock: LogDirLock) -> Iterator[KeptSegments]:
        """Yield the links of one partition. If the block raises before a group was replaced, they are removed.

        Raises RefusedError for a group with too many files, StorageError, NotEnoughSpaceError.
        """
        assert self._held is not None, "the directory is made by entering"
        name = plan.log.directory.name
        for group in plan.groups:
            files = sum(len(segment.files) for segment in group)
            if files > MOST_FILES:
                raise RefusedError(
                    path=plan.log.directory,
                    problem=f"{files:,} files become one segment, too many to be put back at once",
                    hint="Write a compacted copy with --output DIR instead, or clean without --keep-replaced.",
                )
        with storage_errors(self.path / name, "make"):
            os.mkdir(name, 0o700, dir_fd=self._held.fd())
        with self._held.below(name) as directory, OpenDirectory(lock.path.parent, fd=lock.directory_fd) as log_dir:
            kept = KeptSegments(directory, self._subject(plan, log_dir))
            try:
                apply_steps(self._held, (SyncDir(),))
                kept.keep_checkpoint(log_dir)
                yield kept
            except BaseException:
                kept.abandon()
                with suppress(OSError):  # Not empty: a group was replaced.
                    apply_steps(self._held, (RemoveDir(name), SyncDir()))
                raise

    def _subject(self, plan: CleanPlan, log_dir: OpenDirectory) -> KeptPartition:
        from kcompact import __version__

        with self._counting:
            self._count += 1
        with OpenDirectory(plan.log.directory) as partition:
            # A log that a broker has to recover can have more segments than the plan knows.
            bases = log_bases(partition.names())
            return KeptPartition(
                directory=str(plan.log.directory),
                identity=identity_of(partition, log_dir),
                number=self._count,
                now_ms=plan.now_ms,
                kcompact=__version__,
                checkpoint_crc32c=None,
                untouched=tuple(untouched_log(partition, base, is_active=base == bases[-1]) for base in bases),
            )


def _require_outside(path: Path, directories: Collection[Path]) -> None:
    """Raise RefusedError if the directory lies in a log directory: a broker would not start beside it."""
    around = log_dir_around(path, directories)
    if around is not None:
        problem = "lies in a log directory" if around != path else "is a log directory"
        raise RefusedError(path=path, problem=f"{problem}, where a broker takes it for a partition", hint=_OTHER)


def _require_empty(path: Path) -> None:
    """Raise RefusedError unless the directory is missing, or empty and this user's alone."""
    if os.path.lexists(path):
        status = path.lstat()
        is_own = status.st_uid == os.geteuid() and not status.st_mode & 0o022
        if not stat.S_ISDIR(status.st_mode) or not is_own or any(path.iterdir()):
            raise _not_empty(path)
    problem = why_not_writable(nearest_existing(path))
    if problem is not None:
        raise RefusedError(path=path, problem=f"cannot be made: {problem.strerror}", hint=_OTHER)


def _not_empty(path: Path) -> KcompactError:
    with suppress(OSError):
        if any(path.glob(f"*/{MANIFEST}")):
            hint = "Do not delete it: `kcompact restore` puts these back. Pass another --keep-replaced DIR."
            return RefusedError(path=path, problem="holds what an earlier cleaning has replaced", hint=hint)
    problem = "is not an empty directory that only this user may write to"
    return RefusedError(path=path, problem=problem, hint=_OTHER)


def _require_same_file_system(path: Path, directories: Collection[Path]) -> None:
    device = nearest_existing(path).stat().st_dev
    for directory in directories:
        if directory.exists() and directory.stat().st_dev != device:
            raise RefusedError(
                path=path,
                problem=f"is on another file system than {directory}, so no hard link is possible",
                hint=f"{_OTHER} If the log directory is a mount point, copy it with cp -a, or clean with --output DIR.",
            )
