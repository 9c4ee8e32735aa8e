"""The only module that renames or deletes a file: it puts cleaned segments in the place of the old ones.

**The idea.** A directory has no transactions, but it has renames (each happens entirely or not at all) and
`fsync` (everything before it is on the disk). Kafka's loader looks at file suffixes when it starts and
either finishes or undoes what it finds. So a swap is a walk through states that the loader understands, one
group of segments at a time, with an `fsync` wherever the next step would be dangerous if the disk did it
first.

    staging/0.log ─▶ 0.log.cleaned ─▶ 0.log.swap ─────────────────────▶ 0.log
                                              0.log ─▶ 0.log.deleted ───────────▶ (gone)
                  ①               ②          ③                       ④         ⑤
                     recovery goes back  │  recovery goes forward

① `.cleaned` is a guard: while one is left, the loader throws away it and every `.swap` beside it, so these renames
may reach the disk in any order. ② is the commit point: the sync after the last `.swap`. From then on the new
segment is what counts. ③ the old files step aside, the logs first, then the rest, each with a sync: an old log that
stays beside the new one puts offsets into the log twice, and one that stays while the disk has lost its `.txnindex`
is loaded without; the loader notices neither. ④ the new files take their names, the `.log` first and by itself: as
long as there is a `.log.swap`, the loader deletes whatever has a name in its range, be it the new `.txnindex`. All
this must be on the disk before the next group starts, as the loader treats all `.swap` files together as one range.
⑤ only now is anything deleted.

**Example.** Segments 0 and 500 become one segment 0, of two files for brevity:

    rename .kcompact-7f/0.index 0.index.cleaned     rename 0.index 0.index.deleted
    rename .kcompact-7f/0.log 0.log.cleaned         rename 500.index 500.index.deleted
    sync, sync .kcompact-7f                         sync
    rename 0.index.cleaned 0.index.swap             rename 0.log.swap 0.log
    rename 0.log.cleaned 0.log.swap                 sync
    sync                     # the commit point     rename 0.index.swap 0.index
    rename 0.log 0.log.deleted                      sync
    rename 500.log 500.log.deleted                  remove every .deleted
    sync                                            sync

A process that dies leaves a state between two lines; a power cut may also leave any part of the renames
since the last sync. `recover` reads the manifest in the staging directory, sees which state it is, checks
the new files' digests, and goes back or forward with the same kind of steps. `docs/swap.md` has the table.

**What we do not do.** Stage as `.cleaned` (one left over makes the loader drop a committed `.swap`). Have
two groups under way. Copy where a rename fails. Write into a file of the log. Try a failed `fsync` again:
what it lost is lost. Delete when in doubt. Rule: LocalLog.replaceSegments, LogLoader.load,
LogLoader.removeTempFilesAndCollectSwapFiles.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

from crc32c import crc32c

from kcompact import manifest as manifest_format
from kcompact.errors import (
    CorruptCheckpointError,
    CorruptDataError,
    LogChangedError,
    RecoveryNeededError,
    RefusedError,
    StorageError,
    UnsupportedError,
)
from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    MAX_CHECKPOINT_BYTES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    build_leader_epochs,
    build_offset_checkpoint,
    leader_epochs_from,
    parse_leader_epochs,
    parse_offset_checkpoint,
    updated_offset_checkpoint,
)
from kcompact.format.names import Suffix, Temporary, TopicPartition, parse_file_name
from kcompact.log import STAGING_NAME, FileIdentity, read_file
from kcompact.manifest import Group, Manifest
from kcompact.write import StagedFile

_CLEANED, _SWAP, _DELETED = Temporary.CLEANED.value, Temporary.SWAP.value, Temporary.DELETED.value
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# Signatures over a file's own content and attributes: the kernel makes them, and a copy would be wrong.
_XATTRS_NOT_CARRIED = frozenset({"security.ima", "security.evm"})


# --- A swap as a list of steps --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rename:
    """Give a file another name, in the same file system. A file that already has that name is an error."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"rename {self.source} {self.target}"


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete a file."""

    name: str

    def __str__(self) -> str:
        return f"remove {self.name}"


@dataclass(frozen=True, slots=True)
class RemoveDir:
    """Delete an empty directory."""

    name: str

    def __str__(self) -> str:
        return f"rmdir {self.name}"


@dataclass(frozen=True, slots=True)
class SyncDir:
    """Wait until the directory's entries are on the disk. The empty name is the partition directory."""

    name: str = ""

    def __str__(self) -> str:
        return f"sync {self.name}".rstrip()


Step = Rename | Remove | RemoveDir | SyncDir
"""One operation on the disk, as a value. Names are relative to the partition directory."""

Observer = Callable[[Step], None]
"""Called after each step."""


class Replacement(Protocol):
    """Staged files and the files they replace: a `CleanedSegment`, or a `Group` read from a manifest."""

    @property
    def base_offset(self) -> int: ...
    @property
    def files(self) -> tuple[StagedFile, ...]: ...
    @property
    def replaces(self) -> tuple[FileIdentity, ...]: ...


