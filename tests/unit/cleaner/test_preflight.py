"""What stops a cleaning is found before anything is written, and the dry run ends with the same error."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.partition import clean_partition
from kcompact.cleaner.preflight import obstacle, require_known_versions
from kcompact.cleaner.retention import apply_retention
from kcompact.engine.in_process import InProcess
from kcompact.errors import KcompactError, RefusedError, StorageError, UnsupportedError
from kcompact.host import access
from kcompact.host.access import Project, project_of
from kcompact.log.directory import read_log
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.recovery.interrupted_round import recover
from tests.support import log_dsl, log_writer
from tests.support.command_line import DIRTY, digest

Harm = Callable[[Path, pytest.MonkeyPatch], object]


def planned(log_dir: Path, text: str = DIRTY) -> CleanPlan:
    spec = log_dsl.parse(text)
    return plan_partition(log_writer.write(spec, log_dir), spec.config, now_ms=spec.now_ms, force=True)


def read_only(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a mount without writing: the flag is all that shows it."""
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=99, f_frsize=4096, f_flag=os.ST_RDONLY))


def no_permission(name: str) -> Harm:
    """Nothing can be created in the directory of this name."""

    def harm(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        really = os.access

        def answer(path: Any, mode: int, *, dir_fd: int | None = None, **options: Any) -> bool:
            directory = Path(path) if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink()
            return directory.name != name and really(path, mode, dir_fd=dir_fd, **options)

        monkeypatch.setattr(os, "access", answer)

    return harm


def someone_else(*names: str) -> Harm:
    """The files belong to another user, and this process is not root."""

    def harm(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        inodes = {path.stat().st_ino for name in names for path in directory.parent.rglob(name)}
        assert inodes
        status_of = OpenDirectory.status

        def status(directory: OpenDirectory, name: str) -> Any:
            status = status_of(directory, name)
            if status is None or status.st_ino not in inodes:
                return status
            fields = {each: getattr(status, each) for each in dir(status) if each.startswith("st_")}
            return SimpleNamespace(**fields | {"st_uid": os.geteuid() + 1})

        monkeypatch.setattr(access, "may_change_owners", lambda: False)
        monkeypatch.setattr(OpenDirectory, "status", status)

    return harm


def lock_is(make: Callable[[Path], object]) -> Harm:
    return lambda directory, _: make(directory.parent / ".lock")


def checkpoint_is(make: Callable[[Path], object], suffix: str = "") -> Harm:
    def harm(directory: Path, _: object) -> None:
        checkpoint = directory.parent / f"cleaner-offset-checkpoint{suffix}"
        checkpoint.unlink(missing_ok=True)
        make(checkpoint)

    return harm


def project_differs(name: str) -> Harm:
    """The directory passes on its project, and one file has none: its rename fails with EXDEV."""

    def harm(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        inode = (directory / name).stat().st_ino
        monkeypatch.setattr(
            "kcompact.swap.protection.project_of",
            lambda fd: Project(0 if os.fstat(fd).st_ino == inode else 77, is_inherited=True),
        )

    return harm


OBSTACLES: list[tuple[str, Harm, str]] = [
    ("read-only mount", read_only, "the file system is mounted read-only"),
    ("partition", no_permission("orders-0"), "orders-0: cannot be written to: Permission denied"),
    ("log directory", no_permission("data"), "data/.lock: cannot be opened: Permission denied"),
    ("owner of a log", someone_else("*00.log"), "00.log: its owner (user id 1; a new file has 0) cannot be copied"),
    (
        "owner of an index",
        someone_else("*00.timeindex"),
        "00.timeindex: its owner (user id 1; a new file has 0) cannot",
    ),
    ("owner of the checkpoint", someone_else("cleaner-offset-checkpoint"), "checkpoint: its owner (user id 1;"),
    ("project of an index", project_differs(f"{3:020d}.index"), "index: is of project 0, its directory of project 77"),
    ("checkpoint leads nowhere", checkpoint_is(lambda path: path.symlink_to("nowhere")), "is not a regular file"),
    ("checkpoint is a directory", checkpoint_is(Path.mkdir), "is not a regular file"),
    ("checkpoint is a pipe", checkpoint_is(os.mkfifo), "is not a regular file"),
    ("its .tmp is a directory", checkpoint_is(Path.mkdir, ".tmp"), "checkpoint.tmp: is not a regular file"),
    ("lock is a directory", lock_is(Path.mkdir), ".lock: cannot be opened: Is a directory"),
    ("lock is a link", lock_is(lambda lock: lock.symlink_to("elsewhere")), ".lock: is a symbolic link"),
    ("lock is a pipe", lock_is(os.mkfifo), ".lock: is not a regular file"),
]


@pytest.mark.parametrize(("harm", "problem"), [row[1:] for row in OBSTACLES], ids=[row[0] for row in OBSTACLES])
def test_the_dry_run_says_what_stops_the_run(
    harm: Harm, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(tmp_path / "data", DIRTY.replace("now=10:00", "now=10:00 checkpoint=0"))
    assert obstacle(plan, CleanOptions()) is None
    harm(plan.log.directory, monkeypatch)
    before = digest(tmp_path)
    dry = clean_partition(plan, InProcess(), lock=None, options=CleanOptions(dry_run=True))
    assert problem in str(dry.stopped_by)
    assert dry.stopped_by is not None
    assert dry.stopped_by.exit_code == 4
    assert (dry.stats.messages_read, dry.stats.messages_written) == (6, 4)
    with pytest.raises(KcompactError) as stopped:
        clean_partition(plan, InProcess(), lock=None)
    assert str(stopped.value) == str(dry.stopped_by)
    assert digest(tmp_path) == before


@pytest.fixture
def protect(tmp_path: Path) -> Iterator[Callable[[str, Path], None]]:
    """Sets a flag with `chattr`, and takes it away afterwards."""
    protected = []

    def chattr(flag: str, path: Path) -> None:
        path.touch()
        subprocess.run(["chattr", f"+{flag}", path], check=True)
        protected.append(path)

    yield chattr
    for path in protected:
        subprocess.run(["chattr", "-ia", path], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can set these flags")
@pytest.mark.parametrize("flag", ["i", "a"])
@pytest.mark.parametrize(
    "name",
    [
        "orders-0",
        f"orders-0/{0:020d}.log",
        f"orders-0/{3:020d}.timeindex",
        f"orders-0/{3:020d}.snapshot",
        f"orders-0/{0:020d}.index.deleted",
        "",
        "cleaner-offset-checkpoint",
        "cleaner-offset-checkpoint.tmp",
    ],
)
def test_a_flag_that_forbids_the_swap_is_found_before_it(
    name: str, flag: str, tmp_path: Path, protect: Callable[[str, Path], None]
) -> None:
    log_dir = tmp_path / "data"
    text = DIRTY.replace("now=10:00", "now=10:00 checkpoint=0") + "snapshot 3:\nsnapshot 6:\n"
    log_writer.write(log_dsl.parse(text), log_dir)
    (log_dir / "orders-0" / f"{0:020d}.index.deleted").touch()
    (log_dir / "cleaner-offset-checkpoint.tmp").touch()
    protect(flag, log_dir / f"orders-0/{6:020d}.log")  # The active segment is not replaced.
    spec = log_dsl.parse(text)
    plan = plan_partition(log_dir / "orders-0", spec.config, now_ms=spec.now_ms, force=True)
    assert obstacle(plan, CleanOptions()) is None
    protect(flag, log_dir / name)
    plan = plan_partition(log_dir / "orders-0", spec.config, now_ms=spec.now_ms, force=True)
    before = digest(tmp_path)
    word = {"i": "immutable", "a": "append-only"}[flag]
    with pytest.raises(RefusedError, match=rf"is {word}.*\n.*chattr -i -a {log_dir / name}"):
        clean_partition(plan, InProcess(), lock=None)
    dry = clean_partition(plan, InProcess(), lock=None, options=CleanOptions(dry_run=True))
    assert word in str(dry.stopped_by)
    assert digest(tmp_path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can set these flags")
@pytest.mark.parametrize("name", [f"{3:020d}.snapshot", f"{0:020d}.index.deleted"])
def test_a_flag_that_forbids_retention_is_found_before_it(
    name: str, tmp_path: Path, protect: Callable[[str, Path], None]
) -> None:
    settings = "cleanup.policy=compact,delete retention.bytes=1 min.compaction.lag.ms=99999999"
    spec = log_dsl.parse(DIRTY.replace("now=10:00", f"now=10:00 {settings}") + "snapshot 3:\n")
    directory = log_writer.write(spec, tmp_path / "data")
    protect("i", directory / name)
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms)
    assert not plan.eligible
    before = digest(tmp_path)
    with log_dir_lock(directory.parent) as lock, pytest.raises(RefusedError, match=f"{name}: is immutable"):
        clean_partition(plan, InProcess(), lock=lock, options=CleanOptions(apply_retention=True))
    assert digest(tmp_path) == before


@pytest.mark.parametrize(("failing", "is_told"), [(1, False), (2, True)])
def test_retention_that_stops_half_way_says_what_is_done(
    failing: int, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = "cleanup.policy=compact,delete retention.bytes=1 min.compaction.lag.ms=99999999"
    plan = planned(tmp_path, DIRTY.replace("now=10:00", f"now=10:00 {settings}"))
    really, renames = os.rename, iter(range(1, 99))

    def rename(*names: Any, **options: Any) -> None:
        if next(renames) == failing:
            raise OSError(5, "Input/output error")
        really(*names, **options)

    monkeypatch.setattr(os, "rename", rename)
    with log_dir_lock(tmp_path) as lock, pytest.raises(StorageError) as stopped:
        apply_retention(plan, plan.log, lock, CleanOptions(apply_retention=True))
    assert ("stopped after its .log was set aside" in str(stopped.value)) is is_told


def test_retention_does_not_hide_that_the_checkpoint_was_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    plan = planned(tmp_path)
    monkeypatch.setattr("kcompact.swap.round_end.write_checkpoints", fails)
    monkeypatch.setattr("kcompact.cleaner.partition.read_again", fails)
    with log_dir_lock(tmp_path) as lock:
        result = clean_partition(plan, InProcess(), lock=lock, options=CleanOptions(apply_retention=True))
    assert result.status == "checkpoint-not-written"


def test_a_staging_directory_that_stays_does_not_hide_that_the_log_is_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise StorageError(path=tmp_path, problem=OSError(5, "Input/output error"))

    plan = planned(tmp_path)
    monkeypatch.setattr("kcompact.cleaner.round_end.discard", fails)
    with log_dir_lock(tmp_path) as lock:
        assert clean_partition(plan, InProcess(), lock=lock).status == "cleaned"
    assert list(plan.log.directory.glob(".kcompact-*"))
    recover(plan.log.directory, log_dir=tmp_path)
    assert not list(plan.log.directory.glob(".kcompact-*"))


def test_the_project_of_a_file_is_read_as_the_kernel_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "file").open("wb") as file:
        assert project_of(file.fileno()) == (0, False)
        answer = struct.pack("5I8x", 0x200, 1, 2, 77, 3)
        monkeypatch.setattr(fcntl, "ioctl", lambda fd, request, buffer: answer if len(buffer) == 28 else None)
        assert project_of(file.fileno()) == (77, True)


# What the owner of a new file can be: the group of the process, another of its groups, or that of the directory.
US, OURS, OTHERS = os.geteuid(), os.getegid(), 4_000_000


@pytest.mark.parametrize(
    ("user", "group", "directory_group", "directory_mode", "can_be"),
    [
        (US, OURS, OTHERS, 0o755, True),
        (US, OTHERS, OTHERS, 0o755, False),
        (US, OTHERS, OTHERS, 0o755 | stat.S_ISGID, True),
        (US, OTHERS + 1, OTHERS, 0o755 | stat.S_ISGID, False),
        (OTHERS, OURS, OURS, 0o755, False),
    ],
)
def test_who_a_new_file_can_belong_to(
    user: int, group: int, directory_group: int, directory_mode: int, can_be: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner: Any = SimpleNamespace(st_uid=user, st_gid=group)
    directory: Any = SimpleNamespace(st_gid=directory_group, st_mode=directory_mode)
    monkeypatch.setattr(access, "may_change_owners", lambda: False)
    assert access.may_give_to(owner, directory) is can_be
    monkeypatch.setattr(access, "may_change_owners", lambda: True)
    assert access.may_give_to(owner, directory)


@pytest.mark.parametrize(
    ("line", "can_change"),
    [("CapEff:\t000001ffffffffff", True), ("CapEff:\t0000000000000001", False), ("CapEff:\t0000000000000009", True)],
)
def test_capabilities_decide_who_is_like_root(line: str, can_change: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path, encoding: f"Name:\tpython\n{line}\n")
    assert access.may_change_owners() is can_change


@pytest.mark.parametrize("text", [DIRTY.replace("3: b=4", "3: c=4"), "log now=10:00\n0: a=1"])
def test_a_partition_with_nothing_to_clean_needs_no_permission_to_clean(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = planned(tmp_path, text)
    no_permission("orders-0")(tmp_path, monkeypatch)
    assert (obstacle(plan, CleanOptions()) is None) == (not plan.eligible)


def test_a_lock_that_another_process_holds_is_no_obstacle(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    with log_dir_lock(tmp_path):
        assert obstacle(plan, CleanOptions(dry_run=True)) is None


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("leader-epoch-checkpoint", "1\n0\n", "version 1 is unknown"),
        ("partition.metadata", "version: 1\ntopic_id: QNLMCLnWRESZK_ap_Xld8w", "version 1 is unknown"),
        ("leader-epoch-checkpoint", "damaged", None),
    ],
)
def test_files_of_unknown_versions(name: str, content: str, problem: str | None, tmp_path: Path) -> None:
    directory = log_writer.write(log_dsl.parse("log\n0: a=1\n1: a=2"), tmp_path / "logs")
    (directory / name).write_text(content)
    log = read_log(directory)
    if problem is None:
        require_known_versions(log)
        return
    with pytest.raises(UnsupportedError, match=f"{name}: line 1: {problem}"):
        require_known_versions(log)
