"""The way back: the partitions that a directory of `keep_replaced` holds, and how one of them is put back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kcompact.cleaner.in_use import Locks, UseCheck
from kcompact.cleaner.preflight import require_own_storage
from kcompact.errors import KcompactError, RefusedError, storage_errors
from kcompact.format.names import TopicPartition
from kcompact.readable import shell_word
from kcompact.swap.checkpoint import require_checkpoint
from kcompact.swap.kept.manifest import MANIFEST, KeptPartition, read_kept
from kcompact.swap.kept.restore import Verified, put_back, require_there, verify_kept
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.recovery.interrupted_round import recover
from kcompact.swap.staging import require_stageable
from kcompact.values import dataclass

_GIVEN = "Pass the directory that was given to `kcompact clean --keep-replaced`."


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredPartition:
    """A directory in that of `keep_replaced`. `subject` is None if nothing of the partition was replaced."""

    name: str
    subject: KeptPartition | None = None
    error: KcompactError | None = None


def kept_partitions(kept: Path) -> list[RestoredPartition]:
    """Return what a directory of `keep_replaced` holds, what was cleaned last first.

    Put back in this order, partitions that share a checkpoint leave it as it was before the cleaning, byte for byte.

    Raises RefusedError for a directory that `clean --keep-replaced` has not made or that others may write to.
    """
    if not kept.exists():
        raise RefusedError(path=kept, problem="no such directory", hint=_GIVEN)
    with OpenDirectory(kept, follow=True) as directory:
        _require_own(directory)
        partitions = [_read(directory, name) for name in sorted(directory.names()) if TopicPartition.parse(name)]
        if not any(each.subject or each.error for each in partitions):
            raise RefusedError(
                path=kept,
                problem="has no kept segments: nothing was replaced, or it is another directory",
                hint=_GIVEN,
            )
    return sorted(partitions, key=lambda each: -each.subject.number if each.subject else 0)


def _require_own(directory: OpenDirectory) -> None:
    status = os.fstat(directory.fd())
    if status.st_mode & 0o022 or status.st_uid not in (0, os.geteuid()):
        raise RefusedError(
            path=directory.path,
            problem="other users may write to it, so what it holds is not trusted",
            hint=f"Run as the user that made it: ls -ld {shell_word(directory.path)}",
        )


def _read(directory: OpenDirectory, name: str) -> RestoredPartition:
    try:
        with storage_errors(directory.path / name), directory.below(name) as below:
            _require_own(below)
            subject = read_kept(below)
    except KcompactError as error:
        return RestoredPartition(name=name, error=error)
    if subject is not None and str(subject.topic_partition) != name:
        problem = f"is the manifest of {subject.topic_partition}, not of {name}"
        hint = "Nothing was changed. Find out who moved it."
        return RestoredPartition(name=name, error=RefusedError(path=below.path / MANIFEST, problem=problem, hint=hint))
    return RestoredPartition(name=name, subject=subject)


def restore_partition(
    kept: Path,
    subject: KeptPartition,
    locks: Locks,
    in_use: UseCheck,
    *,
    check: Callable[[], None] = lambda: None,
    only_check: bool = False,
) -> Verified:
    """Verify what is kept of a partition, put it back unless `only_check`, and return what was found.

    An interrupted swap is recovered first. Raises RefusedError, CorruptDataError, LogDirLockedError with nothing
    changed, RecoveryNeededError, LogChangedError, StorageError.
    """
    directory = Path(subject.directory)
    require_there(directory)
    lock = locks.of(directory)
    in_use.look_at(directory)
    if lock is not None:
        recover(directory, log_dir=directory.parent, lock=lock)
    with (
        OpenDirectory(kept, follow=True) as above,
        above.below(str(subject.topic_partition)) as links,
        OpenDirectory(directory) as partition,
        OpenDirectory.of_log_dir(directory.parent, lock) as log_dir,
    ):
        verified = verify_kept(partition, links, subject, log_dir, check)
        if lock is not None and not verified.is_done:
            require_own_storage(directory)
            require_stageable(partition)
            require_checkpoint(directory.parent)
            put_back(partition, links, subject, verified, log_dir, lock, check=check)
    return verified
