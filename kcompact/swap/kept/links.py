"""What `--keep-replaced DIR` keeps: hard links to the files that a cleaning replaces, partition by partition.

    DIR/orders-0/kept.json                   the manifest: what the links are, and what has taken their place
    DIR/orders-0/00000000000000000000.log    a second name of the old file, under its own name
    DIR/orders-0/cleaner-offset-checkpoint   a second name of the checkpoint before the cleaning, if there was one

The directory is checked before a round, and made when it begins. The links of a group and the manifest that names them
are synced before the group is swapped. `restore` reads them.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from kcompact.clean.staged_files import CleanedSegment
from kcompact.errors import KcompactError, LogChangedError, RefusedError, storage_errors
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT
from kcompact.format.checksum import crc32c
from kcompact.format.names import log_bases, log_name
from kcompact.host import turns
from kcompact.host.access import why_not_writable
from kcompact.host.disk import nearest_existing
from kcompact.log.directory import log_dir_around
from kcompact.log.files import FileIdentity
from kcompact.log.lock import LogDirLock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.readable import shell_word, shown
from kcompact.remarks import Note, RemarkCode
from kcompact.swap.identity import identity_of
from kcompact.swap.kept.manifest import MANIFEST, KeptFile, KeptGroup, KeptPartition, UntouchedLog, encode
from kcompact.swap.open_directory import OpenDirectory, apply_steps, made_without_links
from kcompact.swap.replace import require_unchanged
from kcompact.swap.small_files import write_small_file
from kcompact.swap.steps import Remove, RemoveDir, SyncDir

MOST_FILES = 6000
"""The most files of a group that can be kept: a manifest of the swap back holds no more."""

_OTHER = "Pass a new or empty directory as --keep-replaced, on the file system of the log and outside of it."


class KeptDirectory:
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
        return Note.of(RemarkCode.KEEPS_REPLACED, path=shown(self.path), word=shell_word(self.path))

    def __enter__(self) -> KeptDirectory:
        with ExitStack() as stack, storage_errors(self.path, "make"):
            held = stack.enter_context(made_without_links(self.path))
            status = os.fstat(held.fd())
            if status.st_uid != os.geteuid() or held.names():
                raise _not_empty(self.path)
            os.fchmod(held.fd(), 0o700)
            apply_steps(held, (SyncDir(),))
            stack.pop_all()  # `__exit__` closes it.
            self._held = held
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._held is not None
        is_empty = False
        with suppress(KcompactError, OSError):  # Only an empty directory that stays: no reason to lose the report.
            is_empty = not self._held.names()
        self._held.__exit__(kind, error, trace)
        if self._is_new and is_empty:
            with suppress(OSError), OpenDirectory(self.path.parent, follow=True) as above:
                apply_steps(above, (RemoveDir(self.path.name), SyncDir()))

    @contextmanager
    def partition(self, plan: CleanPlan, lock: LogDirLock) -> Iterator[KeptLinks]:
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
        with self._held.below(name) as directory, OpenDirectory.of_log_dir(lock.path.parent, lock) as log_dir:
            kept = KeptLinks(directory, self._subject(plan, log_dir))
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


# --- One partition --------------------------------------------------------------------------------------


def untouched_log(partition: OpenDirectory, base_offset: int, *, is_active: bool) -> UntouchedLog:
    """Return a segment as it is before a cleaning. Raises LogChangedError, OSError."""
    name = log_name(base_offset)
    status = partition.status(name)
    if status is None:
        raise LogChangedError(path=partition.path / name, problem="was deleted while it was kept")
    return UntouchedLog(
        name=name,
        inode=status.st_ino,
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        crc32c=partition.digest(name, size_bytes=status.st_size) if is_active else None,
    )


class KeptLinks:
    """The links of one partition while it is cleaned. `directory` is `DIR/<partition>`, held open."""

    def __init__(self, directory: OpenDirectory, subject: KeptPartition) -> None:
        self._directory = directory
        self._subject = subject
        self.has_swapped = False
        """Whether a group was replaced, or may have been. Then the links are the only names of its old files."""

    def keep_checkpoint(self, log_dir: OpenDirectory) -> None:
        """Link the cleaner's checkpoint as it is before the cleaning, if there is one."""
        if log_dir.status(CLEANER_OFFSET_CHECKPOINT) is not None:
            self._link(log_dir, CLEANER_OFFSET_CHECKPOINT)
            content = self._directory.read_from_disk(CLEANER_OFFSET_CHECKPOINT)
            self._subject = replace(self._subject, checkpoint_crc32c=crc32c(content))

    def keep(self, partition: OpenDirectory, segments: Sequence[CleanedSegment], check: Callable[[], None]) -> None:
        """Link the old files of groups, sync the links, and write the manifest with their digests.

        Raises RefusedError where the file system does not link a file, LogChangedError for a file that is not that of
        the plan, StorageError, NotEnoughSpaceError; `check` may raise to stop.
        """
        groups = []
        for segment in segments:
            require_unchanged(partition, segment.replaces)
            for identity in segment.replaces:
                self._link(partition, identity.name)
            old = tuple(self._described(identity, check) for identity in segment.replaces)
            groups.append(KeptGroup(base_offset=segment.base_offset, new=segment.files, old=old))
        apply_steps(self._directory, (SyncDir(),))
        replaced = {file.name for group in groups for file in group.old}
        untouched = tuple(log for log in self._subject.untouched if log.name not in replaced)
        self._subject = replace(self._subject, groups=(*self._subject.groups, *groups), untouched=untouched)
        write_small_file(self._directory, MANIFEST, encode(self._subject), mode=0o600)

    @property
    def groups(self) -> tuple[KeptGroup, ...]:
        """The groups that are in the manifest."""
        return self._subject.groups

    def _link(self, source: OpenDirectory, name: str) -> None:
        try:
            source.link(name, self._directory, name)
        except FileNotFoundError:
            raise LogChangedError(path=source.path / name, problem="was deleted while it was kept") from None
        except OSError as error:
            raise RefusedError(
                path=source.path / name,
                problem=f"cannot be kept by a hard link in {self._directory.path}: {error.strerror}",
                hint="It was not changed. Pass a --keep-replaced directory on the same file system, and run as the "
                "user that owns these files (the broker's user).",
            ) from error

    def _described(self, identity: FileIdentity, check: Callable[[], None]) -> KeptFile:
        with self._directory.opened(identity.name) as fd:
            turns.sync(fd)
            status = os.fstat(fd)
        crc32c = self._directory.digest(identity.name, check)
        if FileIdentity.of(identity.name, status) != identity:
            path = self._directory.path / identity.name
            raise LogChangedError(path=path, problem="is another file than that of the plan")
        return KeptFile(
            name=identity.name,
            size_bytes=status.st_size,
            crc32c=crc32c,
            mtime_ns=status.st_mtime_ns,
            uid=status.st_uid,
            gid=status.st_gid,
            mode=stat.S_IMODE(status.st_mode),
        )

    def abandon(self) -> None:
        """Remove the links, unless a group was replaced: the cleaning has stopped. Raises nothing."""
        if not self.has_swapped:
            with suppress(OSError):
                names = sorted(self._directory.names(), key=lambda name: name != MANIFEST)
                apply_steps(self._directory, (*map(Remove, names), SyncDir()))
