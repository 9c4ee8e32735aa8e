"""What keeps a file from being replaced although this user may write to its directory. Found out without trying."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from kcompact.errors import RefusedError
from kcompact.host.access import project_of, protecting_flag
from kcompact.host.disk import covered_names
from kcompact.readable import shell_word
from kcompact.swap.open_directory import OpenDirectory

Found = TypeVar("Found")


def require_unprotected(directory: OpenDirectory, names: Iterable[str]) -> None:
    """Raise RefusedError if one of these files is immutable or append-only, or if something is mounted over it.

    A name without a file is ignored, and a file that cannot be opened. `require_writable` looks at the directory.
    """
    names = list(names)
    covered = covered_names(directory.fd(), set(names))
    for name in names:
        if name in covered:
            raise RefusedError(
                path=directory.path / name,
                problem="another file is mounted over it, so it cannot be replaced",
                hint="Find out which of both belongs to the log. Take the mount away, then run again: "
                f"umount {shell_word(directory.path / name)}",
            )
        flag = _found_in(directory, name, protecting_flag)
        if flag is not None:
            raise RefusedError(
                path=directory.path / name,
                problem=f"is {flag}, so it cannot be replaced",
                hint=f"Remove the flag, then run again: chattr -i -a {shell_word(directory.path / name)}",
            )


def require_project(directory: OpenDirectory, names: Iterable[str]) -> None:
    """Raise RefusedError if one of these files is of another project than a directory that passes on its own.

    The kernel renames no such file in that directory (EXDEV), and a swap would stop half-way.
    """
    project = project_of(directory.fd())
    if not project.is_inherited:
        return
    for name in names:
        file_project = _found_in(directory, name, project_of)
        if file_project is not None and file_project.number != project.number:
            raise RefusedError(
                path=directory.path / name,
                problem=f"is of project {file_project.number}, its directory of project {project.number}, "
                "so it cannot be renamed",
                hint="Give all files the project of the directory, then run again: "
                f"chattr -R -p {project.number} {shell_word(directory.path)}",
            )


def _found_in(directory: OpenDirectory, name: str, find: Callable[[int], Found]) -> Found | None:
    """Return what `find` returns for an open file, None if it cannot be opened."""
    with suppress(OSError), directory.opened(name) as fd:
        return find(fd)
    return None


def require_replaceable(directory: OpenDirectory, name: str) -> None:
    """Raise RefusedError if `write_small_file` could not replace a small file, or not remove an old `.tmp` of it."""
    for each in (name, f"{name}.tmp"):
        status = directory.status(each)
        is_in_the_way = status is not None and (
            stat.S_ISDIR(status.st_mode) if each != name else not stat.S_ISREG(status.st_mode)
        )
        if is_in_the_way:
            raise RefusedError(
                path=directory.path / each,
                problem="is not a regular file, so it cannot be replaced",
                hint="Find out what created it, and move it away. Then run again.",
            )
    require_unprotected(directory, (name, f"{name}.tmp"))
