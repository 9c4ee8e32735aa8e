"""The exit code of an error of the operating system, by the step that it stops: the table in `docs/cli.md`."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kcompact.clean.staged_files import READ_BACK_MISMATCH
from tests.support.command_line import DIRTY, LOG3, clean, digest, kcompact, partition, values

STAGED = ".kcompact-"
MANIFEST = "manifest.json.tmp"
RENAMED_TO_SWAP = ".log.cleaned"
"""What the second phase of a swap renames."""


def place_of(arguments: tuple[Any, ...], options: dict[str, Any]) -> str:
    """Return the path that a call of `os` is about."""
    place, dir_fd = arguments[0], options.get("dir_fd", options.get("src_dir_fd"))
    if isinstance(place, int):
        return str(Path(f"/proc/self/fd/{place}").readlink())
    within = Path() if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink()
    return str(within / os.fsdecode(place))


def fail(monkeypatch: pytest.MonkeyPatch, name: str, part: str, act: Callable[..., Any]) -> None:
    """Let `act` take the place of a function of `os` for paths that contain `part`."""
    real = getattr(os, name)

    def failing(*arguments: Any, **options: Any) -> Any:
        is_meant = part in place_of(arguments, options)
        return act(real, *arguments, **options) if is_meant else real(*arguments, **options)

    monkeypatch.setattr(os, name, failing)


def raising(number: int) -> Callable[..., Any]:
    def act(*arguments: Any, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return act


ROWS = [
    # the call, a part of its path, and the exit codes by error number
    ("open", LOG3, {"EIO": 1, "EMFILE": 1, "ENFILE": 1, "ENOMEM": 1, "EACCES": 4, "ENOENT": 6, "ESTALE": 6}),
    ("pread", LOG3, {"EIO": 1, "ESTALE": 6}),
    ("open", ".lock", {"EIO": 1, "EMFILE": 1, "EACCES": 4, "EROFS": 4}),
    ("mkdir", STAGED, {"EIO": 1, "EACCES": 4, "EROFS": 4, "ENOSPC": 7, "EDQUOT": 7}),
    ("open", "part-0", {"EIO": 1, "EMFILE": 1, "EROFS": 4, "ENOENT": 6, "ENOSPC": 7, "EDQUOT": 7}),
    ("writev", "part-0", {"EIO": 1, "ENOSPC": 7, "EDQUOT": 7, "EFBIG": 7}),
    ("fsync", "part-0", {"EIO": 1, "ENOSPC": 7, "EDQUOT": 7}),
    ("fchmod", "part-0", {"EIO": 1, "EPERM": 4, "EROFS": 4, "ENOSPC": 7}),
    ("utime", "part-0", {"EIO": 1, "EPERM": 4}),
    ("write", MANIFEST, {"EIO": 1, "ENOSPC": 7, "EDQUOT": 7}),
    ("fsync", MANIFEST, {"EIO": 1}),
    ("rename", f"{STAGED}", {"EIO": 1, "EROFS": 4, "ENOSPC": 7}),
    ("rename", RENAMED_TO_SWAP, {"EIO": 8, "EROFS": 8, "ENOSPC": 8, "EDQUOT": 8}),
]
HANDLED_APART = {"EROFS", "EPERM"}


def cases(rows: list[tuple[str, str, dict[str, int]]]) -> Iterator[Any]:
    """Yield the parameters of each error. `make slow` has those that a step only handles as one before in its row."""
    for call, part, codes in rows:
        for number, (name, code) in enumerate(codes.items()):
            is_alike = code in [*codes.values()][:number] and name not in HANDLED_APART
            marks = pytest.mark.slow if is_alike else ()
            yield pytest.param(call, part, getattr(errno, name), code, id=f"{call} {part} {name}", marks=marks)


@pytest.mark.parametrize(("call", "part", "number", "code"), [*cases(ROWS)])
def test_a_clean(call: str, part: str, number: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    before, records = digest(directory), values(directory)
    with monkeypatch.context() as patched:
        fail(patched, call, part, raising(number))
        ran = clean(directory)
    assert ran.code == code, ran
    assert os.strerror(number) in ran.err or (number == errno.EROFS and "mounted read-only" in ran.err)
    if code == 8:
        assert "stopped before its commit point" in ran.err
        assert kcompact("recover", directory).code == 0
    assert digest(directory) == before
    assert values(directory) == records
    assert clean(directory).code == 0


def test_a_staging_directory_that_cannot_be_discarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    with monkeypatch.context() as patched:
        fail(patched, "stat", "manifest.json", raising(errno.EACCES))
        ran = clean(directory)
    assert (ran.code, os.strerror(errno.EACCES) in ran.err) == (4, True), ran
    assert kcompact("recover", directory).code == 0
    assert clean(directory).code == 0


COPY_ROWS = [
    ("mkdir", "copy", {"EIO": 1, "ENOSPC": 7, "EDQUOT": 7}),
    ("write", "copy/.kcompact-copy/orders-0", {"EIO": 1, "ENOSPC": 7, "EDQUOT": 7, "EFBIG": 7}),
    ("fsync", "copy/.kcompact-copy/orders-0", {"EIO": 1}),
    ("rename", "copy/.kcompact-copy/orders-0", {"EIO": 1, "EROFS": 4, "ENOSPC": 7}),
]


@pytest.mark.parametrize(("call", "part", "number", "code"), [*cases(COPY_ROWS)])
def test_a_copy(call: str, part: str, number: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path / "data")
    before = digest(directory)
    with monkeypatch.context() as patched:
        fail(patched, call, part, raising(number))
        ran = clean("--output", tmp_path / "copy", directory)
    assert ran.code == code, ran
    assert os.strerror(number) in ran.err
    assert digest(directory) == before
    assert clean("--output", tmp_path / "copy", directory).code == 0


def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a partition whose swap has stopped."""
    directory = partition(tmp_path)
    with monkeypatch.context() as patched:
        fail(patched, "rename", RENAMED_TO_SWAP, raising(errno.EIO))
        assert clean(directory).code == 8
    return directory


