"""Owner, mode, extended attributes and modification time of new files, copied from the files that they replace."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from kcompact.clean.staged_files import CleanedSegment
from kcompact.errors import LogChangedError, RefusedError, is_forbidden, storage_error
from kcompact.format.names import Suffix
from kcompact.host import turns
from kcompact.host.access import may_give_to
from kcompact.swap.open_directory import OpenDirectory, opened
from kcompact.swap.recovery.leftovers import require_whole
from kcompact.swap.steps import replaced_names

# Signatures over the content and the attributes of a file: the kernel computes them, a copy would be wrong. And the
# rights that a program gets when it runs.
_XATTRS_NOT_COPIED = frozenset({"security.ima", "security.evm", "security.capability"})
_PERMISSIONS = 0o777
_PERMISSIONS_OF_DIRECTORY = _PERMISSIONS | stat.S_ISGID | stat.S_ISVTX

_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTSUP, errno.EINVAL, errno.ELOOP)
"""The errors of a user or a file system that cannot give a file these attributes."""


def give_to_owner(directory: OpenDirectory, fd: int) -> None:
    """Give a new file to the owner and group of a directory if this process is root; else do nothing.

    Raises RefusedError where the file system does not allow it.
    """
    if os.geteuid() == 0:
        owner = os.fstat(directory.fd())
        try:
            os.fchown(fd, owner.st_uid, owner.st_gid)
        except OSError as error:
            if not is_forbidden(error):
                raise storage_error(directory.path, error, operation="change the owner of a new file") from error
            raise RefusedError(
                path=directory.path,
                problem=f"root cannot give a new file to the owner of this directory: {error.strerror}",
                hint="Run as the user that owns this directory (the broker's user).",
            ) from error


def require_same_owners(directory: OpenDirectory, names: Iterable[str]) -> None:
    """Raise the RefusedError of `carry_over` if new files cannot get the owners of these files. Changes nothing.

    A name without a file is ignored.
    """
    parent = os.fstat(directory.fd())
    allowed: set[tuple[int, int]] = set()
    for name in names:
        status = directory.status(name)
        if status is None or (status.st_uid, status.st_gid) in allowed:
            continue
        if may_give_to(status, parent):
            allowed.add((status.st_uid, status.st_gid))
        else:
            group = parent.st_gid if parent.st_mode & stat.S_ISGID else os.getegid()
            what = _what_differs(status, owner=os.geteuid(), group=group)
            raise _cannot_be_copied(directory.path / name, what, os.strerror(errno.EPERM))


StagedStatuses = dict[str, os.stat_result]
"""What the staged files were when they were complete, by `staged_as`."""


def carry_over(partition: OpenDirectory | Path, staging: str, cleaned: CleanedSegment) -> StagedStatuses:
    """Copy owner, group, mode, extended attributes and time from the old files of a group to its staged files.

    The model of a file is the group's first old file of the same kind, or else its first `.log`. All files except the
    `.txnindex` get the modification time of the group's last old `.log`, in whole milliseconds. The files are synced.
    Returns what `replace_segments` compares the files with: from here on nobody may touch them.

    Raises RefusedError if an attribute cannot be copied, because the broker takes a log directory with one unreadable
    file offline; LogChangedError if a staged file is not the single file that was written there; CorruptDataError if it
    has another size; StorageError, NotEnoughSpaceError. Rule: Cleaner.cleanSegments, LogSegment.setLastModified.
    """
    old, complete = replaced_names(cleaned), {}
    first_log = next(name for name in old if name.endswith(Suffix.LOG))
    with opened(partition) as directory:
        for file in cleaned.files:
            suffix = Path(file.name).suffix
            model = next((name for name in old if name.endswith(suffix)), first_log)
            mtime_ns = None if suffix == Suffix.TXN_INDEX else modified_ns(cleaned)
            try:
                with directory.opened(f"{staging}/{file.staged_as}") as fd:
                    # Before anything is given away: whoever links a file of another user here must not get that file.
                    new_file = os.fstat(fd)
                    require_whole(directory, staging, file, new_file)
                    _require_single_file(directory, f"{staging}/{file.staged_as}", new_file)
                    if new_file.st_uid != os.geteuid():
                        path = directory.path / staging / file.staged_as
                        raise LogChangedError(
                            path=path, problem="belongs to another user, so kcompact did not write it"
                        )
                    with directory.opened(model) as source:
                        complete[file.staged_as] = copy_attributes(source, fd, actual=new_file, mtime_ns=mtime_ns)
                    turns.sync(fd)
            except OSError as error:
                if error.errno in _NOT_ALLOWED:
                    what = _what_remains(directory, model, f"{staging}/{file.staged_as}")
                    raise _cannot_be_copied(directory.path / model, what, error.strerror) from error
                new = directory.path / staging / file.staged_as
                operation = f"copy the attributes of {model} and sync"
                raise storage_error(new, error, operation=operation) from error
    return complete


def _require_single_file(directory: OpenDirectory, name: str, status: os.stat_result) -> None:
    """Raise LogChangedError if a staged file has a second name or is on another file system than the directory."""
    if status.st_nlink != 1 or status.st_dev != directory.device:
        raise LogChangedError(
            path=directory.path / name, problem="has a second name, so another process can write to it"
        )


def _what_remains(directory: OpenDirectory, model: str, new: str) -> str:
    """Return which attribute a new file did not get from its model."""
    wanted, actual = directory.status(model), directory.status(new)
    if wanted is None or actual is None:
        return "owner, mode or attributes"
    return _what_differs(wanted, owner=actual.st_uid, group=actual.st_gid, mode=actual.st_mode)


def _what_differs(wanted: os.stat_result, *, owner: int, group: int, mode: int | None = None) -> str:
    """Return which attribute of a file a new one with these does not have, with both values."""
    if wanted.st_uid != owner:
        return f"owner (user id {wanted.st_uid}; a new file has {owner})"
    if wanted.st_gid != group:
        return f"group (group id {wanted.st_gid}; a new file has {group})"
    if mode is not None and _copied_mode(wanted) != stat.S_IMODE(mode):
        return f"mode ({_copied_mode(wanted):o}; a new file has {stat.S_IMODE(mode):o})"
    return "extended attributes or time"


def _cannot_be_copied(model: Path, what: str, why: str | None) -> RefusedError:
    return RefusedError(
        path=model,
        problem=f"its {what} cannot be copied to the new file: {why}",
        hint="It was not changed. Run as the user that owns these files (the broker's user).",
    )


def modified_ns(cleaned: CleanedSegment) -> int:
    """Return the modification time of the new files: that of the last old `.log`, in whole milliseconds.

    Unit: nanoseconds. Retention and lag use this time where records have no timestamps. Rule: Cleaner.cleanSegments.
    """
    last_log = max(file.name for file in cleaned.replaces if file.name.endswith(Suffix.LOG))
    mtime_ns = next(file.mtime_ns for file in cleaned.replaces if file.name == last_log)
    return mtime_ns // 1_000_000 * 1_000_000


def copy_attributes(
    source: int, target: int, *, actual: os.stat_result | None = None, mtime_ns: int | None = None
) -> os.stat_result:
    """Give an open file or directory the owner, group, mode and extended attributes of another one. Return its status.

    `actual` is the status of the target, if it is known. With `mtime_ns` it also gets this time.

    The bits that make a program run with the rights of its owner are never copied: whoever may write to the directory
    of the source chooses it. Raises OSError, also if the file system accepts a call and changes nothing.
    """
    wanted, actual = os.fstat(source), actual or os.fstat(target)
    if stat.S_IFMT(wanted.st_mode) != stat.S_IFMT(actual.st_mode):
        raise OSError(errno.EINVAL, "the model is not a file of the same kind")
    if (wanted.st_uid, wanted.st_gid) != (actual.st_uid, actual.st_gid):
        os.fchown(target, wanted.st_uid, wanted.st_gid)
    mode = _copied_mode(wanted)
    os.fchmod(target, mode)
    _copy_xattrs(source, target)
    if mtime_ns is not None:
        os.utime(target, ns=(mtime_ns, mtime_ns))
    actual = os.fstat(target)
    if (wanted.st_uid, wanted.st_gid, mode) != (actual.st_uid, actual.st_gid, stat.S_IMODE(actual.st_mode)):
        raise PermissionError(errno.EPERM, "the file system ignored the new attributes")
    return actual


def copy_status(source: int, target: int, *, with_times: bool = False) -> None:
    """Give an open file or directory of a copy the mode, extended attributes and, as root, the owner of its source.

    With `with_times` it also gets the times. Extended attributes that the file system of the copy does not take are
    left out. Raises OSError.
    """
    status = os.fstat(source)
    if os.geteuid() == 0:
        os.fchown(target, status.st_uid, status.st_gid)
    # After the owner, because a new owner clears bits of the mode.
    os.fchmod(target, _copied_mode(status))
    for name, value in _xattrs(source).items():
        try:
            os.setxattr(target, name, value)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EINVAL, errno.EACCES):
                raise
    if with_times:
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _copied_mode(status: os.stat_result) -> int:
    return status.st_mode & (_PERMISSIONS_OF_DIRECTORY if stat.S_ISDIR(status.st_mode) else _PERMISSIONS)


def _copy_xattrs(source: int, target: int) -> None:
    wanted, actual = _xattrs(source), _xattrs(target)
    for name in actual.keys() - wanted.keys():
        os.removexattr(target, name)  # For example an ACL that a new file inherits from its directory.
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
    return {name: os.getxattr(fd, name) for name in names if name not in _XATTRS_NOT_COPIED}