def steps(cleaned: Replacement, staging: str) -> tuple[Step, ...]:
    """Return the steps that put the staged files of one group in the place of the old ones.

    In the order of the essay above. Of the old `.snapshot` files only those in `replaces` go.
    Rule: LocalLog.replaceSegments; the syncs and the guard of `.cleaned` are ours.
    """
    new = _log_last(file.name for file in cleaned.files)
    old = _old_names(cleaned)
    staged_as = {file.name: f"{staging}/{file.staged_as}" for file in cleaned.files}
    return (
        *(Rename(staged_as[name], name + _CLEANED) for name in new),
        SyncDir(),
        SyncDir(staging),
        *(Rename(name + _CLEANED, name + _SWAP) for name in new),
        SyncDir(),  # The commit point.
        *_set_aside_and_finish(old, new, old),
    )


def _set_aside_and_finish(live: Sequence[str], swapped: Sequence[str], old: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps after the commit point; recovery goes on with those that are left."""
    old_logs, old_others = _logs_and_others(live)
    new_logs, new_others = _logs_and_others(swapped)
    return (
        *(Rename(name, name + _DELETED) for name in old_logs),
        SyncDir(),  # Without it: an old segment that is loaded without its `.txnindex`.
        *(Rename(name, name + _DELETED) for name in old_others),
        SyncDir(),  # Without it and the one before: an old segment inside the new one's range.
        *(Rename(name + _SWAP, name) for name in new_logs),
        SyncDir(),  # Without it: while there is a `.log.swap`, the loader deletes the new `.txnindex`.
        *(Rename(name + _SWAP, name) for name in new_others),
        SyncDir(),  # Without it: two groups in `.swap`, and the loader deletes what is between.
        *(Remove(name + _DELETED) for name in old),
        SyncDir(),
    )


def _log_last(names: Iterable[str]) -> tuple[str, ...]:
    order = (Suffix.INDEX.value, Suffix.TIME_INDEX.value, Suffix.TXN_INDEX.value, Suffix.LOG.value)
    return tuple(sorted(names, key=lambda name: order.index(Path(name).suffix)))


def _logs_and_others(names: Sequence[str]) -> tuple[list[str], list[str]]:
    logs = [name for name in names if name.endswith(Suffix.LOG)]
    return logs, [name for name in names if name not in logs]


def _old_names(cleaned: Replacement) -> tuple[str, ...]:
    """Return the replaced names, segment by segment: `.log`, its indexes, its snapshot."""
    order = tuple(Suffix)
    parsed = (parse_file_name(identity.name) for identity in cleaned.replaces)
    known = sorted((name.base_offset, order.index(name.suffix), str(name)) for name in parsed if name is not None)
    return tuple(name for _, _, name in known)


# --- The one place that touches the disk ----------------------------------------------------------------


class _Directory:
    """A partition directory held open. Names are resolved from it and through no symbolic link."""

    def __init__(self, path: Path, *, follow: bool = False) -> None:
        self.path = path
        try:
            self._fds = {"": os.open(path, _OPEN_DIRECTORY & ~(os.O_NOFOLLOW if follow else 0))}
        except OSError as error:
            problem = "a symbolic link or not a directory" if error.errno == errno.ENOTDIR else error.strerror
            raise RefusedError(path=path, problem=f"cannot be opened: {problem}") from error

    def __enter__(self) -> _Directory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in self._fds.values():
            os.close(fd)
        if isinstance(error, OSError):
            raise StorageError(path=self.path, problem=error) from error

    def fd(self, name: str = "") -> int:
        if name not in self._fds:
            self._fds[name] = os.open(name, _OPEN_DIRECTORY, dir_fd=self._fds[""])
        return self._fds[name]

    def at(self, name: str) -> tuple[int, str]:
        """Return the open directory that holds the name, and the name in it."""
        parent, _, leaf = name.rpartition("/")
        return self.fd(parent), leaf

    def names(self, name: str = "") -> frozenset[str]:
        return frozenset(os.listdir(self.fd(name)))  # noqa: PTH208 - a Path has no descriptor

    def open(self, name: str, flags: int, mode: int = 0) -> int:
        fd, leaf = self.at(name)
        return os.open(leaf, flags | _OPEN_FILE, mode, dir_fd=fd)

    def status(self, name: str) -> os.stat_result | None:
        fd, leaf = self.at(name)
        try:
            return os.stat(leaf, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def size(self, name: str) -> int | None:
        """Return the size of a regular file, None for anything else."""
        status = self.status(name)
        return None if status is None or not stat.S_ISREG(status.st_mode) else status.st_size

    def digest(self, name: str) -> int:
        """Return the CRC-32C of a file as the disk has it: pages that are only in memory prove nothing."""
        fd = self.open(name, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            crc = 0
            while block := os.read(fd, 4 << 20):
                crc = int(crc32c(block, crc))
            return crc
        finally:
            os.close(fd)

    def holds(self, name: str, staged: StagedFile) -> bool:
        """Return whether the file of this name is the staged one, byte for byte."""
        return self.size(name) == staged.size_bytes and self.digest(name) == staged.crc32c

    def do(self, step: Step) -> None:
        match step:
            case Rename(source, target):
                source_fd, source_leaf = self.at(source)
                target_fd, target_leaf = self.at(target)
                if self.status(target) is not None:
                    raise FileExistsError(errno.EEXIST, "a file of that name is in the way", target)
                os.rename(source_leaf, target_leaf, src_dir_fd=source_fd, dst_dir_fd=target_fd)
            case Remove(name):
                fd, leaf = self.at(name)
                os.unlink(leaf, dir_fd=fd)
            case RemoveDir(name):
                os.rmdir(name, dir_fd=self.fd())
                if name in self._fds:
                    os.close(self._fds.pop(name))
            case SyncDir(name):
                os.fsync(self.fd(name))


def apply(partition_dir: Path, steps: Iterable[Step], *, after_step: Observer | None = None) -> None:
    """Do the steps one after the other; stop at the first that fails, with StorageError."""
    with _Directory(partition_dir) as directory:
        _apply(directory, steps, after_step)


def _apply(directory: _Directory, steps: Iterable[Step], after_step: Observer | None) -> None:
    for step in steps:
        try:
            directory.do(step)
        except OSError as error:
            error.add_note(str(step))
            raise
        if after_step is not None:
            after_step(step)


# --- Staging --------------------------------------------------------------------------------------------


def create_staging(partition_dir: Path) -> str:
    """Make this round's staging directory in the partition directory and return its name.

    Hidden, new, mode 0700, on the same file system. The broker ignores sub-directories. Raises RefusedError
    if the partition directory is a symbolic link or, for root, one that others may write to.
    """
    with _Directory(partition_dir) as directory:
        parent = os.fstat(directory.fd())
        if os.geteuid() == 0 and parent.st_mode & 0o022:
            raise RefusedError(
                path=partition_dir,
                problem="other users may write to this directory, so root will not work in it",
                hint="Run as the directory's owner, or take the write permission of group and others away.",
            )
        name = f".kcompact-{secrets.token_hex(8)}"
        try:
            os.mkdir(name, 0o700, dir_fd=directory.fd())
        except OSError as error:
            raise RefusedError(path=partition_dir, problem=f"cannot be written to: {error.strerror}") from error
        if os.fstat(directory.fd(name)).st_dev != parent.st_dev:
            _apply(directory, (RemoveDir(name),), None)
            raise RefusedError(path=partition_dir / name, problem="is not on the partition's file system")
        # Root may be interrupted; whoever owns the partition must be able to recover.
        _give_to_owner(directory, directory.fd(name))
        return name


def _give_to_owner(directory: _Directory, fd: int) -> None:
    if os.geteuid() == 0:
        owner = os.fstat(directory.fd())
        try:
            os.fchown(fd, owner.st_uid, owner.st_gid)
        except OSError as error:
            problem = f"root cannot give a file to the owner: {error.strerror}"
            raise RefusedError(path=directory.path, problem=problem) from error


def carry_over(partition_dir: Path, staging: str, cleaned: Replacement) -> None:
    """Give the staged files what the old ones had: owner, group, mode, extended attributes, time.

    Each file takes after the group's first old file of its kind, or else its first `.log`. The modification
    time is that of the group's last old `.log`, in whole milliseconds, for all but `.txnindex`. Synced.
    Raises RefusedError if anything cannot be carried over: the broker takes a log directory with one
    unreadable file offline. Rule: Cleaner.cleanSegments, LogSegment.setLastModified.
    """
    old = _old_names(cleaned)
    first_log = next(name for name in old if name.endswith(Suffix.LOG))
    with _Directory(partition_dir) as directory:
        for file in cleaned.files:
            suffix = Path(file.name).suffix
            model = next((name for name in old if name.endswith(suffix)), first_log)
            try:
                _dress(directory, f"{staging}/{file.staged_as}", model)
                _finish_staged(
                    directory,
                    f"{staging}/{file.staged_as}",
                    mtime_ns=None if suffix == Suffix.TXN_INDEX else modified_ns(cleaned),
                )
            except OSError as error:
                raise RefusedError(
                    path=partition_dir / model,
                    problem=f"its owner, mode or attributes cannot be carried over: {error.strerror}",
                    hint="Nothing was changed. Run as the user that owns these files (the broker's user).",
                ) from error


def modified_ns(cleaned: Replacement) -> int:
    """Return the modification time of the new files: that of the last old `.log`, in whole milliseconds.

    Rule: `Cleaner.cleanSegments`; retention and lag look at it where records have no timestamps.
    """
    last_log = max(file.name for file in cleaned.replaces if file.name.endswith(Suffix.LOG))
    mtime_ns = next(file.mtime_ns for file in cleaned.replaces if file.name == last_log)
    return mtime_ns // 1_000_000 * 1_000_000


def _dress(directory: _Directory, name: str, model: str) -> None:
    source = directory.open(model, os.O_RDONLY)
    try:
        target = directory.open(name, os.O_RDONLY)
        try:
            wanted, actual = os.fstat(source), os.fstat(target)
            if (wanted.st_uid, wanted.st_gid) != (actual.st_uid, actual.st_gid):
                os.fchown(target, wanted.st_uid, wanted.st_gid)
            os.fchmod(target, stat.S_IMODE(wanted.st_mode))
            _copy_xattrs(source, target)
            actual = os.fstat(target)
            if (wanted.st_uid, wanted.st_gid, wanted.st_mode) != (
                actual.st_uid,
                actual.st_gid,
                actual.st_mode,
            ):
                raise PermissionError(errno.EPERM, "the file system did not take them")
        finally:
            os.close(target)
    finally:
        os.close(source)


def _copy_xattrs(source: int, target: int) -> None:
    wanted, actual = _xattrs(source), _xattrs(target)
    for name in actual.keys() - wanted.keys():
        os.removexattr(target, name)  # Such as an ACL that the directory gave to the new file.
    for name, value in wanted.items():
        if actual.get(name) != value:
            os.setxattr(target, name, value)


def _xattrs(fd: int) -> dict[str, bytes]:
    try:
        names = os.listxattr(fd)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise
    return {name: os.getxattr(fd, name) for name in names if name not in _XATTRS_NOT_CARRIED}


def _finish_staged(directory: _Directory, name: str, *, mtime_ns: int | None) -> None:
    fd = directory.open(name, os.O_RDONLY)
    try:
        if mtime_ns is not None:
            os.utime(fd, ns=(mtime_ns, mtime_ns))
        os.fsync(fd)
    finally:
        os.close(fd)


# --- The manifest: what recovery needs to know ----------------------------------------------------------


def write_manifest(
    partition_dir: Path,
    staging: str,
    segments: Sequence[Replacement],
    *,
    topic_partition: TopicPartition,
    end_offset: int | None,
) -> None:
    """Write and sync the manifest of the groups that are completely staged, then the directories.

    Every `replace` needs its group in the manifest on the disk. A round that stages in waves writes it
    again for each wave, with `end_offset` None but for the last. Never while a swap is unfinished.
    """
    groups = tuple(
        Group(base_offset=one.base_offset, files=tuple(one.files), replaces=tuple(one.replaces)) for one in segments
    )
    manifest = Manifest(topic_partition=topic_partition, end_offset=end_offset, pid=os.getpid(), groups=groups)
    problem = manifest_format.inconsistency(manifest)
    assert problem is None, problem
    content = manifest_format.encode(manifest)
    if len(content) > manifest_format.MAX_BYTES:
        raise RefusedError(path=partition_dir, problem=f"too many segments: a manifest of {len(content):,} bytes")
    with _Directory(partition_dir) as directory:
        _write_file(directory, f"{staging}/{manifest_format.NAME}", content, mode=0o600)
        _apply(directory, (SyncDir(),), None)  # The staging directory itself.


def _write_file(directory: _Directory, name: str, content: bytes, *, mode: int, model: str | None = None) -> None:
    """Write a file in whole or not at all, in the place of one of that name: `.tmp`, sync, rename, sync.

    Owner, mode and attributes are those of `model`; without one the directory's owner and `mode`.
    Rule: CheckpointFile.write, Utils.atomicMoveWithFallback.
    """
    parent, leaf = directory.at(name)
    temporary = f"{name}.tmp"
    if directory.status(temporary) is not None:
        directory.do(Remove(temporary))  # Of a write that was interrupted.
    fd = directory.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        if model is None:
            _give_to_owner(directory, fd)
            os.fchmod(fd, mode)  # Whatever our umask is.
        else:
            _dress(directory, temporary, model)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(f"{leaf}.tmp", leaf, src_dir_fd=parent, dst_dir_fd=parent)
    os.fsync(parent)


def _read_manifest(directory: _Directory, staging: str) -> Manifest | None:
    """Return the manifest of a staging directory, None if it has none. Raises CorruptCheckpointError."""
    name = f"{staging}/{manifest_format.NAME}"
    if directory.status(name) is None:
        return None
    path = directory.path / name
    size = directory.size(name)
    if size is None or size > manifest_format.MAX_BYTES:
        raise CorruptCheckpointError(file=path, problem="not a regular file of reasonable size")
    with os.fdopen(directory.open(name, os.O_RDONLY), "rb") as file:
        content = file.read(manifest_format.MAX_BYTES + 1)
    try:
        return manifest_format.decode(content)
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpointError(file=path, problem=f"not a manifest of this version: {error}") from error


# --- The swap -------------------------------------------------------------------------------------------


def replace(
    partition_dir: Path,
    staging: str,
    cleaned: Replacement,
    lock_check: Callable[[], None],
    *,
    after_step: Observer | None = None,
) -> None:
    """Put one staged group in the place of the segments it replaces, durably, or change nothing.

    Groups come in ascending base offset, each in the manifest. `lock_check` is `LogDirLock.check`. Before
    the first step: RecoveryNeededError if any `.cleaned` or `.swap` is in sight, LogChangedError if an old
    file is not as it was planned, a file appeared among them, or the lock is lost; nothing is changed then.
    A step that fails raises RecoveryNeededError, which says whether the commit point was passed: *before*,
    *after* or *unknown*; if it is the very first one, StorageError.
    """
    with _Directory(partition_dir) as directory:
        present = directory.names()
        _require_nothing_unfinished(directory, present)
        _require_unchanged(directory, present, cleaned)
        _require_staged(directory, staging, cleaned)
        lock_check()
        # A broker that stopped within a minute of cleaning leaves `.deleted` files; it deletes them when it
        # starts.
        stale = [name + _DELETED for name in _old_names(cleaned) if name + _DELETED in present]
        sweep: tuple[Step, ...] = (*(Remove(name) for name in stale), SyncDir()) if stale else ()
        todo = sweep + steps(cleaned, staging)
        done: list[Step] = []

        def observe(step: Step) -> None:
            done.append(step)
            if after_step is not None:
                after_step(step)

        try:
            _apply(directory, todo, observe)
        except OSError as error:
            if not done:
                raise  # Nothing was changed, nothing is to be recovered: a StorageError like any other.
            raise _stopped(directory, cleaned.base_offset, todo, len(done), error) from error


def _require_nothing_unfinished(directory: _Directory, present: Collection[str]) -> None:
    unfinished = _unfinished(present)
    if unfinished:
        raise RecoveryNeededError(
            path=directory.path,
            problem="another swap is unfinished",
            files=unfinished,
            hint="Run `kcompact recover` first.",
        )


def _unfinished(present: Iterable[str]) -> list[str]:
    """Return every `.cleaned` and `.swap`, also of names that are not Kafka's: its loader reads those too."""
    return sorted(name for name in present if name.endswith((_CLEANED, _SWAP)))


def require_unchanged(partition_dir: Path, files: Iterable[FileIdentity]) -> None:
    """Raise LogChangedError if one of the files is not as it was when the round was planned."""
    with _Directory(partition_dir) as directory:
        _require_as_planned(directory, files)


def _require_as_planned(directory: _Directory, files: Iterable[FileIdentity]) -> None:
    for identity in files:
        status = directory.status(identity.name)
        if status is None or FileIdentity.of(identity.name, status) != identity:
            problem = "was changed or replaced" if status is not None else "is gone"
            raise LogChangedError(path=directory.path / identity.name, problem=f"{problem} since the round was planned")


def _require_unchanged(directory: _Directory, present: Collection[str], cleaned: Replacement) -> None:
    _require_as_planned(directory, cleaned.replaces)
    # What lies between the group's first and last segment and is not replaced would be read beside the new
    # segment, and an index of the first one would be taken for the new log's.
    known = {identity.name for identity in cleaned.replaces}
    last = max(name.base_offset for name in map(parse_file_name, known) if name is not None)
    for name in present:
        parsed = parse_file_name(name)
        if parsed is None or parsed.temporary is not Temporary.NO or parsed.suffix is Suffix.SNAPSHOT:
            continue
        if cleaned.base_offset <= parsed.base_offset <= last and name not in known:
            raise LogChangedError(path=directory.path / name, problem="appeared since the round was planned")


def _require_staged(directory: _Directory, staging: str, cleaned: Replacement) -> None:
    assert STAGING_NAME.fullmatch(staging), staging
    if directory.size(f"{staging}/{manifest_format.NAME}") is None:
        raise LogChangedError(path=directory.path / staging / manifest_format.NAME, problem="is gone")
    for file in cleaned.files:
        size = directory.size(f"{staging}/{file.staged_as}")
        if size != file.size_bytes:
            raise CorruptDataError(
                file=directory.path / staging / file.staged_as,
                problem=f"staged with {file.size_bytes} bytes, now has {size}",
            )


def _stopped(
    directory: _Directory, base_offset: int, todo: Sequence[Step], done: int, error: OSError
) -> RecoveryNeededError:
    swapped = next(place for place, step in enumerate(todo) if isinstance(step, Rename) and step.target.endswith(_SWAP))
    commit = todo.index(SyncDir(), swapped)
    if done < commit:
        where = "before its commit point: the log is as it was"
    elif done > commit:
        where = "after its commit point: the new segment counts, the old files are not all gone"
    else:
        where = "at its commit point: unknown whether the old or the new segment counts; both are there"
    return RecoveryNeededError(
        path=directory.path,
        problem=f"the swap of segment {base_offset} stopped {where} ({todo[done]}: {error.strerror})",
        hint="Run `kcompact recover` before anything else uses this directory.",
    )


def discard(partition_dir: Path, staging: str, *, after_step: Observer | None = None) -> None:
    """Remove this round's staging directory and nothing else; nothing to do if it is gone.

    Raises RecoveryNeededError, and removes nothing, while a swap is unfinished: its manifest is needed to
    recover.
    """
    assert STAGING_NAME.fullmatch(staging), staging
    with _Directory(partition_dir) as directory:
        present = directory.names()
        if staging not in present:
            return
        _require_nothing_unfinished(directory, present)
        manifest = _rounds(directory, (staging,))[staging]
        if manifest is not None and _under_way(directory, staging, manifest, present):
            raise RecoveryNeededError(path=partition_dir, problem="replaced files are not all deleted yet")
        _apply(directory, _discard_steps(directory, staging), after_step)


def _discard_steps(directory: _Directory, staging: str) -> tuple[Step, ...]:
    inside = sorted(directory.names(staging))
    return (*(Remove(f"{staging}/{name}") for name in inside), RemoveDir(staging), SyncDir())


# --- Retention ------------------------------------------------------------------------------------------


def removal_steps(names: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that delete the files of one segment: set aside, the `.log` first, and then removed.

    A segment without its `.log` is none, and what is left of it goes when a broker starts, so stopping anywhere leaves
    a whole log. Rule: LocalLog.deleteSegmentFiles.
    """
    return (
        *(Rename(name, name + _DELETED) for name in sorted(names, key=lambda name: not name.endswith(Suffix.LOG))),
        SyncDir(),
        *(Remove(name + _DELETED) for name in names),
        SyncDir(),
    )


def remove_segment(partition_dir: Path, files: Sequence[FileIdentity], lock_check: Callable[[], None]) -> None:
    """Delete one segment, the oldest of the log, with its snapshot. Raises LogChangedError if a file was changed."""
    with _Directory(partition_dir) as directory:
        _require_nothing_unfinished(directory, directory.names())
        _require_as_planned(directory, files)
        lock_check()
        stale = [file.name + _DELETED for file in files if directory.status(file.name + _DELETED) is not None]
        _apply(directory, (*(Remove(name) for name in stale), *removal_steps([file.name for file in files])), None)


def start_leader_epochs_at(partition_dir: Path, start_offset: int) -> None:
    """Let `leader-epoch-checkpoint` start where the log starts after its first segments were deleted.

    Rule: UnifiedLog.maybeIncrementLogStartOffset, LeaderEpochFileCache.truncateFromStart.
    """
    with _Directory(partition_dir) as directory:
        if directory.size(LEADER_EPOCH_CHECKPOINT) is None:
            return
        path = partition_dir / LEADER_EPOCH_CHECKPOINT
        entries = parse_leader_epochs(read_file(path), file=str(path))
        content = build_leader_epochs(leader_epochs_from(entries, start_offset))
        _write_file(directory, LEADER_EPOCH_CHECKPOINT, content, mode=0o644, model=LEADER_EPOCH_CHECKPOINT)


# --- A copy in another directory ------------------------------------------------------------------------


def place_new(target: Path, cleaned: Replacement) -> None:
    """Give the staged files of one group their names, in a new directory that nobody reads yet."""
    with _Directory(target) as directory:
        renamed = [Rename(file.staged_as, file.name) for file in cleaned.files if file.staged_as != file.name]
        _apply(directory, renamed, None)


def publish(unfinished: Path, final: Path) -> None:
    """Give a complete directory its name, durably; both have the same parent. Raises RefusedError if it is taken."""
    with _Directory(unfinished) as directory:
        _apply(directory, (SyncDir(),), None)
    with _Directory(final.parent, follow=True) as parent:
        try:
            _apply(parent, (Rename(unfinished.name, final.name), SyncDir()), None)
        except FileExistsError:
            raise RefusedError(path=final, problem="exists already") from None


# --- The checkpoint -------------------------------------------------------------------------------------

_CHECKPOINT = threading.Lock()
"""The partitions of a log directory share the file, and may be cleaned side by side."""


def write_checkpoint(
    log_dir: Path, topic_partition: TopicPartition, offset: int, *, name: str = CLEANER_OFFSET_CHECKPOINT
) -> None:
    """Set the offset of one partition in a checkpoint, the cleaner's if not told otherwise; other entries are kept.

    The last act of a round: a checkpoint ahead of the log would bring deleted keys back, one behind costs
    work. Owner and mode stay; a new file takes after the other checkpoints. Raises CorruptCheckpointError,
    and touches nothing, if the present file is malformed. Rule: LogCleanerManager.updateCheckpoints,
    CheckpointFile.write.
    """
    with _CHECKPOINT, _Directory(log_dir, follow=True) as directory:
        content = build_offset_checkpoint(
            updated_offset_checkpoint(_read_checkpoint(directory, name), topic_partition, offset)
        )
        models = (
            name,
            CLEANER_OFFSET_CHECKPOINT,
            RECOVERY_POINT_CHECKPOINT,
            REPLICATION_OFFSET_CHECKPOINT,
            LOG_START_OFFSET_CHECKPOINT,
        )
        model = next((one for one in models if directory.size(one) is not None), None)
        _write_file(directory, name, content, mode=0o644, model=model)


def _read_checkpoint(directory: _Directory, name: str) -> dict[TopicPartition, int]:
    if directory.status(name) is None:
        return {}
    path = directory.path / name
    size = directory.size(name)
    if size is None or size > MAX_CHECKPOINT_BYTES:
        raise CorruptCheckpointError(file=path, problem="not a regular file of reasonable size")
    with os.fdopen(directory.open(name, os.O_RDONLY), "rb") as file:
        return parse_offset_checkpoint(file.read(), file=str(path))


# --- Recovery -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What recovery does with one group: `steps` to go "forward" or "back", or why it must "stop"."""

    direction: str
    steps: tuple[Step, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What recovery did: the base offset of the group that it finished or undid, and the rest.

    `left_behind` are `.deleted` files that are not ours; the broker deletes them when it starts.
    """

    finished: int | None = None
    undone: int | None = None
    checkpoint: int | None = None
    removed_staging: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.removed_staging)


def settle(
    group: Replacement,
    present: Collection[str],
    *,
    is_new: Callable[[str, StagedFile], bool],
    is_old: Callable[[str, FileIdentity], bool],
) -> Settlement:
    """Return how to end the swap of a group that is under way, from the names in the partition directory.

    `is_new` tells whether a file is the staged one, by its digest; `is_old` whether it is the replaced one,
    by its identity. Every delete pass is synced before the next rename pass, and stopping after any step
    leaves a state that is settled in the same direction. Rule: LogLoader.removeTempFilesAndCollectSwapFiles
    and load, but for two things: the content of a `.swap` counts here, and where Kafka would lose the old
    files we stop.
    """
    new, old = _log_last(file.name for file in group.files), _old_names(group)
    identities = {file.name: file for file in group.replaces}
    cleaned = [name for name in new if name + _CLEANED in present]
    swapped = [name for name in new if name + _SWAP in present]

    if cleaned:
        if all(name in present and is_old(name, identities[name]) for name in old):
            return Settlement(direction="back", steps=_drop(swapped, cleaned))
        return Settlement(direction="stop", problem="the new files are not committed and old ones are missing")

    if all(is_new(file.name + (_SWAP if file.name in swapped else ""), file) for file in group.files):
        # A live file is an old one as long as its successor is still in `.swap`, or if it has none.
        live = [name for name in old if name in present and (name in swapped or name not in new)]
        if any(name + _DELETED in present or not is_old(name, identities[name]) for name in live):
            return Settlement(direction="stop", problem="an old file was changed after the swap began")
        aside = [name for name in old if name in live or name + _DELETED in present]
        return Settlement(direction="forward", steps=_set_aside_and_finish(live, swapped, aside))

    aside = [name for name in old if name + _DELETED in present]
    if len(swapped) == len(new) and all(
        (name in aside) != (name in present) and is_old(name + (_DELETED if name in aside else ""), identities[name])
        for name in old
    ):
        return Settlement(direction="back", steps=_put_back(aside, swapped))
    return Settlement(direction="stop", problem="the new files are damaged or missing, and so are old ones")


def _drop(swapped: Sequence[str], cleaned: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that undo an uncommitted swap. The guard goes last, as the loader does it."""
    return (
        *(Remove(name + _SWAP) for name in swapped),
        SyncDir(),
        *(Remove(name + _CLEANED) for name in cleaned),
        SyncDir(),
    )


def _put_back(aside: Sequence[str], swapped: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that undo a committed swap whose new files are damaged.

    The `.log.swap` becomes a guard again before anything is deleted: without it the loader would install what is
    left of the indexes.
    """
    logs, others = _logs_and_others(aside)
    *indexes, log = swapped
    return (
        *(Rename(name + _DELETED, name) for name in others),
        SyncDir(),  # An old log is never there without its .txnindex.
        *(Rename(name + _DELETED, name) for name in logs),
        SyncDir(),
        Rename(log + _SWAP, log + _CLEANED),
        SyncDir(),
        *_drop(indexes, [log]),
    )


def recover(
    partition_dir: Path,
    *,
    log_dir: Path | None = None,
    foreign: bool = False,
    after_step: Observer | None = None,
) -> RecoveryReport:
    """Finish or undo what an interrupted round left; repeating it changes nothing. Needs the lock.

    At most one group can be under way: it is finished if its new files are committed and intact, undone if
    the old ones are complete. Groups that had not begun are dropped with the staging directory. With
    `log_dir`, the checkpoint is written if every group of the round turns out to be in place; otherwise it
    stays behind, which is harmless.

    RecoveryNeededError, with nothing touched: files of an interrupted swap that no manifest explains (a
    broker's; it settles them when it starts), or a state in which going either way could lose records. Lone
    `.deleted` files are reported, not an error. `foreign` will settle a broker's leftovers. Rule:
    LogLoader.load, passes 1 to 3.
    """
    if foreign:
        raise UnsupportedError(path=partition_dir, problem="settling what a broker left is not supported yet")
    with _Directory(partition_dir) as directory:
        present = directory.names()
        rounds = _rounds(directory, present)
        _require_explained(directory, present, rounds)
        under_way = [
            group
            for staging, manifest in rounds.items()
            if manifest is not None
            for group in _under_way(directory, staging, manifest, present)
        ]
        settlement = _settlement(directory, present, under_way)
        try:
            if rounds:
                # A killed process leaves renames that are done but not on the disk: act on nothing that can
                # still vanish.
                _apply(directory, (SyncDir(), *settlement.steps), after_step)
            checkpoint = None if log_dir is None else _finish_checkpoint(directory, log_dir, rounds)
            for staging in rounds:
                _apply(directory, _discard_steps(directory, staging), after_step)
        except OSError as error:
            raise RecoveryNeededError(
                path=partition_dir,
                problem=f"recovery was interrupted ({error.strerror})",
                files=_unfinished(directory.names()),
                hint="Nothing is lost. See to the cause, then run `kcompact recover` again.",
            ) from error
        base_offset = under_way[0].base_offset if under_way else None
        return RecoveryReport(
            finished=base_offset if settlement.direction == "forward" else None,
            undone=base_offset if settlement.direction == "back" else None,
            checkpoint=checkpoint,
            removed_staging=tuple(rounds),
            left_behind=tuple(sorted(name for name in directory.names() if name.endswith(_DELETED))),
        )


def _rounds(directory: _Directory, present: Iterable[str]) -> dict[str, Manifest | None]:
    """Return the staging directories with their manifests; None where it is missing or malformed."""
    rounds: dict[str, Manifest | None] = {}
    for name in sorted(present):
        if not STAGING_NAME.fullmatch(name):
            continue
        status = directory.status(name)
        if status is None or not stat.S_ISDIR(status.st_mode):
            raise RefusedError(path=directory.path / name, problem="has our name but is not a directory")
        try:
            rounds[name] = _read_manifest(directory, name)
        except CorruptCheckpointError:
            # Without unfinished files nothing depends on it; with them, they count as unexplained.
            rounds[name] = None
    return rounds


def _require_explained(directory: _Directory, present: Iterable[str], rounds: dict[str, Manifest | None]) -> None:
    explained = {
        file.name + stage
        for manifest in rounds.values()
        if manifest is not None
        for group in manifest.groups
        for file in group.files
        for stage in (_CLEANED, _SWAP)
    }
    unexplained = [name for name in _unfinished(present) if name not in explained]
    if unexplained:
        raise RecoveryNeededError(
            path=directory.path,
            problem="files of an interrupted swap that kcompact knows nothing about",
            files=unexplained,
            hint="Nothing was touched. If a broker left them: it settles them when it starts. Start and stop it once.",
        )


def _under_way(directory: _Directory, staging: str, manifest: Manifest, present: Collection[str]) -> list[Group]:
    staged = directory.names(staging)
    return [group for group in manifest.groups if _is_under_way(directory, group, present, staged)]


def _is_under_way(directory: _Directory, group: Group, present: Collection[str], staged: Collection[str]) -> bool:
    if any(file.name + stage in present for file in group.files for stage in (_CLEANED, _SWAP)):
        return True
    # Only `.deleted` files: ours if the staged files have left and these are the very files that we set
    # aside. Others are garbage of a broker's.
    return not any(file.staged_as in staged for file in group.files) and any(
        _is_file(directory, file.name + _DELETED, file, same_inode=True) for file in group.replaces
    )


def _is_file(directory: _Directory, name: str, identity: FileIdentity, *, same_inode: bool = False) -> bool:
    """Return whether a file has the recorded size and time; the inode differs in a copied directory."""
    status = directory.status(name)
    if status is None or not stat.S_ISREG(status.st_mode):
        return False
    if same_inode and status.st_ino != identity.inode:
        return False
    return (status.st_size, status.st_mtime_ns) == (identity.size_bytes, identity.mtime_ns)


def _settlement(directory: _Directory, present: Collection[str], under_way: Sequence[Group]) -> Settlement:
    if not under_way:
        return Settlement(direction="none")
    if len(under_way) > 1:
        settlement = Settlement(direction="stop", problem="more than one swap is unfinished")
    else:
        settlement = settle(
            under_way[0],
            present,
            is_new=directory.holds,
            is_old=lambda name, old: _is_file(directory, name, old),
        )
    if settlement.direction == "stop":
        raise RecoveryNeededError(
            path=directory.path,
            problem=settlement.problem,
            files=sorted(name for name in present if name.endswith((_CLEANED, _SWAP, _DELETED))),
            hint="Nothing was touched. Copy this directory before anything else, and start no broker on it: "
            "it would delete some of these files.",
        )
    return settlement


def _finish_checkpoint(directory: _Directory, log_dir: Path, rounds: dict[str, Manifest | None]) -> int | None:
    """Write and return the round's checkpoint if all of its groups are in place, else None."""
    if len(rounds) != 1:
        return None
    ((staging, manifest),) = rounds.items()
    if manifest is None or manifest.end_offset is None or not manifest.groups:
        return None
    staged = directory.names(staging)
    if any(file.staged_as in staged for group in manifest.groups for file in group.files):
        return None
    try:
        with _Directory(log_dir, follow=True) as checkpoints:
            present = _read_checkpoint(checkpoints, CLEANER_OFFSET_CHECKPOINT).get(manifest.topic_partition, 0)
        if present >= manifest.end_offset or not all(_is_in_place(directory, one) for one in manifest.groups):
            return None
        write_checkpoint(log_dir, manifest.topic_partition, manifest.end_offset)
    except CorruptCheckpointError:
        return None  # Whoever plans next reports it. The partition is settled all the same.
    return manifest.end_offset


def _is_in_place(directory: _Directory, group: Group) -> bool:
    new = {file.name for file in group.files}
    gone = [file.name for file in group.replaces if file.name not in new]
    return all(directory.status(name) is None for name in gone) and all(
        directory.holds(file.name, file) for file in group.files
    )
