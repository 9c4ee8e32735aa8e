"""Lets calls to the system fail inside this process: each call on a file below some directories is numbered.

    with Faults(roots, Fault(number=17, kind="EIO", persistent=False)) as faults:
        ...                                     # the call of number 17 fails
    faults.calls, faults.hits                   # all numbered calls, and the first of each path that failed

The calls are Python's, in `os` and `fcntl`. Files of `open` and entries of `os.scandir` are replaced by ones that call
`os`. The one kernel that reads a file gets a descriptor whose reads fail. An audit hook shows what escapes.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from kcompact import kernels

READS = ("read", "pread", "preadv", "readv")
WRITES = ("write", "pwrite", "writev", "pwritev", "copy_file_range", "sendfile")
SYNCS = ("fsync", "fdatasync")
NEW_NAMES = ("rename", "replace", "mkdir", "link", "symlink")
OLD_NAMES = ("unlink", "remove", "rmdir")
STATUS = ("stat", "lstat", "fstat", "statvfs", "fstatvfs", "access", "readlink")
ATTRIBUTES = ("fchown", "chown", "lchown", "fchmod", "chmod", "utime", "setxattr", "removexattr")
SIZES = ("ftruncate", "truncate", "posix_fallocate")
LISTS = ("listdir", "scandir")
OTHERS = ("open", "close", "lseek", "posix_fadvise", "listxattr", "getxattr", "dup")
WATCHED = (
    *(*READS, *WRITES, *SYNCS, *NEW_NAMES, *OLD_NAMES, *STATUS, *ATTRIBUTES),
    *(*SIZES, *LISTS, *OTHERS),
)
KERNEL = "pread of a kernel"
LOCK = "fcntl"
LOCK_QUESTION = "fcntl F_OFD_GETLK"
REPORT = "report"
"""What standard output is written to. Only its own faults concern it."""

_CREATES = os.O_CREAT | os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_CHANGES = (*WRITES, *SYNCS, *NEW_NAMES, *OLD_NAMES, *ATTRIBUTES, *SIZES)
_NEEDS_SPACE = (*WRITES, *SYNCS, *NEW_NAMES, "setxattr", "posix_fallocate", "close")
_NEEDS_PERMISSION = (*NEW_NAMES, *OLD_NAMES, *ATTRIBUTES, *LISTS, "stat", "lstat", "getxattr")
_INTERRUPTIBLE = (*READS, *WRITES, *SYNCS, "open", "close", LOCK, LOCK_QUESTION)
_DAMAGED = 0xFF

SHORT_READ, SHORT_WRITE, OTHER_BYTES, NO_BYTES = "short read", "short write", "other bytes", "no bytes"
ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EACCES", "EMFILE", "EINTR")
KINDS = (*ERRORS, SHORT_READ, SHORT_WRITE, OTHER_BYTES, NO_BYTES)


@dataclass(frozen=True, slots=True)
class Call:
    """A numbered call; `path` is relative to the directory of the first root. `writes`: of a descriptor for writing."""

    number: int
    name: str
    path: str
    writes: bool = False

    def __str__(self) -> str:
        return f"call {self.number}, {self.name} {self.path}"


@dataclass(frozen=True)
class Fault:
    """What happens at the call of this number and, if persistent, at every later call that it can happen to."""

    number: int
    kind: str
    persistent: bool = False

    def hits(self, call: Call) -> bool:
        if call.number == self.number:
            return can_happen(self.kind, call)
        is_later = self.persistent and call.number > self.number and call.path != REPORT
        return is_later and can_happen(self.kind, call)

    def __str__(self) -> str:
        return f"{self.kind} {'from' if self.persistent else 'at'} call {self.number}"


def can_happen(kind: str, call: Call) -> bool:
    """Return whether a call can have this fault."""
    name = call.name
    if name == "close" and not call.writes:
        return False  # Nothing can be lost.
    return {
        "EIO": name not in ("lseek", "dup", "posix_fadvise"),
        "ENOSPC": name in _NEEDS_SPACE or call.writes,
        "EDQUOT": name in _NEEDS_SPACE or call.writes,
        "EROFS": (name in _CHANGES and name not in SYNCS) or (name == "open" and call.writes),
        "EACCES": name in _NEEDS_PERMISSION or name == "open",
        "EMFILE": name in ("open", "dup", *LISTS),
        "EINTR": name in _INTERRUPTIBLE,
        SHORT_READ: name in READS,
        SHORT_WRITE: name in WRITES,
        OTHER_BYTES: name in WRITES,
        NO_BYTES: name in WRITES,
    }[kind]


class Faults:
    """Numbers the calls below some roots, and lets one of them fail. A context manager; one at a time."""

    def __init__(self, roots: Sequence[Path], fault: Fault | None = None) -> None:
        self.calls: list[Call] = []
        self.escaped: list[str] = []
        self._hits: dict[str, Call] = {}
        self._parent = f"{roots[0].resolve().parent}/"
        self._prefixes = tuple(f"{root.resolve()}/" for root in roots)
        self._fault = fault
        self._real: dict[str, Callable[..., Any]] = {}
        self._is_inside = False

    @property
    def hits(self) -> list[Call]:
        """The first call of each path that failed, in the order of the calls."""
        return list(self._hits.values())

    def __enter__(self) -> Faults:
        self._real = {name: getattr(os, name) for name in WATCHED} | {LOCK: fcntl.fcntl}
        self._real |= {"io.open": io.open, KERNEL: kernels.scan_headers}
        for name in WATCHED:
            setattr(os, name, self._watching(name))
        fcntl.fcntl = self._watching(LOCK)
        io.open = builtins.open = self._open
        kernels.scan_headers = self._scan_headers
        for each in _names_with_descriptors():  # `shutil` asks whether these can be given a descriptor.
            each.update(getattr(os, name) for name in WATCHED if self._real[name] in each)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in WATCHED:
            for each in _names_with_descriptors():
                each.discard(getattr(os, name))
            setattr(os, name, self._real[name])
        fcntl.fcntl = self._real[LOCK]
        io.open = builtins.open = self._real["io.open"]
        kernels.scan_headers = self._real[KERNEL]

    # --- Which calls

    def _place(self, arguments: Sequence[Any], options: dict[str, Any], *, name: str) -> str | None:
        """Return the path that a call is about, None if it is not below a root."""
        place = arguments[1] if name == "copy_file_range" else arguments[0] if arguments else options.get("path", ".")
        dir_fd = options.get("dir_fd", options.get("src_dir_fd"))
        path = self._path(place, dir_fd)
        for prefix in self._prefixes:
            if f"{path}/".startswith(prefix):
                return path.removeprefix(self._parent)
        return None

    def _path(self, place: Any, dir_fd: int | None = None) -> str:
        if isinstance(place, int):
            try:
                return str(self._real["readlink"](f"/proc/self/fd/{place}"))
            except OSError:
                return ""
        path = os.fsdecode(place)
        if path.startswith("/"):
            return path
        return f"{Path.cwd() if dir_fd is None else self._path(dir_fd)}/{path}"

    def _writes(self, name: str, arguments: Sequence[Any], options: dict[str, Any]) -> bool:
        if name == "close":
            return bool(self._real[LOCK](arguments[0], fcntl.F_GETFL) & os.O_ACCMODE)
        flags = arguments[1] if len(arguments) > 1 else options.get("flags", 0)
        return name == "open" and bool(flags & _CREATES)

    def _watching(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def watch(*arguments: Any, **options: Any) -> Any:
            place = None if self._is_inside else self._place(arguments, options, name=name)
            if place is None:
                return real(*arguments, **options)
            is_question = name == LOCK and arguments[1:2] == (fcntl.F_OFD_GETLK,)
            known_as = LOCK_QUESTION if is_question else name
            call = Call(len(self.calls) + 1, known_as, place, writes=self._writes(name, arguments, options))
            self.calls.append(call)
            self._is_inside = True
            try:
                if self._fault is not None and self._fault.hits(call):
                    self._hits.setdefault(call.path, call)
                    return self._failing(self._fault.kind, name, arguments, options)
                answer = real(*arguments, **options)
                return self._entries(answer) if name == "scandir" else answer
            finally:
                self._is_inside = False

        return watch

    # --- What happens

    def _failing(self, kind: str, name: str, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        if kind in ERRORS:
            if name == "close":
                self._real[name](*arguments)
            number = getattr(errno, kind)
            named = [each for each in arguments[:1] if not isinstance(each, int)]
            raise OSError(number, os.strerror(number), *named)
        if kind == SHORT_READ:
            return self._short_read(name, *arguments)
        if kind == SHORT_WRITE:
            return self._short_write(name, *arguments)
        return self._lying_write(name, *arguments, is_silent=kind == NO_BYTES)

    def _short_read(self, name: str, fd: int, target: Any, *position: int) -> Any:
        if name in ("read", "pread"):
            return self._real[name](fd, max(1, target // 3), *position)
        return self._real[name](fd, [memoryview(target[0]).cast("B")[: max(1, len(target[0]) // 3)]], *position)

    def _short_write(self, name: str, fd: int, data: Any, *more: Any) -> Any:
        if name == "copy_file_range":
            return self._real[name](fd, data, max(1, more[0] // 3), *more[1:])
        if name in ("writev", "pwritev"):
            return self._real[name](fd, [memoryview(data[0]).cast("B")[: max(1, len(data[0]) // 3)]], *more)
        return self._real[name](fd, memoryview(data).cast("B")[: max(1, len(data) // 3)], *more)

    def _lying_write(self, name: str, fd: int, data: Any, *more: Any, is_silent: bool) -> Any:
        """Say that all was written, and write one other byte, or leave the file as it was and go on behind it."""
        if name == "copy_file_range":
            content = self._real["pread"](fd, more[0], more[1])
            fd, more = data, ()
        else:
            content = b"".join(data) if name in ("writev", "pwritev") else bytes(data)
        if is_silent:
            if not more:
                self._real["lseek"](fd, len(content), os.SEEK_CUR)
            return len(content)
        wrong = bytearray(content)
        wrong[len(wrong) // 2] ^= _DAMAGED
        return self._real["pwrite" if more else "write"](fd, wrong, *more)

    # --- What does not call `os` by itself

    def _open(self, file: Any, mode: str = "r", buffering: int = -1, *arguments: Any, **options: Any) -> Any:
        if self._is_inside or self._place((file,), {}, name="open") is None:
            return self._real["io.open"](file, mode, buffering, *arguments, **options)
        text = {name: options[name] for name in ("encoding", "errors", "newline") if name in options}
        text |= dict(zip(("encoding", "errors", "newline"), arguments, strict=False))
        raw = _OpenFile(file, mode, options.get("opener"), is_owner=options.get("closefd", True))
        if buffering == 0:
            return raw
        buffered: Any = io.BufferedRandom(raw) if "+" in mode else None
        buffered = buffered or (io.BufferedReader(raw) if "r" in mode else io.BufferedWriter(raw))
        return buffered if "b" in mode else io.TextIOWrapper(buffered, **text)

    def _entries(self, scanned: Any) -> Any:
        """Return the entries of a directory; the status of each is asked of `os`."""
        with scanned:
            return _Entries([_Entry(entry) for entry in scanned])

    def _scan_headers(self, descriptor: int, *arguments: Any) -> Any:
        place = self._place((descriptor,), {}, name=KERNEL)
        if place is None:
            return self._real[KERNEL](descriptor, *arguments)
        call = Call(len(self.calls) + 1, KERNEL, place)
        self.calls.append(call)
        if self._fault is None or not self._fault.hits(call):
            return self._real[KERNEL](descriptor, *arguments)
        self._hits.setdefault(call.path, call)
        broken = self._real["open"]("/proc/self/mem", os.O_RDONLY)  # Reading at the start of it is an I/O error.
        try:
            return self._real[KERNEL](broken, *arguments)
        finally:
            self._real["close"](broken)

    def watch_for_escapes(self) -> None:
        """Note from now on, until this process ends, what is opened, listed or changed below the roots unnumbered."""

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if self._is_inside or not arguments or not (event == "open" or event.startswith("os.")):
                return
            if isinstance(arguments[0], str | bytes | os.PathLike):
                path = os.fsdecode(arguments[0])
                if path.startswith(self._prefixes):
                    self.escaped.append(f"{event} {path}")

        sys.addaudithook(hook)


def _names_with_descriptors() -> list[set[Any]]:
    sets = (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks)
    return [each for each in sets if isinstance(each, set)]


class _OpenFile(io.RawIOBase):
    """A file that reads and writes through `os`."""

    def __init__(self, file: Any, mode: str, opener: Callable[[Any, int], int] | None, *, is_owner: bool) -> None:
        flags = os.O_RDWR if "+" in mode else os.O_RDONLY if "r" in mode else os.O_WRONLY
        for letter, more in (("w", os.O_CREAT | os.O_TRUNC), ("x", os.O_CREAT | os.O_EXCL), ("a", os.O_APPEND)):
            flags |= more if letter in mode else 0
        self._mode = mode
        self._is_owner = is_owner
        self._fd = -1
        if isinstance(file, int):
            self._fd = file
        elif opener is not None:
            self._fd = opener(file, flags | os.O_CLOEXEC)
        else:
            self._fd = os.open(file, flags | os.O_CLOEXEC, 0o666)

    def readable(self) -> bool:
        return "r" in self._mode or "+" in self._mode

    def writable(self) -> bool:
        return "r" not in self._mode or "+" in self._mode

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def readinto(self, buffer: Any) -> int:
        data = os.read(self._fd, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        return os.write(self._fd, data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return os.lseek(self._fd, offset, whence)

    def tell(self) -> int:
        return os.lseek(self._fd, 0, os.SEEK_CUR)

    def close(self) -> None:
        if not self.closed and self._fd >= 0:
            super().close()
            if self._is_owner:
                os.close(self._fd)


class _Entry:
    """An entry of a directory."""

    def __init__(self, entry: os.DirEntry[Any]) -> None:
        self.name, self.path = entry.name, entry.path
        self.is_dir, self.is_file, self.is_symlink, self.inode = (
            entry.is_dir,
            entry.is_file,
            entry.is_symlink,
            entry.inode,
        )
        self._real_stat = entry.stat

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        if isinstance(self.path, str) and self.path.startswith("/"):
            return os.stat(self.path, follow_symlinks=follow_symlinks)  # noqa: PTH116 - the numbered one
        return self._real_stat(follow_symlinks=follow_symlinks)

    def __fspath__(self) -> Any:
        return self.path


class _Entries:
    """The entries of a directory, as `os.scandir` returns them."""

    def __init__(self, entries: list[_Entry]) -> None:
        self._left = iter(entries)

    def __iter__(self) -> Iterator[_Entry]:
        return self

    def __next__(self) -> _Entry:
        return next(self._left)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def process_ends_at(name: str, occurrence: int) -> Iterator[None]:
    """Let this process end at once, without any cleanup, before a call of this name, after so many others."""
    real = getattr(os, name)
    left = occurrence

    def ending(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            os._exit(0)
        return real(*arguments, **options)

    setattr(os, name, ending)
    try:
        yield
    finally:
        setattr(os, name, real)