@pytest.mark.parametrize(
    ("call", "part", "number", "code"),
    [
        ("unlink", ".cleaned", errno.EIO, 8),
        ("unlink", ".cleaned", errno.EROFS, 8),
        ("fsync", "orders-0", errno.EIO, 8),
        ("open", "manifest.json", errno.EIO, 1),
        ("open", "manifest.json", errno.EACCES, 4),
        ("listdir", "orders-0", errno.ESTALE, 6),
    ],
)
def test_recovery(
    call: str, part: str, number: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = interrupted(tmp_path, monkeypatch)
    with monkeypatch.context() as patched:
        fail(patched, call, part, raising(number))
        ran = kcompact("recover", directory)
    assert ran.code == code, ran
    assert os.strerror(number) in ran.err
    assert kcompact("recover", directory).code == 0
    assert values(directory).keys() == values(partition(tmp_path / "other")).keys()


def lying(lost: str) -> Callable[..., int]:
    def lie(real: Callable[..., int], fd: int, data: Any) -> int:
        return len(data) if lost == "no bytes" else real(fd, bytes(data[:-1]) + b"?")

    return lie


@pytest.mark.parametrize("lost", ["other bytes", "no bytes"])
@pytest.mark.parametrize("name", ["00000000000000000006.log", "0.json.tmp"])
def test_a_disk_that_lies_about_a_copy(name: str, lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path / "data")
    with monkeypatch.context() as patched:
        fail(patched, "write", f"copy/.kcompact-copy/{'' if '.json' in name else 'orders-0/'}{name}", lying(lost))
        ran = clean("--output", tmp_path / "copy", directory)
    assert ran.code == 3
    assert READ_BACK_MISMATCH in ran.err
    assert clean("--output", tmp_path / "copy", directory).code == 0


@pytest.mark.parametrize("lost", ["other bytes", "no bytes"])
@pytest.mark.parametrize("name", [MANIFEST, "cleaner-offset-checkpoint.tmp"])
def test_a_disk_that_lies_about_a_small_file(
    name: str, lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = partition(tmp_path, DIRTY.replace("now=10:00", "now=10:00 checkpoint=0"))
    records, checkpoint = values(directory), (tmp_path / "cleaner-offset-checkpoint").read_bytes()
    with monkeypatch.context() as patched:
        fail(patched, "write", name, lying(lost))
        ran = clean(directory)
    assert ran.code == 3
    assert READ_BACK_MISMATCH in ran.err
    assert (tmp_path / "cleaner-offset-checkpoint").read_bytes() == checkpoint
    assert (values(directory) == records) is (name == MANIFEST)
    assert not list(tmp_path.rglob("*.tmp"))
    assert clean(directory).code == 0
