"""Puts kept segments back in the place of those that replaced them, by a swap.

`verify_kept` finds out which groups are still as the cleaning has left them. `put_back` then puts back the checkpoint,
and group by group the files, the highest base offset first: a tombstone or a marker is there again before
the records that it deletes or aborts. Each group is a swap of its own. `recovery.recover` finishes or undoes it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from pathlib import Path

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.errors import KcompactError, LogChangedError, RecoveryNeededError, RefusedError
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, parse_offset_checkpoint
from kcompact.format.names import TopicPartition, base_offset_of, log_bases, log_name
from kcompact.log.directory import read_log
from kcompact.log.files import FileIdentity
from kcompact.log.lock import LogDirLock
from kcompact.readable import shell_word
from kcompact.swap.checkpoint import put_back_checkpoint, read_checkpoint
from kcompact.swap.identity import identity_of
from kcompact.swap.kept.manifest import (
    MANIFEST,
    KeptFile,
    KeptGroup,
    KeptPartition,
    UntouchedLog,
    not_as_kept,
    read_kept_checkpoint,
)
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.protection import require_project, require_unprotected
from kcompact.swap.recovery.leftovers import require_nothing_unfinished, staged_status
from kcompact.swap.replace import NamesInPartition, replace_segments
from kcompact.swap.staging import create_staging, discard, hand_over, take_back, write_manifest
from kcompact.swap.steps import Observer, SyncDir
from kcompact.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What `verify_kept` has found: the groups to put back, ascending, and the identity of each kept file of them.

    `checkpoint_offset` is the checkpoint to put back, None for no entry; `moves_checkpoint`: the present one differs.
    `checkpoint_file` is the file of the cleaner's checkpoints before the cleaning. `left_out` are the groups that
    cannot be put back, because a broker or a cleaning has changed them since; `moved_on` says what.
    """

    groups: tuple[KeptGroup, ...]
    identities: dict[str, FileIdentity]
    checkpoint_offset: int | None
    moves_checkpoint: bool
    checkpoint_file: bytes | None
    left_out: tuple[KeptGroup, ...] = ()
    moved_on: RefusedError | None = None

    @property
    def is_done(self) -> bool:
        """Whether nothing is to be put back."""
        return not self.groups and not self.moves_checkpoint

    @property
    def size_bytes(self) -> int:
        """The bytes of the files to put back."""
        return sum(file.size_bytes for group in self.groups for file in group.old)


def verify_kept(
    partition: OpenDirectory,
    kept: OpenDirectory,
    subject: KeptPartition,
    log_dir: OpenDirectory,
    check: Callable[[], None] = lambda: None,
) -> Verified:
    """Read every kept file and every new one, and compare the partition with what the cleaning has left.

    A group can be put back if it and all groups above it are as the cleaning has left them, or back already, and the
    segments that were not cleaned are as they were. The active one may have grown, and others may follow it. What
    supersedes, deletes or aborts a record of the group was in these segments, and was then not removed since.

    Raises, with nothing changed: CorruptDataError if a kept file is not what was kept, RefusedError if no group can be
    put back or the partition is another, RecoveryNeededError if a swap is unfinished. `check` may raise to stop.
    """
    present = partition.names()
    require_nothing_unfinished(partition, present)
    difference = subject.identity.difference_from(identity_of(partition, log_dir))
    if difference:
        raise _moved_on(partition.path, f"is another partition than that of {MANIFEST}: {difference}")
    checkpoint_file = read_kept_checkpoint(kept, subject)
    for log in subject.untouched:
        _require_untouched(partition, log)
    identities: dict[str, FileIdentity] = {}
    groups: list[KeptGroup] = []
    left_out: tuple[KeptGroup, ...] = ()
    moved_on = None
    logs = _logs_of_groups(subject, present)
    for number, group in reversed([*enumerate(subject.groups)]):
        kept_statuses = {file.name: _verified(kept, file, check) for file in group.old}
        if _is_back(partition, group, kept_statuses, present):
            continue
        moved_on = _changed_since(partition, group, present, logs[group.base_offset], check)
        if moved_on is not None:
            left_out = subject.groups[: number + 1]
            break
        groups.insert(0, group)
        identities |= {name: FileIdentity.of(name, status) for name, status in kept_statuses.items()}
    if moved_on is not None and not groups:
        raise moved_on
    now = read_checkpoint(log_dir).get(subject.topic_partition)
    wanted = _checkpoint_offset(checkpoint_file, subject.topic_partition, now)
    return Verified(
        groups=tuple(groups),
        identities=identities,
        checkpoint_offset=wanted,
        moves_checkpoint=wanted != now,
        checkpoint_file=checkpoint_file,
        left_out=left_out,
        moved_on=moved_on,
    )


