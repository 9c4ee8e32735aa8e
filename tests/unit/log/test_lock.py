"""The log directory's lock: which processes it keeps out, and when kcompact notices that it keeps none out any more."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kcompact.errors import LogChangedError, LogDirLockedError, RefusedError, StorageError
from kcompact.log.lock import is_locked, log_dir_lock, require_lockable

PYTHON_HOLDER = """
import fcntl, sys
lock = open(sys.argv[1], "r+")
try:
    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("held", flush=True)
except OSError:
    print("refused", flush=True)
sys.stdin.readline()
"""

JAVA_HOLDER = """
import java.nio.channels.*;
import java.nio.file.*;
public class Holder {
    public static void main(String[] args) throws Exception {
        try (FileChannel lock = FileChannel.open(Path.of(args[0]), StandardOpenOption.CREATE,
                                                 StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            FileLock held = lock.tryLock();
            System.out.println(held == null ? "refused" : "held");
            System.in.read();
        }
    }
}
"""


@contextmanager
def other_process(*command: str) -> Iterator[str]:
    """Run a process that tries the lock until the block ends; yield its answer, `held` or `refused`."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait()


def python_holder(log_dir: Path) -> tuple[str, ...]:
    return (sys.executable, "-c", PYTHON_HOLDER, str(log_dir / ".lock"))


@pytest.fixture
def java_holder(tmp_path: Path) -> tuple[str, ...]:
    java = shutil.which("java")
    assert java is not None, "the oracle tests need a JDK"
    source = tmp_path / "Holder.java"
    source.write_text(JAVA_HOLDER)
    return (java, "-XX:TieredStopAtLevel=1", str(source))


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    return directory


def test_makes_a_missing_lock_file_and_leaves_it(log_dir: Path) -> None:
    with log_dir_lock(log_dir) as lock:
        assert lock.created
        assert lock.is_in_force()
        lock.check()
        assert is_locked(log_dir)
    assert (log_dir / ".lock").exists()
    assert not is_locked(log_dir)


def test_an_existing_lock_file_is_used_as_it_is(log_dir: Path) -> None:
    (log_dir / ".lock").touch(mode=0o640)
    before = (log_dir / ".lock").stat()
    with log_dir_lock(log_dir) as lock:
        assert not lock.created
    after = (log_dir / ".lock").stat()
    assert (before.st_ino, before.st_mode, before.st_size) == (after.st_ino, after.st_mode, after.st_size)


def test_a_second_kcompact_is_kept_out(log_dir: Path) -> None:
    with log_dir_lock(log_dir), pytest.raises(LogDirLockedError) as refused, log_dir_lock(log_dir):
        pass
    assert refused.value.exit_code == 5
    with log_dir_lock(log_dir):
        pass  # the refused attempt left no lock


def test_a_process_with_a_record_lock_keeps_kcompact_out(log_dir: Path) -> None:
    (log_dir / ".lock").touch()
    with other_process(*python_holder(log_dir)) as answer:
        assert answer == "held"
        assert is_locked(log_dir)
        with pytest.raises(LogDirLockedError), log_dir_lock(log_dir):
            pass
    assert not is_locked(log_dir)


def test_kcompact_keeps_out_a_process_with_a_record_lock(log_dir: Path) -> None:
    with log_dir_lock(log_dir), other_process(*python_holder(log_dir)) as answer:
        assert answer == "refused"


def test_the_lock_outlives_another_descriptor_of_the_file(log_dir: Path) -> None:
    with log_dir_lock(log_dir):
        with (log_dir / ".lock").open("r+") as other:
            assert other.read() == ""
        with other_process(*python_holder(log_dir)) as answer:
            assert answer == "refused"  # a plain record lock would be gone by now


@pytest.mark.oracle
def test_a_jvm_keeps_kcompact_out(log_dir: Path, java_holder: tuple[str, ...]) -> None:
    with other_process(*java_holder, str(log_dir / ".lock")) as answer:
        assert answer == "held"
        assert is_locked(log_dir)
        with pytest.raises(LogDirLockedError), log_dir_lock(log_dir):
            pass
    with log_dir_lock(log_dir):
        pass


@pytest.mark.oracle
def test_kcompact_keeps_out_a_jvm(log_dir: Path, java_holder: tuple[str, ...]) -> None:
    with log_dir_lock(log_dir), other_process(*java_holder, str(log_dir / ".lock")) as answer:
        assert answer == "refused"


@pytest.mark.parametrize("recreated", [False, True])
def test_a_deleted_lock_file_is_noticed(log_dir: Path, recreated: bool) -> None:
    with log_dir_lock(log_dir) as lock:
        (log_dir / ".lock").rename(log_dir / "kept")  # like unlink, but the inode stays in use
        if recreated:
            (log_dir / ".lock").touch()
        assert not lock.is_in_force()
        with pytest.raises(LogChangedError, match="deleted or replaced"):
            lock.check()


def test_a_log_directory_that_is_moved_and_replaced_is_noticed(log_dir: Path) -> None:
    with log_dir_lock(log_dir) as lock:
        log_dir.rename(log_dir.with_name("moved"))
        assert not lock.is_in_force()
        log_dir.mkdir()
        (log_dir / ".lock").touch()
        with pytest.raises(LogChangedError, match="deleted or replaced"):
            lock.check()


def test_a_file_deleted_while_it_is_locked_is_tried_again(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (log_dir / ".lock").touch()
    first = (log_dir / ".lock").stat().st_ino
    keep = (log_dir / ".lock").open()
    real = fcntl.fcntl
    calls: list[int] = []

    def broker_deletes_it(fd: int, command: int, argument: bytes) -> bytes:
        if not calls:
            (log_dir / ".lock").unlink()
        calls.append(command)
        return real(fd, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", broker_deletes_it)
    with keep, log_dir_lock(log_dir) as lock:
        assert len(calls) == 2
        assert lock.is_in_force()
        assert (log_dir / ".lock").stat().st_ino != first


def test_a_file_that_is_always_replaced_is_refused(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fcntl.fcntl

    def always_deletes_it(fd: int, command: int, argument: bytes) -> bytes:
        (log_dir / ".lock").unlink()
        return real(fd, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", always_deletes_it)
    with pytest.raises(LogChangedError), log_dir_lock(log_dir):
        pass


def test_a_backup_may_hold_another_link(log_dir: Path) -> None:
    (log_dir / ".lock").touch()
    os.link(log_dir / ".lock", log_dir / "backup-of-lock")
    with log_dir_lock(log_dir) as lock:
        lock.check()


def symlink(lock: Path) -> None:
    (lock.parent / "elsewhere").touch()
    lock.symlink_to("elsewhere")


@pytest.mark.parametrize("make", [symlink, Path.mkdir, os.mkfifo])
def test_a_lock_that_is_not_a_regular_file_is_refused(log_dir: Path, make: object) -> None:
    assert callable(make)
    make(log_dir / ".lock")
    with pytest.raises(RefusedError), log_dir_lock(log_dir):
        pass
    assert not is_locked(log_dir)


def test_a_missing_directory_has_been_removed_meanwhile(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as gone, log_dir_lock(tmp_path / "nowhere"):
        pass
    assert gone.value.exit_code == LogChangedError.exit_code


def test_is_locked_creates_nothing(log_dir: Path) -> None:
    log_dir.chmod(0o500)
    try:
        assert not is_locked(log_dir)
        assert list(log_dir.iterdir()) == []
    finally:
        log_dir.chmod(0o700)
    assert not is_locked(log_dir / "nowhere")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_gives_away_the_lock_file_that_a_killed_run_has_left(log_dir: Path) -> None:
    os.chown(log_dir, 1234, 2345)
    (log_dir / ".lock").touch()
    require_lockable(log_dir)
    assert (log_dir / ".lock").stat().st_uid == 0
    with log_dir_lock(log_dir) as lock:
        assert not lock.created
    assert ((log_dir / ".lock").stat().st_uid, (log_dir / ".lock").stat().st_gid) == (1234, 2345)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_gives_the_lock_file_to_the_owner_of_the_directory(log_dir: Path) -> None:
    os.chown(log_dir, 1234, 2345)
    with log_dir_lock(log_dir):
        status = (log_dir / ".lock").stat()
    assert (status.st_uid, status.st_gid) == (1234, 2345)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_that_cannot_give_it_away_is_refused(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(log_dir, 1234, 2345)

    def root_squash(fd: int, user: int, group: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", root_squash)
    with pytest.raises(RefusedError, match="cannot be given"), log_dir_lock(log_dir):
        pass


def test_a_file_system_without_such_locks_is_refused(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(fd: int, command: int, argument: bytes) -> bytes:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "fcntl", no_locks)
    with pytest.raises(RefusedError, match="No locks available"), log_dir_lock(log_dir):
        pass
    assert not is_locked(log_dir)


def test_a_read_only_file_system_is_no_matter_of_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def read_only(path: Path, flags: int, *rest: int, **options: int) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(RefusedError) as caught, log_dir_lock(tmp_path):
        pass
    assert "mounted read-only" in str(caught.value)
    assert "`output`" in str(caught.value)
    assert "owns" not in str(caught.value)
