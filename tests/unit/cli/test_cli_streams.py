"""Standard streams that are closed or full, or whose reader has left; and what the system will not do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kcompact.cli.app import main
from kcompact.cli.output.stage_progress import CleaningProgress
from kcompact.cli.signals import StopRequest
from kcompact.plan import partition as partition_plan
from tests.support.command_line import (
    COMPACT,
    DIRTY,
    clean,
    command,
    digest,
    environment,
    in_shell,
    kcompact,
    partition,
)

CLEAN = ("clean", "--engine", "in-process", *COMPACT)
NO_SPACE = "error: standard output: No space left on device\n"


# Closed streams


@pytest.mark.long
def test_closed_streams_do_not_stop_a_cleaning(tmp_path: Path) -> None:
    for number, closed in enumerate(("2>&-", "<&-", "<&- 2>&-", "2>/dev/full")):
        directory = partition(tmp_path / str(number))
        before = digest(directory)
        ran = in_shell(closed, *CLEAN, "--yes", directory)
        assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), (closed, ran.stderr)
        assert "cleaned" in ran.stdout
        assert digest(directory) != before


@pytest.mark.long
@pytest.mark.parametrize("options", [("--yes",), ("--json",), ("--yes", "--json")])
def test_nothing_is_cleaned_with_standard_output_closed(options: tuple[str, ...], tmp_path: Path) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    ran = in_shell(">&-", *CLEAN, *options, directory)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, "nothing was changed: standard output was closed")
    assert digest(tmp_path) == before


@pytest.mark.long
@pytest.mark.parametrize("arguments", [["inspect"], ["inspect", "--json"], ["records"], ["plan"]])
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_reading_with_standard_output_closed(arguments: list[str], closed: str, tmp_path: Path) -> None:
    ran = in_shell(closed, *arguments, partition(tmp_path))
    assert ran.returncode == 1
    assert ran.stderr == ("" if "2>" in closed else "error: standard output is closed\n")


def test_standard_input_is_looked_at_for_questions_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unread:
        def isatty(self) -> bool:
            raise AssertionError("looked at")

    monkeypatch.setattr("kcompact.cli.consent.sys.stdin", Unread())
    for yes in (True, False):
        directory = partition(tmp_path / str(yes))
        before = digest(directory)
        with pytest.raises(SystemExit) as ended:
            main(["clean", *COMPACT, "--yes" if yes else "--json", str(directory)])
        assert ended.value.code == 0
        assert digest(directory) != before


# Readers that leave, disks that are full


def with_a_reader_who_left(*arguments: str | Path) -> tuple[int, str]:
    """Run a command line into a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        command(*arguments), stdout=writer, stderr=subprocess.PIPE, text=True, check=False, env=environment()
    )
    os.close(writer)
    return ran.returncode, ran.stderr


@pytest.mark.long
def test_who_does_not_see_the_plan_has_not_agreed(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    code, err = with_a_reader_who_left(*CLEAN, "--yes", directory)
    assert (code, err.splitlines()[-1]) == (1, "nothing was changed: standard output was closed")
    ran = in_shell(">/dev/full", *CLEAN, "--yes", directory)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (
        1,
        "nothing was changed: standard output: No space left on device",
    )
    assert digest(tmp_path) == before


@pytest.mark.long
def test_what_is_done_is_done(tmp_path: Path) -> None:
    for name, how in (("a", with_a_reader_who_left), ("b", lambda *words: in_shell(">/dev/full", *words))):
        directory = partition(tmp_path / name)
        before = digest(directory)
        ran: Any = how(*CLEAN, "--json", directory)
        assert digest(directory) != before
        if name == "a":
            assert (ran[0], "Traceback" in ran[1]) == (0, False)
        else:
            assert (ran.returncode, ran.stderr.splitlines()[-1] + "\n") == (1, NO_SPACE)
    assert with_a_reader_who_left("recover", partition(tmp_path / "c")) == (0, "")


@pytest.mark.long
@pytest.mark.parametrize("arguments", [["records"], ["keys"], ["plan"], ["--help"]])
def test_a_reader_who_leaves_ends_a_reading_command_as_sigpipe_does(arguments: list[str], tmp_path: Path) -> None:
    code, err = with_a_reader_who_left(*arguments, partition(tmp_path))
    assert (code, [line for line in err.splitlines() if not line.startswith("note: ")]) == (141, [])


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect"],
        ["inspect", "--json"],
        ["records"],
        ["plan"],
        ["recover"],
        ["--version"],
        ["plan", "--help"],
    ],
)
def test_a_full_disk_behind_standard_output(arguments: list[str], tmp_path: Path) -> None:
    target = [] if arguments[-1] in ("--version", "--help") else [partition(tmp_path)]
    ran = in_shell(">/dev/full", *arguments, *target)
    assert ran.returncode == 1
    assert "No space left on device" in ran.stderr
    assert "fault" not in ran.stderr
    assert "Traceback" not in ran.stderr