def _require_untouched(partition: OpenDirectory, log: UntouchedLog) -> None:
    """Raise RefusedError if a segment that was not cleaned has changed since, unless it was only continued."""
    path, status = partition.path / log.name, partition.status(log.name)
    if status is None or not stat.S_ISREG(status.st_mode) or status.st_ino != log.inode:
        raise _moved_on(path, "was deleted or replaced")
    is_same = (status.st_size, status.st_mtime_ns) == (log.size_bytes, log.mtime_ns)
    if log.crc32c is None and not is_same:
        raise _moved_on(path, "was changed")
    if not is_same and partition.digest(log.name, size_bytes=log.size_bytes) != log.crc32c:
        raise _moved_on(path, "has another beginning")


def _checkpoint_offset(before: bytes | None, partition: TopicPartition, now: int | None) -> int | None:
    """Return the checkpoint to put back: that of before the cleaning, or the present one if it is not above it.

    What is put back is dirty from there on. Below it, it was clean.
    """
    offsets = {} if before is None else parse_offset_checkpoint(before, file=CLEANER_OFFSET_CHECKPOINT)
    offset = offsets.get(partition)
    return None if now is None or offset is None else min(now, offset)


def _verified(kept: OpenDirectory, file: KeptFile, check: Callable[[], None]) -> os.stat_result:
    """Return the status of a kept file. Raises CorruptDataError unless it is what was kept."""
    status = kept.status(file.name)
    if status is None or not file.is_of(status):
        problem = "is missing" if status is None else "has another size, time, owner or mode than when it was kept"
    elif kept.digest(file.name, check) != file.crc32c:
        problem = "has another content than when it was kept"
    else:
        return status
    raise not_as_kept(kept.path / file.name, problem)


def _is_back(
    partition: OpenDirectory, group: KeptGroup, kept_statuses: dict[str, os.stat_result], present: Collection[str]
) -> bool:
    """Return whether the old files of a group have their names, and no new file is beside them."""
    if any(file.name in present and file.name not in kept_statuses for file in group.new):
        return False
    statuses = ((partition.status(name), status) for name, status in kept_statuses.items())
    return all(now is not None and os.path.samestat(now, status) for now, status in statuses)


def _logs_of_groups(subject: KeptPartition, present: Collection[str]) -> dict[int, list[int]]:
    """Return the base offsets of the `.log` files that are present in the offsets of each group, by that of the group.

    The offsets of a group end at the next group, or at the next segment that was not cleaned.
    """
    starts = sorted(
        {group.base_offset for group in subject.groups} | {base_offset_of(log.name) for log in subject.untouched}
    )
    bases_by_group: dict[int, list[int]] = {start: [] for start in starts}
    for base in log_bases(present):
        if number := bisect_right(starts, base):
            bases_by_group[starts[number - 1]].append(base)
    return bases_by_group


def _changed_since(
    partition: OpenDirectory,
    group: KeptGroup,
    present: Collection[str],
    logs: Iterable[int],
    check: Callable[[], None],
) -> RefusedError | None:
    """Return what has changed since the cleaning in the offsets of a group; None if nothing has.

    `logs` are the base offsets of the `.log` files in these offsets.
    """
    new = {file.name for file in group.new}
    for file in group.old:
        if file.name not in new and file.name in present:
            return _moved_on(partition.path / file.name, "is there again")
    for name in map(log_name, logs):
        if name not in new:
            return _moved_on(partition.path / name, "is new")
    for staged in group.new:
        check()
        if staged.name not in present:
            return _moved_on(partition.path / staged.name, "is gone")
        if not partition.has_content_of(staged.name, staged):
            return _moved_on(partition.path / staged.name, "is not what the cleaning has written")
    return None


