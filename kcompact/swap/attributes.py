"""Owner, mode, extended attributes and modification time of new files, taken from the files they replace."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from kcompact.errors import RefusedError
from kcompact.format.names import Suffix
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.steps import Replacement, replaced_names

# Signatures over a file's own content and attributes: the kernel makes them, and a copy would be wrong.
_XATTRS_NOT_CARRIED = frozenset({"security.ima", "security.evm"})


def give_to_owner(directory: OpenDirectory, fd: int) -> None:
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
    old = replaced_names(cleaned)
    first_log = next(name for name in old if name.endswith(Suffix.LOG))
    with OpenDirectory(partition_dir) as directory:
        for file in cleaned.files:
            suffix = Path(file.name).suffix
            model = next((name for name in old if name.endswith(suffix)), first_log)
            try:
                copy_attributes(directory, f"{staging}/{file.staged_as}", model)
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


def copy_attributes(directory: OpenDirectory, name: str, model: str) -> None:
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


def _finish_staged(directory: OpenDirectory, name: str, *, mtime_ns: int | None) -> None:
    fd = directory.open(name, os.O_RDONLY)
    try:
        if mtime_ns is not None:
            os.utime(fd, ns=(mtime_ns, mtime_ns))
        os.fsync(fd)
    finally:
        os.close(fd)