def test_progress_that_cannot_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hung:
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

        def write(self, _: str) -> int:
            raise OSError(5, "Input/output error")

        def flush(self) -> None:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("sys.stderr", Hung())
    bar = CleaningProgress(StopRequest(), (), is_quiet=False, only_bars=False)
    progress = bar.of(Path("orders-0"))
    progress.begin("scan", 10)
    progress.advance(10)
    progress.begin("write", 10)
    progress.end()
    bar.end()


# What the operating system will not do


DENIED = "Permission denied\nRun as the user that owns it (the broker's user)."


def denied(path: Path) -> PermissionError:
    return PermissionError(13, "Permission denied", str(path))


@pytest.mark.parametrize("command", ["inspect", "plan", "clean", "recover"])
def test_a_path_that_may_not_be_read(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = partition(tmp_path / "bad"), partition(tmp_path / "good", DIRTY.replace("now=", "name=users-0 now="))
    stat = Path.stat

    def guarded(self: Path, **options: Any) -> os.stat_result:
        if bad.parent in (self, *self.parents):
            raise denied(self)
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", guarded)
    monkeypatch.setattr(os, "access", lambda path, *_, **__: bad.parent not in (Path(path), *Path(path).parents))
    options = {"recover": (), "clean": CLEAN[1:]}.get(command, COMPACT)
    ran = kcompact(command, "--json", *options, bad, good)
    entries = {entry["topic"]: entry for entry in ran.json["partitions"]}
    assert (ran.code, entries["orders"]["exit_code"], entries["users"]["exit_code"]) == (4, 4, 0)
    assert entries["orders"]["error"] == f"{bad}: {DENIED}"
    assert entries["orders"].get("reason") is None
    text = kcompact(command, *options, bad, good)
    assert (text.code, f"error: {bad}: {DENIED}\n" in text.err) == (4, True)
    assert "users-0" in text.out


@pytest.mark.parametrize("command", ["inspect", "plan", "clean"])
def test_a_partition_that_may_not_be_read(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = partition(tmp_path / "bad"), partition(tmp_path / "good", DIRTY.replace("now=", "name=users-0 now="))
    plan_partition = partition_plan.plan_partition

    def guarded(directory: Path, *arguments: Any, **options: Any) -> Any:
        if directory == bad:
            raise denied(bad / "somewhere")
        return plan_partition(directory, *arguments, **options)

    monkeypatch.setattr(partition_plan, "plan_partition", guarded)
    ran = kcompact(command, "--json", *(("--engine", "in-process") if command == "clean" else ()), *COMPACT, bad, good)
    entries = {entry["topic"]: entry for entry in ran.json["partitions"]}
    assert (ran.code, entries["users"]["exit_code"], entries["users"]["reason"]) == (4, 0, "dirty-ratio")
    assert (entries["orders"]["error"], entries["orders"]["reason"]) == (f"{bad}/somewhere: {DENIED}", None)


def test_a_recovery_that_is_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)

    def fail(*_: Any, **__: Any) -> Any:
        raise denied(directory)

    monkeypatch.setattr("kcompact.swap.recovery.begin_recovery", fail)
    ran = kcompact("recover", "--json", directory)
    assert (ran.code, ran.partition["error"]) == (4, f"{directory}: {DENIED}")


def test_an_error_of_the_system_is_no_fault(tmp_path: Path) -> None:
    directory = partition(tmp_path / "data")
    (tmp_path / "file").touch()
    ran = clean("--output", tmp_path / "file" / "out", directory)
    assert ran.code == 1
    assert "Not a directory" in ran.err
    assert "fault" not in ran.err
    ran = kcompact("plan", "--broker-config", tmp_path / "file" / "x", directory)
    assert (ran.code, "fault" in ran.err) == (2, False)


@pytest.mark.parametrize("command", ["inspect", "plan", "clean"])
def test_a_fault_outside_a_partition_ends_it(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise denied(tmp_path / "where")

    monkeypatch.setattr("kcompact.config.resolve.configurations", fail)
    ran = kcompact(command, *COMPACT, partition(tmp_path))
    assert (ran.code, ran.err.endswith(f"error: {tmp_path / 'where'}: {DENIED}\n")) == (4, True)
