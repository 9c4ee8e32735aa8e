"""`clean` with bad input, locks, full disks and faults: an exit code, a clear message, and nothing changed."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from functools import partial as bound
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fixtures import checkout
from kcompact.clean import prepare
from kcompact.cleaner import cleaning
from kcompact.cleaner import round_end as ending_module
from kcompact.errors import LogChangedError, NotEnoughSpaceError
from kcompact.plan import partition as partition_plan
from kcompact.swap import staging
from tests.support.command_line import (
    COMPACT,
    COMPACTED,
    LOG0,
    LOG3,
    LOG6,
    Ran,
    clean,
    digest,
    flip,
    kcompact,
    leave_swap,
    note_texts,
    partition,
    running_broker,
    settings,
    values,
)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def remove_mark(directory: Path) -> None:
    (directory.parent / ".kafka_cleanshutdown").unlink()


def not_a_partition(directory: Path) -> None:
    for log in directory.glob("*.log"):
        log.unlink()


POLICY = ("--config", "cleanup.policy=compact")
BAD: list[tuple[str, Callable[[Path], Any], tuple[str, ...], int, str]] = [
    ("corrupt batch", lambda d: flip(d / LOG0, 65), POLICY, 3, "checksum"),
    ("torn segment", lambda d: cut(d / LOG3), POLICY, 3, LOG3),
    ("torn active segment", lambda d: cut(d / LOG6), POLICY, 3, LOG6),
    ("overlapping segments", lambda d: flip(d / LOG0, 7, 0x40), POLICY, 3, "the next segment starts at 3"),
    ("no log", not_a_partition, POLICY, 4, "not a partition directory"),
    ("unclean shutdown", remove_mark, POLICY, 4, "not shut down cleanly"),
    (
        "unknown policy value",
        lambda d: None,
        ("--config", "cleanup.policy=compactt"),
        2,
        "'compactt' must be compact, delete or both",
    ),
    ("no policy", lambda d: None, (), 4, "--config orders:cleanup.policy=compact"),
    ("tiered", lambda d: None, (*POLICY, "--config", "remote.storage.enable=true"), 4, "tiered"),
    ("a broker's swap", leave_swap, POLICY, 8, "interrupted swap"),
    ("corrupt checkpoint", lambda d: (d.parent / "cleaner-offset-checkpoint").write_text("9\n"), POLICY, 3, "version"),
]


@pytest.mark.parametrize("how", [(), ("--dry-run",), ("--output",)], ids=["clean", "dry-run", "output"])
@pytest.mark.parametrize(("harm", "options", "code", "problem"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_input_changes_nothing(
    harm: Callable[[Path], Any], options: tuple[str, ...], code: int, problem: str, how: tuple[str, ...], tmp_path: Path
) -> None:
    directory = partition(tmp_path / "data")
    harm(directory)
    before = digest(tmp_path)
    how = (*how, str(tmp_path / "data2")) if how == ("--output",) else how
    # The log directory, because a directory without a log is none to start with.
    ran = kcompact("clean", "--engine", "in-process", "--now", COMPACT[-1], *options, *how, directory.parent)
    assert ran.code == code, ran.err
    assert problem in ran.err
    assert "Traceback" not in ran.err
    assert {name: was for name, was in digest(tmp_path).items() if name != "data2"} == before


def test_one_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    bad, good = partition(tmp_path), partition(tmp_path / "x", settings("name=users-0"))
    worse = partition(tmp_path / "y", settings("name=zebra-0 unclean"))
    flip(bad / LOG0, 65)
    both = clean(bad, good)
    statuses = {entry["topic"]: (entry["status"], entry["exit_code"]) for entry in both.json["partitions"]}
    assert (both.code, statuses) == (3, {"orders": ("failed", 3), "users": ("cleaned", 0)})
    assert clean(bad, worse).code == clean(worse, bad).code == 3  # The gravest of 3 and 4.


def test_a_running_broker_locks_us_out(tmp_path: Path) -> None:
    directory = partition(tmp_path / "data")
    free = partition(tmp_path / "free", settings("name=users-0"))
    before = digest(tmp_path / "data")
    with running_broker(tmp_path / "data"):
        ran = clean(directory, free)
        assert kcompact("plan", *COMPACT, directory).code == 0
        assert kcompact("recover", directory).code == 5
    assert ran.code == 5
    assert ") holds this lock" in ran.err
    assert {entry["topic"]: entry["exit_code"] for entry in ran.json["partitions"]} == {"orders": 5, "users": 0}
    assert digest(tmp_path / "data") == before


def test_a_dry_run_beside_a_running_broker_notes_the_lock(tmp_path: Path) -> None:
    directories = [partition(tmp_path, settings(f"name={name}-0")) for name in ("a", "b")]
    before = digest(tmp_path)
    with running_broker(tmp_path):
        ran = clean("--dry-run", *directories)
    assert [(entry["status"], entry["exit_code"]) for entry in ran.json["partitions"]] == [("dry-run", 0)] * 2
    assert (ran.code, ran.complaints.count("note: "), "the cleaning itself has to wait" in ran.err) == (0, 2, True)
    assert digest(tmp_path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone without permission")
def test_a_directory_of_someone_else(tmp_path: Path) -> None:
    # All modules are loaded: nobody may not read them.
    assert kcompact("clean", "--dry-run", "--engine", "in-process", *COMPACT, partition(tmp_path)).code == 0
    with tempfile.TemporaryDirectory() as root:
        log_dir = Path(root)
        log_dir.chmod(0o755)
        directory = partition(log_dir)
        (log_dir / ".lock").touch()
        (log_dir / ".lock").chmod(0o666)
        before = digest(log_dir)
        for mode, problem in ((0o666, "cannot be written to"), (0o600, "cannot be opened")):
            (log_dir / ".lock").chmod(mode)
            for how in ((), ("--dry-run",)):
                code, err = as_nobody(bound(kcompact, "clean", "--engine", "in-process", *how, *COMPACT, directory))
                assert (code, f"{problem}: Permission denied" in err) == (4, True), err
        assert digest(log_dir) == before

        # All is theirs, except one file that they can only read.
        for path in (log_dir, *log_dir.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        os.chown(directory / LOG0, NOBODY + 1, NOBODY)
        for how in ((), ("--dry-run",)):
            code, err = as_nobody(bound(kcompact, "clean", "--engine", "in-process", *how, *COMPACT, directory))
            assert (
                code,
                f"{LOG0}: its owner (user id {NOBODY + 1}; a new file has {NOBODY}) cannot be copied" in err,
            ) == (4, True), err
        assert digest(log_dir) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone without permission")
@pytest.mark.usefixtures("among_others")
def test_an_ordinary_user_needs_no_more_than_the_files() -> None:
    cleaning = ("clean", "--engine", "in-process", *COMPACT)
    answers: list[tuple[int, str]] = []
    for user in (lambda run: (run().code, ""), as_nobody):  # The first time all modules are loaded.
        with tempfile.TemporaryDirectory() as root:
            directory = partition(Path(root) / "data")
            for path in (Path(root), *Path(root).rglob("*")):
                os.chown(path, NOBODY, NOBODY)
            answers = [
                user(bound(kcompact, *arguments, directory))
                for arguments in (
                    ("verify", *COMPACT),
                    ("plan", *COMPACT),
                    (*cleaning, "--dry-run"),
                    (*cleaning, "--output", f"{root}/copy"),
                    cleaning,
                    ("recover",),
                )
            ]
            assert values(directory) == values(Path(root) / "copy" / directory.name) == COMPACTED
    assert [code for code, _ in answers] == [0] * len(answers)
    assert ["not seen are the open files of" in err for _, err in answers] == [False, False, False, True, True, False]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone without permission")
@pytest.mark.parametrize("name", ["", LOG0])
def test_what_nobody_may_read(name: str, tmp_path: Path) -> None:
    # All modules are loaded: nobody may not read them.
    assert kcompact("clean", "--dry-run", "--engine", "in-process", *COMPACT, partition(tmp_path)).code == 0
    with tempfile.TemporaryDirectory() as root:
        log_dir = Path(root)
        log_dir.chmod(0o755)
        directory = partition(log_dir)
        (log_dir / ".lock").touch()
        (log_dir / ".lock").chmod(0o666)
        (directory / name).chmod(0o700 if not name else 0o600)
        for how in ((), ("--dry-run",)):
            code, err = as_nobody(bound(kcompact, "clean", "--engine", "in-process", *how, *COMPACT, directory))
            assert (code, "Permission denied" in err, "(the broker's user)" in err) == (4, True, True), err


NOBODY = 65534


def as_nobody(run: Callable[[], Ran]) -> tuple[int, str]:
    """Return exit code and standard error of a command that a user without any right has run."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            ran = run()
            os.write(write, ran.err.encode())
            os._exit(ran.code)
        finally:
            os._exit(99)
    os.close(write)
    with open(read, encoding="utf-8") as stream:
        err = stream.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), err


