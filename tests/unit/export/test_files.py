"""A new file is complete or not there, and replaces nothing."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kcompact.errors import KcompactError, NotEnoughSpaceError, RefusedError, StorageError
from kcompact.export.files import new_file
from tests.support import log_dsl, log_writer
from tests.support.command_line import ROOT, environment
from tests.support.patience import PATIENCE_S

CONTENT = b"content" * 1000


def write(path: Path, directory: Path | None = None) -> None:
    with new_file(path, [directory] if directory else [], []) as file:
        file.write(CONTENT)


def test_the_file_has_its_name_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    with new_file(path, [], []) as file:
        file.write(CONTENT)
        (temporary,) = tmp_path.iterdir()
        assert temporary.name.startswith(".kcompact-")
    assert [each.name for each in tmp_path.iterdir()] == ["records.csv"]
    assert path.read_bytes() == CONTENT
    assert path.stat().st_nlink == 1


@pytest.mark.parametrize(
    ("modes", "umask", "mode"),
    [([], 0o022, 0o644), ([0o600], 0o022, 0o600), ([0o644, 0o640], 0, 0o640), ([0o400], 0, 0o600), ([0o666], 0, 0o666)],
)
def test_nobody_may_read_it_who_may_not_read_the_logs(modes: list[int], umask: int, mode: int, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    logs = [tmp_path / "logs" / f"{number}.log" for number in range(len(modes))]
    for log, own in zip(logs, modes, strict=True):
        log.touch()
        log.chmod(own)
    before = os.umask(umask)
    try:
        with new_file(tmp_path / "records.csv", [], [*logs, tmp_path / "gone.log"]) as file:
            (temporary,) = tmp_path.glob(".kcompact-*")
            assert temporary.stat().st_mode & 0o777 == mode
            file.write(CONTENT)
    finally:
        os.umask(before)
    assert (tmp_path / "records.csv").stat().st_mode & 0o777 == mode


def write_and_fail(path: Path, error: type[BaseException] | BaseException) -> None:
    with new_file(path, [], []) as file:
        file.write(CONTENT)
        raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError(errno.EIO, "I/O error")])
def test_after_a_failure_nothing_is_there(error: type[BaseException] | BaseException, tmp_path: Path) -> None:
    with pytest.raises((ValueError, KeyboardInterrupt, StorageError)):
        write_and_fail(tmp_path / "file", error)
    assert list(tmp_path.iterdir()) == []


def existing(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"before")
    return tmp_path / "file"


def dangling_link(tmp_path: Path) -> Path:
    (tmp_path / "file").symlink_to(tmp_path / "nowhere")
    return tmp_path / "file"


def in_partition(tmp_path: Path) -> Path:
    return log_writer.write(log_dsl.parse("log\n0: a=1"), tmp_path / "logs") / "records.csv"


def in_lone_partition(tmp_path: Path) -> Path:
    return log_writer.write(log_dsl.parse("log lone\n0: a=1"), tmp_path / "logs") / "records.csv"


def in_log_dir(tmp_path: Path) -> Path:
    log_writer.write(log_dsl.parse("log\n0: a=1"), tmp_path / "logs")
    return tmp_path / "logs" / "records.csv"


def below_log_dir(tmp_path: Path) -> Path:
    inside = in_log_dir(tmp_path).parent / "exports"
    inside.mkdir()
    return inside / "records.csv"


def through_a_link(tmp_path: Path) -> Path:
    target = in_log_dir(tmp_path).parent
    (tmp_path / "link").symlink_to(target)
    return tmp_path / "link" / "records.csv"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (existing, "exists already"),
        (dangling_link, "exists already"),
        (lambda tmp_path: tmp_path, "exists already"),
        (lambda tmp_path: tmp_path / "missing" / "file", "is in no directory"),
        (in_partition, "directory of a log"),
        (in_lone_partition, "directory of a log"),
        (in_log_dir, "directory of a log"),
        (below_log_dir, "directory of a log"),
        (through_a_link, "directory of a log"),
    ],
)
def test_refused(make: Callable[[Path], Path], problem: str, tmp_path: Path) -> None:
    path = make(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RefusedError, match=problem):
        write(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_beside_lone_copies_of_partitions(tmp_path: Path) -> None:
    directory = log_writer.write(log_dsl.parse("log lone\n0: a=1"), tmp_path)
    write(tmp_path / "file", directory)
    assert (tmp_path / "file").read_bytes() == CONTENT


def write_while_another_appears(path: Path) -> None:
    with new_file(path, [], []) as file:
        file.write(CONTENT)
        path.write_bytes(b"other")


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="exists already"):
        write_while_another_appears(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"other"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_without_hard_links_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    write(tmp_path / "file")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("number", "error"),
    [(errno.ENOSPC, NotEnoughSpaceError), (errno.EIO, StorageError), (errno.EDQUOT, NotEnoughSpaceError)],
)
def test_a_failing_sync(
    number: int, error: type[KcompactError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(error) as raised:
        write(tmp_path / "file")
    assert list(tmp_path.iterdir()) == []
    if error is NotEnoughSpaceError:
        assert "Pass a FILE on another file system." in str(raised.value)
        assert "are free" not in str(raised.value)


PROGRAM = """
import sys, time
from pathlib import Path
from kcompact.cli import signals
from kcompact.export.files import new_file
signals.end_at_signals()
with new_file(Path(sys.argv[1]), [], []) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    while True:  # A signal just before a sleep does not end it.
        time.sleep(0.05)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_process_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "file")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    assert len(list(tmp_path.iterdir())) == 1
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 128 + number
    process.stdout.close()
    assert list(tmp_path.iterdir()) == []
