"""Replaces the segments of one group with the staged segment.

All checks are made before the first step. The error for a failed step says whether the commit point was passed.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kcompact.clean.staged_files import CleanedSegment
from kcompact.errors import LogChangedError, RecoveryNeededError
from kcompact.format.names import Suffix, Temporary, parse_file_names
from kcompact.log.directory import STAGING_NAME
from kcompact.log.files import FileIdentity
from kcompact.readable import shell_word
from kcompact.swap import manifest as manifest_format
from kcompact.swap.attributes import StagedStatuses
from kcompact.swap.open_directory import OpenDirectory, apply_steps, opened
from kcompact.swap.recovery.leftovers import require_nothing_unfinished, staged_status
from kcompact.swap.steps import (
    Observer,
    Remove,
    Step,
    SyncDir,
    commit_position,
    replaced_names,
    replacement_steps,
    stale_deleted_names,
)


class NamesInPartition:
    """The names in a partition while its groups are replaced, one after the other.

    They are read again only if the times of the directory show that another process has changed it: a partition of
    thousands of groups is not listed for each of them. `orphans` are indexes without a log that the plan knows. They
    stay: no new file has the base offset of an orphan, because the first segment of a group has a log.
    """

    def __init__(self, directory: OpenDirectory, orphans: Iterable[FileIdentity] = ()) -> None:
        self.present: set[str] = set()
        self._directory = directory
        self._orphans = {orphan.name for orphan in orphans}
        self._times: tuple[int, int] | None = None
        self._segment_files: list[tuple[int, str]] = []

    def look(self) -> None:
        """Bring the names up to date. Raises RecoveryNeededError if there is a `.cleaned` or `.swap` file."""
        times = self._times_now()
        if times == self._times:
            return
        self.present = set(self._directory.names())
        require_nothing_unfinished(self._directory, self.present)
        self._segment_files = sorted(
            (name.base_offset, str(name))
            for name in parse_file_names(self.present - self._orphans)
            if name.temporary is Temporary.NO and name.suffix is not Suffix.SNAPSHOT
        )
        self._times = times

    def between(self, first: int, last: int) -> list[str]:
        """Return the files of segments with a base offset from `first` to `last`, as they were at the last look."""
        start, end = bisect_left(self._segment_files, (first,)), bisect_left(self._segment_files, (last + 1,))
        return [name for _, name in self._segment_files[start:end]]

    def have_changed(self) -> None:
        """Count what the directory is now as known: this process has changed it, and `present` with it."""
        self._times = self._times_now()

    def _times_now(self) -> tuple[int, int]:
        status = os.fstat(self._directory.fd())
        return status.st_mtime_ns, status.st_ctime_ns


def replace_segments(
    partition: OpenDirectory | Path,
    staging: str,
    cleaned: CleanedSegment,
    lock_check: Callable[[], None],
    *,
    complete: StagedStatuses | None = None,
    names: NamesInPartition | None = None,
    after_step: Observer | None = None,
) -> None:
    """Replace the segments of one group with its staged files, durably, or change nothing.

    The caller swaps the groups of a manifest in ascending base offset. `lock_check` is `LogDirLock.check`.
    `complete` is what `carry_over` has returned. `names` are those in the directory, for all groups together.

    Raises before the first step, with nothing changed: RecoveryNeededError if there is a `.cleaned` or `.swap` file;
    LogChangedError if an old file differs from the plan, a file appeared between the old ones, the manifest is gone,
    a staged file was touched or the lock is lost; CorruptDataError if a staged file has another size.
    A step that fails raises RecoveryNeededError, which says whether the commit point was passed: *before*, *after* or
    *unknown*. If the very first step fails, nothing was changed and StorageError is raised.
    """
    with opened(partition) as directory:
        names = NamesInPartition(directory) if names is None else names
        names.look()
        _require_unchanged(directory, names, cleaned)
        _require_staged(directory, staging, cleaned, complete)
        lock_check()
        stale = stale_deleted_names(replaced_names(cleaned), names.present)
        removals: tuple[Step, ...] = (*(Remove(name) for name in stale), SyncDir()) if stale else ()
        steps = removals + replacement_steps(cleaned, staging)
        done: list[Step] = []

        def observe(step: Step) -> None:
            done.append(step)
            if after_step is not None:
                after_step(step)

        try:
            apply_steps(directory, steps, observe, present=names.present)
        except OSError as error:
            if not done:
                raise  # Nothing was changed, so there is nothing to recover. `OpenDirectory` raises StorageError.
            raise _unfinished_error(directory, cleaned.base_offset, steps, len(done), error) from error
        names.have_changed()


def require_unchanged(partition: OpenDirectory | Path, files: Iterable[FileIdentity]) -> None:
    """Raise LogChangedError if one of the files differs from the plan: device, inode, size or time."""
    with opened(partition) as directory:
        for identity in files:
            status = directory.status(identity.name)
            if status is None or not identity.is_of(status):
                problem = "was changed or replaced" if status is not None else "was deleted or renamed"
                raise LogChangedError(path=directory.path / identity.name, problem=f"{problem} since the plan was made")


def _require_unchanged(directory: OpenDirectory, names: NamesInPartition, cleaned: CleanedSegment) -> None:
    require_unchanged(directory, cleaned.replaces)
    # A broker would load a file between the first and the last segment of the group beside the new segment, and an
    # index of the first segment that is not in the plan as an index of the new log.
    known = {identity.name for identity in cleaned.replaces}
    new = {file.name for file in cleaned.files}
    last = max(name.base_offset for name in parse_file_names(known | new))
    for name in sorted({*names.between(cleaned.base_offset, last), *(new & names.present)} - known):
        raise LogChangedError(path=directory.path / name, problem="appeared since the plan was made")


def _require_staged(
    directory: OpenDirectory, staging: str, cleaned: CleanedSegment, complete: StagedStatuses | None
) -> None:
    assert STAGING_NAME.fullmatch(staging), staging
    if directory.size(f"{staging}/{manifest_format.NAME}") is None:
        raise LogChangedError(path=directory.path / staging / manifest_format.NAME, problem="was deleted or renamed")
    for file in cleaned.files:
        status = staged_status(directory, staging, file)
        if complete is not None and _fixed(status) != _fixed(complete[file.staged_as]):
            path = directory.path / staging / file.staged_as
            raise LogChangedError(path=path, problem="was changed or replaced after kcompact had written it")


def _fixed(status: os.stat_result) -> tuple[int, ...]:
    """Return what nobody can change in a file and put back: the time of its last change is the kernel's."""
    owner = (status.st_uid, status.st_gid, status.st_mode, status.st_nlink)
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, *owner)


def _unfinished_error(
    directory: OpenDirectory, base_offset: int, steps: Sequence[Step], done: int, error: OSError
) -> RecoveryNeededError:
    """Return the error for a swap of which `done` steps succeeded and the next one failed."""
    commit = commit_position(steps)
    if done < commit:
        where = "before its commit point: the old segments are valid, and their files are unchanged"
    elif done > commit:
        where = "after its commit point: the new segment is valid, and some old files are still there"
    else:
        where = "at its commit point: unknown whether the old or the new segment is valid; the files of both are there"
    return RecoveryNeededError(
        path=directory.path,
        problem=f"the swap of segment {base_offset} stopped {where} ({steps[done]}: {error.strerror})",
        hint=f"Remove the cause, then run `kcompact recover {shell_word(directory.path)}` before anything else uses "
        "this directory.",
    )