def test_too_little_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=0, f_frsize=4096, f_flag=0))
    for how, status in (((), "failed"), (("--dry-run",), "dry-run")):
        ran = clean(*how, directory)
        entry = ran.partition
        assert (ran.code, entry["exit_code"], entry["status"]) == (NotEnoughSpaceError.exit_code, 7, status)
        assert "not enough free space" in entry["error"]
        assert entry["error"] in ran.err
        assert digest(tmp_path) == before
    # The dry run has counted nevertheless.
    assert (entry["eligible"], entry["messages_read"], entry["messages_written"]) == (True, 6, 4)
    shown = kcompact("clean", "--dry-run", "--engine", "in-process", *COMPACT, directory)
    assert (shown.code, "would stop: " in shown.out) == (7, True)


def test_a_disk_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    ran = clean(directory)
    monkeypatch.undo()
    assert (ran.code, digest(tmp_path)) == (7, before)


def test_a_log_that_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    prepare_clean = prepare.prepare_clean

    def touched(*arguments: Any, **options: Any) -> Any:
        cleaning_ = prepare_clean(*arguments, **options)
        os.utime(directory / LOG0)
        return cleaning_

    monkeypatch.setattr(cleaning, "prepare_clean", touched)
    ran = clean(directory)
    assert ran.code == LogChangedError.exit_code
    assert (directory / LOG3).exists()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_staging_directory_that_stays_is_named(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path / "data")

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "rmdir", fails)
    ran = clean(directory)
    monkeypatch.undo()
    (left,) = directory.glob(".kcompact-*")
    assert (ran.code, ran.partition["status"], ran.partition["error"]) == (0, "cleaned", None)
    note = note_texts(ran.partition)[-1]
    assert str(left) in note
    assert os.strerror(number) in note
    assert f"note: {note}" in ran.err
    assert clean(directory).code == 0
    assert not left.exists()


