"""Sees every call of this process that changes something below some directories, before and after it happens.

The calls are Python's, in the module `os`: kcompact makes all of its changes through it, which
`kills` checks with `strace`. Descriptors are named by the file that they are open on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATH_CALLS = ("unlink", "remove", "rmdir", "mkdir", "truncate", "chown", "lchown", "chmod", "utime", "setxattr")
FD_CALLS = ("write", "writev", "pwrite", "pwritev", "ftruncate", "posix_fallocate", "fchown", "fchmod")
PAIR_CALLS = ("rename", "replace", "link", "symlink")
SYNCS = ("fsync", "fdatasync")
WATCHED = ("open", *PATH_CALLS, "removexattr", *FD_CALLS, "sendfile", "copy_file_range", *PAIR_CALLS, *SYNCS)


@dataclass(frozen=True, slots=True)
class Call:
    """A call that changes the file system: its name, the path, and for a rename the new path."""

    name: str
    path: str
    target: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, self.path, self.target)))


Observer = Callable[[Call], None]


@contextmanager
def observed(roots: Sequence[Path], before: Observer, after: Observer) -> Iterator[None]:
    """Call `before` and `after` around each successful or failing call that concerns a path below one of the roots.

    Creating, truncating, writing, syncing, renaming, deleting, and changing attributes are such calls; opening for
    reading is not.
    """
    prefixes = tuple(str(root.resolve()) for root in roots)
    real = {name: getattr(os, name) for name in WATCHED}

    def watching(name: str) -> Callable[..., Any]:
        def watch(*arguments: Any, **options: Any) -> Any:
            call = _call_of(name, arguments, options)
            if call is None or not (call.path.startswith(prefixes) or call.target.startswith(prefixes)):
                return real[name](*arguments, **options)
            before(call)
            try:
                return real[name](*arguments, **options)
            finally:
                after(call)

        return watch

    for name in WATCHED:
        setattr(os, name, watching(name))
    # Names in these sets can be given a descriptor in place of a path, as `shutil` asks.
    sets = [each for each in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks) if isinstance(each, set)]
    for each in sets:
        each.update(getattr(os, name) for name in WATCHED if real[name] in each)
    try:
        yield
    finally:
        for name in WATCHED:
            for each in sets:
                each.discard(getattr(os, name))
            setattr(os, name, real[name])


@contextmanager
def killed_at(roots: Sequence[Path], number: int, *, after: bool = False) -> Iterator[None]:
    """Let this process die by SIGKILL before or after the call of this number; the first is 0."""
    seen = 0

    def count(call: Call) -> None:
        nonlocal seen
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
        seen += 1

    def nothing(call: Call) -> None:
        pass

    with observed(roots, nothing if after else count, count if after else nothing):
        yield


def _call_of(name: str, arguments: Sequence[Any], options: dict[str, Any]) -> Call | None:
    """Return what a call changes, None if it changes nothing."""
    if name == "open":
        flags = arguments[1] if len(arguments) > 1 else options["flags"]
        if not flags & (os.O_CREAT | os.O_TRUNC):
            return None
    if name in PAIR_CALLS:
        source = _path(arguments[0], options.get("src_dir_fd"))
        return Call(name, source, _path(arguments[1], options.get("dst_dir_fd", options.get("dir_fd"))))
    if name == "copy_file_range":
        return Call(name, _path(arguments[1]))
    return Call(name, _path(arguments[0], options.get("dir_fd")))


def _path(place: Any, dir_fd: int | None = None) -> str:
    """Return the absolute path of a descriptor, or of a path, which may be relative to a descriptor."""
    if isinstance(place, int):
        return str(Path(f"/proc/self/fd/{place}").readlink())
    path = os.fsdecode(place)
    return str(Path(Path.cwd() if dir_fd is None else _path(dir_fd), path))
