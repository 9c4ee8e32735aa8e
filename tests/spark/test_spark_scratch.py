"""Private scratch directories: who may remove which."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from kcompact.engine.spark import scratch
from tests.support.command_line import environment


def test_sweep_takes_only_what_nobody_uses(tmp_path: Path) -> None:
    def made(name: str, mode: int = 0o700) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        (directory / "owner.lock").touch()
        (directory / "spill").write_bytes(b"x")
        directory.chmod(mode)
        return directory

    ownerless = made("kcompact-spark-a")
    others = [made("kcompact-spark-open", 0o755), made("kcompact-b"), made("other")]
    outside = made("outside")
    (tmp_path / "kcompact-spark-link").symlink_to(outside)
    empty, unlocked = tmp_path / "kcompact-spark-empty", tmp_path / "kcompact-spark-unlocked"
    for directory in (empty, unlocked):
        directory.mkdir(0o700)
    (unlocked / "spill").touch()
    with scratch.private_directory(str(tmp_path)) as mine:
        assert mine.stat().st_mode & 0o777 == 0o700
        assert len(mine.name) <= len(scratch.PREFIX) + 8, "the paths of Spark's sockets are limited"
        assert not ownerless.exists()
        assert not empty.exists()
        assert all((directory / "spill").exists() for directory in [*others, outside, unlocked])
        with scratch.private_directory(str(tmp_path)) as second:
            assert mine.exists(), "it has an owner"
        assert not second.exists()
    assert not mine.exists()


def test_owner_holds_the_lock_of_filelock(tmp_path: Path) -> None:
    with scratch.private_directory(str(tmp_path)) as mine, pytest.raises(Timeout):
        FileLock(mine / "owner.lock", blocking=False).acquire()


def before_locking(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let another process act once, between the opening of a lock file and the lock."""
    turns, try_lock = [act], scratch.try_lock

    def lock(descriptor: int) -> bool:
        while turns:
            turns.pop()()
        return try_lock(descriptor)

    monkeypatch.setattr(scratch, "try_lock", lock)


@pytest.mark.parametrize("comes_back", [False, True], ids=["removed", "replaced"])
def test_sweep_before_the_lock_costs_a_second_attempt(
    comes_back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[Path] = []

    def sweep() -> None:
        (directory,) = tmp_path.iterdir()
        swept.append(directory)
        (directory / "owner.lock").unlink()
        directory.rmdir()
        if comes_back:
            directory.mkdir(0o700)
            (directory / "owner.lock").touch()

    before_locking(monkeypatch, sweep)
    with scratch.private_directory(str(tmp_path)) as mine:
        assert mine not in swept
        assert (mine / "owner.lock").exists()
    assert len(swept) == 1


def test_sweep_makes_nothing_in_a_directory_without_a_lock(tmp_path: Path) -> None:
    unlocked = tmp_path / "kcompact-spark-new"
    unlocked.mkdir(0o700)
    (unlocked / "spill").touch()
    with scratch.private_directory(str(tmp_path)):
        assert list(unlocked.iterdir()) == [unlocked / "spill"]


def test_directory_that_nobody_can_lock_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "try_lock", lambda descriptor: False)
    with pytest.raises(OSError, match="no private directory"), scratch.private_directory(str(tmp_path)):
        pass


AT_EACH_LINE = """
import os, shutil, sys
from kcompact.cli import signals
from kcompact.engine.spark import scratch

def exit_code(left):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def before_line(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename in (scratch.__file__, shutil.__file__):
            left -= event == "line"
            if left == 0:
                os.kill(os.getpid(), int(sys.argv[1]))
            return before_line

    with signals.stop_request() as stop:
        stop.is_deferred, stop.exit_code = True, 130
        sys.settrace(before_line)
        with scratch.private_directory(None) as directory:
            (directory / "spill").mkdir()
            (directory / "spill" / "blocks").touch()
        os._exit(0)

line, left = 1, []
while (code := exit_code(line)) and not left:
    found = os.listdir(os.environ["TMPDIR"])
    scratch.sweep_scratch()
    left = os.listdir(os.environ["TMPDIR"])
    print(code, found, left)
    line += 1
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=lambda sent: sent.name)
def test_end_at_any_line_leaves_nothing_for_good(sent: signal.Signals, tmp_path: Path) -> None:
    """A second Ctrl-C leaves nothing; what SIGKILL leaves is what the next process removes."""
    ran = subprocess.run(
        [sys.executable, "-c", AT_EACH_LINE, str(sent.value)],
        capture_output=True,
        text=True,
        check=True,
        env={**environment(), "TMPDIR": str(tmp_path)},
    )
    lines = ran.stdout.splitlines()
    assert len(lines) > 40
    begin = "130 []" if sent == signal.SIGINT else "-9 ["
    assert [line for line in lines if not line.startswith(begin) or not line.endswith(" []")] == []
