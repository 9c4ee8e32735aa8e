"""Puts kept segments back in the place of those that replaced them, by a swap.

`verify_kept` finds out whether the partition is still as the cleaning has left it. `put_back` then puts back the
checkpoint, and group by group the files, the highest base offset first: a tombstone or a marker is there again before
the records that it deletes or aborts. Each group is a swap of its own. `recovery.recover` finishes or undoes it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.errors import CorruptDataError, KcompactError, LogChangedError, RecoveryNeededError, RefusedError
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, MAX_CHECKPOINT_BYTES
from kcompact.format.names import Suffix
from kcompact.log.directory import read_log
from kcompact.log.files import FileIdentity, read_file
from kcompact.log.lock import LogDirLock
from kcompact.readable import shell_word
from kcompact.swap.checkpoint import put_back_checkpoint, read_checkpoint
from kcompact.swap.kept import KeptFile, KeptGroup, KeptPartition
from kcompact.swap.leftovers import require_nothing_unfinished
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.protection import require_project, require_unprotected
from kcompact.swap.replace import replace_segments
from kcompact.swap.staging import create_staging, discard, hand_over, take_back, write_manifest
from kcompact.swap.steps import Observer, SyncDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What `verify_kept` has found: the groups to put back, ascending, and the identity of each kept file of them.

    `moves_checkpoint`: the checkpoint is that of the cleaning.
    """

    groups: tuple[KeptGroup, ...]
    identities: dict[str, FileIdentity]
    moves_checkpoint: bool

    @property
    def is_done(self) -> bool:
        """Whether everything is as it was before the cleaning."""
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

    Raises, with nothing changed: CorruptDataError if a kept file is not what was kept, RefusedError if the partition
    has moved on, RecoveryNeededError if a swap is unfinished. `check` may raise to stop.
    """
    present = partition.names()
    require_nothing_unfinished(partition, present)
    offset = read_checkpoint(log_dir, CLEANER_OFFSET_CHECKPOINT).get(subject.topic_partition)
    if offset not in (subject.end_offset, subject.checkpoint_offset):
        raise _moved_on(log_dir.path / CLEANER_OFFSET_CHECKPOINT, f"has {offset} for {subject.topic_partition}")
    _require_same_logs(partition, subject, present)
    identities: dict[str, FileIdentity] = {}
    groups = []
    for group in subject.groups:
        found = {file.name: _verified(kept, file, check) for file in group.old}
        if not _is_back(partition, group, found, present):
            _require_new(partition, group, present, check)
            groups.append(group)
            identities |= {name: FileIdentity.of(name, status) for name, status in found.items()}
    return Verified(groups=tuple(groups), identities=identities, moves_checkpoint=offset != subject.checkpoint_offset)


def _verified(kept: OpenDirectory, file: KeptFile, check: Callable[[], None]) -> os.stat_result:
    """Return the status of a kept file. Raises CorruptDataError unless it is what was kept."""
    status = kept.status(file.name)
    path = kept.path / file.name
    if status is None or not file.is_of(status):
        problem = "is missing" if status is None else "has another size, time, owner or mode than when it was kept"
    elif kept.digest(file.name, check) != file.crc32c:
        problem = "has another content than when it was kept"
    else:
        return status
    raise CorruptDataError(
        file=path, problem=problem, hint="Nothing was changed. The partition is as the cleaning has left it."
    )


def _require_same_logs(partition: OpenDirectory, subject: KeptPartition, present: Collection[str]) -> None:
    """Raise RefusedError if there is a `.log` that neither was there before the cleaning nor comes from it."""
    for name, size_bytes, mtime_ns in subject.untouched:
        status = partition.status(name)
        if status is None or (status.st_size, status.st_mtime_ns) != (size_bytes, mtime_ns):
            raise _moved_on(partition.path / name, "was changed or deleted, for example by a broker that appended")
    known = {name for name, _, _ in subject.untouched}
    known |= {file.name for group in subject.groups for file in group.old}
    for name in sorted(present):
        if name.endswith(Suffix.LOG) and name not in known:
            raise _moved_on(partition.path / name, "is new")


def _is_back(
    partition: OpenDirectory, group: KeptGroup, found: dict[str, os.stat_result], present: Collection[str]
) -> bool:
    """Return whether the old files of a group have their names, and no new file is beside them."""
    if any(file.name in present and file.name not in found for file in group.new):
        return False
    statuses = ((partition.status(name), status) for name, status in found.items())
    return all(now is not None and os.path.samestat(now, status) for now, status in statuses)


def _require_new(
    partition: OpenDirectory, group: KeptGroup, present: Collection[str], check: Callable[[], None]
) -> None:
    new = {file.name for file in group.new}
    for file in group.old:
        if file.name not in new and file.name in present:
            raise _moved_on(partition.path / file.name, "is there again")
    for staged in group.new:
        check()
        if not partition.has_content_of(staged.name, staged):
            raise _moved_on(partition.path / staged.name, "is not what the cleaning has written")


def _moved_on(path: Path, problem: str) -> RefusedError:
    return RefusedError(
        path=path,
        problem=f"{problem}: the partition has moved on since the cleaning",
        hint="Nothing was changed. Putting the old segments back now could lose or double records. They are still "
        "complete in the directory of --keep-replaced.",
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
    orphans = read_log(partition.path).orphans
    original = None
    if subject.had_checkpoint:
        path = kept.path / CLEANER_OFFSET_CHECKPOINT
        original = read_file(path, max_bytes=MAX_CHECKPOINT_BYTES, dir_fd=kept.fd())
    staging = create_staging(partition)
    try:
        lock.check()
        put_back_checkpoint(log_dir, subject.topic_partition, subject.checkpoint_offset, original=original)
        for group in reversed(verified.groups):
            check()
            segment = _staged(partition, staging, kept, group, verified)
            write_manifest(partition, staging, (segment,), topic_partition=subject.topic_partition, end_offset=None)
            seals = hand_over(partition, staging, (segment,), linked=True)
            replace_segments(
                partition, staging, segment, lock.check, orphans=orphans, seals=seals, after_step=after_step
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
