"""Standard streams that are closed or full, or whose reader has left; and what the system will not do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

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
from tests.support.forks import GONE, Run, forked

CLEAN = ("clean", "--engine", "in-process", *COMPACT)
NO_SPACE = "error: standard output: No space left on device\n"


# Closed streams


@pytest.mark.long
@pytest.mark.parametrize(
    "closed",
    [
        "<&- 2>&-",
        "2>/dev/full",
        pytest.param("2>&-", marks=pytest.mark.slow),
        pytest.param("<&-", marks=pytest.mark.slow),
    ],
)
def test_closed_streams_do_not_stop_a_cleaning(closed: str, tmp_path: Path) -> None:
    directory = partition(tmp_path)
    before = digest(directory)
    ran = in_shell(closed, *CLEAN, "--yes", directory)
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), (closed, ran.stderr)
    assert "cleaned" in ran.stdout
    assert digest(directory) != before


@pytest.mark.long
@pytest.mark.parametrize(
    "options", [("--yes",), ("--json",), pytest.param(("--yes", "--json"), marks=pytest.mark.slow)]
)
def test_nothing_is_cleaned_with_standard_output_closed(options: tuple[str, ...], tmp_path: Path) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    ran = in_shell(">&-", *CLEAN, *options, directory)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, "nothing was changed: standard output was closed")
    assert digest(tmp_path) == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("closed", "arguments"),
    [
        pytest.param(closed, words, marks=() if words == kept else pytest.mark.slow)
        for closed, kept in ((">&-", ["inspect", "--json"]), ("<&- >&- 2>&-", ["records"]))
        for words in (["inspect"], ["inspect", "--json"], ["records"], ["plan"])
    ],
)
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


FULL = "/dev/full"
READING = ["inspect", "inspect --json", "records", "plan", "recover", "--version", "plan --help"]
PIPED = ["records", "keys", "plan", "--help"]
CHANGING = {
    "unseen, gone": ((*CLEAN, "--yes"), GONE),
    "unseen, full": ((*CLEAN, "--yes"), FULL),
    "done, gone": ((*CLEAN, "--json"), GONE),
    "done, full": ((*CLEAN, "--json"), FULL),
    "recovered": (("recover",), GONE),
}


class Left(NamedTuple):
    """What a command left behind, and whether it has changed anything."""

    code: int
    err: str
    is_changed: bool


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Left]:
    """What commands leave that nobody can read, by their words and their standard output. They share a Python."""
    directories, runs = {}, {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        lines = {(words, GONE): (words.split(), GONE) for words in PIPED}
        lines |= {(words, FULL): (words.split(), FULL) for words in READING}
        lines |= {(name, stdout): ([*words], stdout) for name, (words, stdout) in CHANGING.items()}
        for key, (words, stdout) in lines.items():
            directories[key] = partition(tmp_path_factory.mktemp("logs"))
            target = [] if words[-1] in ("--version", "--help") and stdout == FULL else [directories[key]]
            runs[key] = Run(arguments=[*words, *target], stdout=stdout)
    before = {key: digest(directory.parent) for key, directory in directories.items()}
    return {
        key: Left(ran.returncode, ran.stderr, digest(directories[key].parent) != before[key])
        for key, ran in zip(runs, forked([*runs.values()]), strict=True)
    }


@pytest.mark.long
def test_who_does_not_see_the_plan_has_not_agreed(left: dict[tuple[str, str], Left]) -> None:
    for key, problem in (
        (("unseen, gone", GONE), "standard output was closed"),
        (("unseen, full", FULL), "standard output: No space left on device"),
    ):
        ran = left[key]
        assert (ran.code, ran.err.splitlines()[-1]) == (1, f"nothing was changed: {problem}")
        assert not ran.is_changed


@pytest.mark.long
def test_what_is_done_is_done(left: dict[tuple[str, str], Left]) -> None:
    gone, full = left["done, gone", GONE], left["done, full", FULL]
    assert gone.is_changed
    assert full.is_changed
    assert (gone.code, "Traceback" in gone.err) == (0, False)
    assert (full.code, full.err.splitlines()[-1] + "\n") == (1, NO_SPACE)
    assert left["recovered", GONE][:2] == (0, "")


@pytest.mark.long
@pytest.mark.parametrize("words", PIPED)
def test_a_reader_who_leaves_ends_a_reading_command_as_sigpipe_does(
    words: str, left: dict[tuple[str, str], Left]
) -> None:
    ran = left[words, GONE]
    assert (ran.code, [line for line in ran.err.splitlines() if not line.startswith("note: ")]) == (141, [])


@pytest.mark.long
@pytest.mark.parametrize("words", READING)
def test_a_full_disk_behind_standard_output(words: str, left: dict[tuple[str, str], Left]) -> None:
    ran = left[words, FULL]
    assert ran.code == 1
    assert "No space left on device" in ran.err
    assert "fault" not in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.slow
def test_a_process_of_its_own_ends_in_the_same_way(tmp_path: Path) -> None:
    """The tests above fork processes; a fresh interpreter does the same at its end."""
    directory = partition(tmp_path)
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        command("keys", directory), stdout=writer, stderr=subprocess.PIPE, text=True, check=False, env=environment()
    )
    os.close(writer)
    said = [line for line in ran.stderr.splitlines() if not line.startswith("note: ")]
    assert (ran.returncode, said) == (141, [])
    ran = in_shell(f">{FULL}", "inspect", "--json", directory)
    assert ran.returncode == 1
    assert "No space left on device" in ran.stderr


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
    # The other directory may be of the same broker, and nobody knows what is being moved there.
    options = {"recover": (), "clean": (*CLEAN[1:], "--yes")}.get(command, COMPACT)
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

    monkeypatch.setattr("kcompact.swap.recovery.interrupted_round.begin_recovery", fail)
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