def link(path: Path) -> None:
    path.symlink_to(path.with_name("moved"))


@pytest.mark.parametrize("replace", [link, Path.touch, Path.mkdir])
@pytest.mark.parametrize("call", ["stat", "rmdir"])
def test_a_staging_directory_that_is_replaced_at_the_end(
    call: str, replace: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = partition(tmp_path / "data")
    really = getattr(os, call)

    def replaced(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(os, call, really)
        (path,) = directory.glob(".kcompact-*")
        path.rename(directory / "moved")
        replace(path)
        return really(*arguments, **options)

    def begin(*arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(os, call, replaced)
        staging.discard(*arguments, **options)

    monkeypatch.setattr(ending_module, "discard", begin)
    ran = clean(directory)
    if (call, replace) == ("rmdir", Path.mkdir):  # Empty, as the own one was.
        assert ran.code == 0
        return
    assert (ran.code, ran.partition["status"]) == (6, "cleaned")
    assert "was replaced while kcompact was using it" in ran.partition["error"]
    assert values(directory) == COMPACTED


def test_a_fault_of_ours_is_one_partitions_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directories = [partition(tmp_path / name, settings(f"name={name}-0")) for name in ("a", "b")]
    prepare_clean = prepare.prepare_clean

    def fails_once(plan: Any, *arguments: Any, **options: Any) -> Any:
        if plan.log.topic_partition.topic == "a":
            raise ZeroDivisionError("oops")
        return prepare_clean(plan, *arguments, **options)

    monkeypatch.setattr(cleaning, "prepare_clean", fails_once)
    ran = clean(*directories)
    assert (ran.code, [entry["status"] for entry in ran.json["partitions"]]) == (1, ["failed", "cleaned"])
    assert "Traceback" not in ran.err
    assert "unexpected error" in ran.json["partitions"][0]["error"]


def test_unexpected_errors_show_no_traceback_but_with_debug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)

    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("\x1b[31mred")

    monkeypatch.setattr(partition_plan, "plan_partition", fail)
    ran = clean(directory)
    assert (ran.code, "Traceback" in ran.err, "\x1b" in ran.err) == (1, False, False)
    assert "ZeroDivisionError" in ran.err
    assert "--debug" in ran.err
    assert "Traceback" in clean("--debug", directory).err


def test_each_path_is_handled_by_itself(tmp_path: Path) -> None:
    directory, nowhere = partition(tmp_path / "data"), tmp_path / "nowhere"
    recovered = kcompact("recover", "--json", nowhere, directory)
    assert (recovered.code, [entry["status"] for entry in recovered.json["partitions"]]) == (
        4,
        ["nothing-to-do", "failed"],
    )
    ran = clean(nowhere, directory)
    assert (ran.code, ran.err.splitlines()[-1]) == (4, f"error: {nowhere}: no such directory")
    assert [(entry["status"], entry["exit_code"], entry["reason"]) for entry in ran.json["partitions"]] == [
        ("cleaned", 0, "dirty-ratio"),
        ("failed", 4, None),
    ]
    assert values(directory) == COMPACTED
    ran = kcompact("clean", "--engine", "in-process", *COMPACT, nowhere)
    assert (ran.code, f"error: {nowhere}: no such directory\n" in ran.err) == (4, True)


def test_a_lock_says_nothing_about_the_partition(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    with running_broker(tmp_path):
        entry = clean(directory).partition
    assert (entry["exit_code"], entry["reason"]) == (5, None)


def test_the_metadata_log_is_never_cleaned(tmp_path: Path) -> None:
    log_dir = checkout.copy_directory("broker", "before", tmp_path / "logs")
    directory = log_dir / "__cluster_metadata-0"
    before = digest(directory)
    ran = clean("--include-internal", "--force", directory)
    assert (ran.code, ran.partition["reason"], ran.partition["status"]) == (4, "internal", "failed")
    assert "--include-internal" not in ran.partition["error"]
    assert digest(directory) == before