def _moved_on(path: Path, problem: str) -> RefusedError:
    return RefusedError(
        path=path,
        problem=f"{problem}: the partition has moved on since the cleaning",
        hint="Putting back the old segments of these offsets could lose or double records, so they were not put back. "
        "They are complete in the directory of --keep-replaced: keep it.",
    )


def put_back(
    partition: OpenDirectory,
    kept: OpenDirectory,
    subject: KeptPartition,
    verified: Verified,
    log_dir: OpenDirectory,
    lock: LogDirLock,
    *,
    check: Callable[[], None] = lambda: None,
    after_step: Observer | None = None,
) -> None:
    """Put back the checkpoint and the groups that `verify_kept` has returned. `check` may raise between two groups.

    Raises RefusedError with nothing changed, RecoveryNeededError if a swap stopped half-way; run again, it goes on.
    """
    lock.require_parent_of(partition.path, partition.fd())
    names = [file.name for group in verified.groups for file in group.new]
    require_unprotected(partition, names)
    require_project(partition, names)
    present = NamesInPartition(partition, read_log(partition.path).orphans)
    identity = identity_of(partition, log_dir)
    staging = create_staging(partition)
    try:
        lock.check()
        put_back_checkpoint(
            log_dir, subject.topic_partition, verified.checkpoint_offset, original=verified.checkpoint_file
        )
        for group in reversed(verified.groups):
            check()
            segment = _staged(partition, staging, kept, group, verified)
            write_manifest(partition, staging, (segment,), identity=identity, end_offset=None)
            complete = {file.staged_as: staged_status(partition, staging, file) for file in segment.files}
            hand_over(partition, staging)
            replace_segments(
                partition,
                staging,
                segment,
                partial(lock.check_beside, partition.path, partition.fd()),
                complete=complete,
                names=present,
                after_step=after_step,
            )
            take_back(partition, staging)
    except RecoveryNeededError:
        raise  # Recovery needs the staging directory.
    except Exception:
        with contextlib.suppress(KcompactError, OSError):
            discard(partition, staging)
        raise
    discard(partition, staging, after_step=after_step)


def _staged(
    partition: OpenDirectory, staging: str, kept: OpenDirectory, group: KeptGroup, verified: Verified
) -> CleanedSegment:
    """Link the old files of a group into the staging directory; return them as what replaces the new ones."""
    for file in group.old:
        name = f"{staging}/{file.name}"
        try:
            kept.link(file.name, partition, name)
        except OSError as error:
            raise RefusedError(
                path=kept.path / file.name,
                problem=f"cannot be linked into {partition.path}: {error.strerror}",
                hint="Nothing was replaced. Run as root, or as the user that owns these files (the broker's user).",
            ) from error
        status = partition.status(name)
        if status is None or FileIdentity.of(file.name, status) != verified.identities[file.name]:
            raise LogChangedError(path=kept.path / file.name, problem="was replaced after it was verified")
    apply_steps(partition, (SyncDir(staging),))
    return CleanedSegment(
        base_offset=group.base_offset,
        files=tuple(
            StagedFile(name=file.name, staged_as=file.name, size_bytes=file.size_bytes, crc32c=file.crc32c)
            for file in group.old
        ),
        replaces=tuple(_identities(partition, group)),
    )


def _identities(partition: OpenDirectory, group: KeptGroup) -> Iterator[FileIdentity]:
    for file in group.new:
        status = partition.status(file.name)
        if status is None:
            raise LogChangedError(path=partition.path / file.name, problem="was deleted after it was verified")
        yield FileIdentity.of(file.name, status)


def require_there(directory: Path) -> None:
    """Raise RefusedError if the partition directory of a manifest is not there."""
    if not directory.is_dir():
        raise RefusedError(
            path=directory,
            problem="is not there, so its kept segments cannot be put back",
            hint=f"Find out where the log directory is now: ls -d {shell_word(directory.parent)}",
        )
