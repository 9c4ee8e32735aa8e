"""What a person reads: the question, errors that many partitions share, totals, and what to do next."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kcompact.cli import consent, signals
from kcompact.cli.output import streams
from kcompact.config import listener
from kcompact.errors import ClusterUnreachableError, CorruptBatchError
from tests.support.command_line import (
    COMPACT,
    DIRTY,
    LOG0,
    NOW,
    Ran,
    flip,
    kcompact,
    leave_swap,
    on_terminals,
    partition,
    running_broker,
    settings,
)

CLEAN = ("clean", "--engine", "in-process", *COMPACT)
LIMITS = ("--config", "*:retention.ms=0", "--config", "*:retention.bytes=-1")
RETAIN = ("--apply-retention", *LIMITS, "--config", "*:cleanup.policy=compact,delete", "--now", NOW)
STAGING = ".kcompact-0123456789abcdef"


def partitions(log_dir: Path, count: int = 5, words: str = "hw=7") -> Path:
    for number in range(count):
        partition(log_dir, settings(f"{words} name=orders-{number}"))
    return log_dir


def at_the_question(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[], bool], *arguments: str | Path
) -> tuple[Ran, str]:
    """Run a command line as on a terminal, and answer its question; return the question too."""
    asked: list[str] = []

    def confirm(question: str, **_: object) -> bool:
        asked.append(question)
        return answer()

    monkeypatch.setattr(consent, "is_needed", lambda *_, **__: True)
    monkeypatch.setattr("click.confirm", confirm)
    return kcompact(*arguments), asked[0]


# Retention


@pytest.mark.parametrize(
    ("log", "question"),
    [
        (DIRTY, "Clean 1 partition, 419 B of segments? Each segment that is replaced is deleted, and retention deletes "
         "2 segments, 419 B."),
        (settings("checkpoint=6"), "Nothing is to be cleaned, but retention deletes 2 segments, 419 B. Go on?"),
    ],
)  # fmt: skip
def test_the_question_says_what_retention_deletes(
    log: str, question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("clean", "--engine", "in-process", *RETAIN, partition(tmp_path, log))
    ran, asked = at_the_question(monkeypatch, lambda: False, *arguments)
    assert (ran.code, asked) == (130, question)


def test_retention_in_the_totals(tmp_path: Path) -> None:
    arguments = ("clean", "--engine", "in-process", *RETAIN)
    out = kcompact(*arguments, "--dry-run", partitions(tmp_path)).out
    assert "retention deletes 10 segments, 2.0 KiB" in out
    assert "retention would delete" in out
    out = kcompact(*arguments, tmp_path).out
    assert "retention deletes 10 segments, 2.0 KiB" in out
    assert "retention deleted 1 segment (base offset 0)" in out
    assert "\nretention deleted 9 segments, 1.9 KiB\n" in out
    assert "retention" not in kcompact(*CLEAN, tmp_path).out


# Signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_only_ctrl_c_speaks_of_ctrl_c(number: int, capfd: pytest.CaptureFixture[str]) -> None:
    stop = signals.StopRequest()
    stop.is_deferred = True
    stop.on_signal(number, None)
    written = capfd.readouterr().err
    assert "stopping after the current step" in written
    assert ("Ctrl-C" in written) == (number == signal.SIGINT)


def test_a_second_ctrl_c_says_what_to_do(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    stop = signals.StopRequest()
    stop.is_deferred = True
    stop.exit_code = 130
    stop.on_signal(signal.SIGINT, None)
    assert codes == [130]
    assert "stopped at once; run `kcompact recover` before anything else\n" in capfd.readouterr().err


# Errors of many partitions


def test_a_lock_is_one_message_and_no_table(tmp_path: Path) -> None:
    with running_broker(partitions(tmp_path)):
        for command in (CLEAN, ("recover",)):
            ran = kcompact(*command, tmp_path)
            assert (ran.code, ran.out, ran.err.count("holds this lock")) == (5, "", 1)


def test_a_locked_directory_beside_another(tmp_path: Path) -> None:
    other = partition(tmp_path / "other")
    with running_broker(partitions(tmp_path / "logs")):
        ran = kcompact(*CLEAN, tmp_path / "logs", other)
    assert (ran.code, ran.err.count("holds this lock")) == (5, 1)
    assert "locked" not in ran.out.partition("6 partitions, ")[0]
    assert "6 partitions, 489 B (size of 5 unknown): 1 to clean, 5 locked\n" in ran.out
    assert "\n6 partitions: 1 cleaned, 5 failed\n" in ran.out


def test_sizes_are_those_of_the_planned(tmp_path: Path) -> None:
    leave_swap(partition(partitions(tmp_path), settings("hw=7 name=half-swapped-0")))
    out = kcompact(*CLEAN, "--topic", "*", tmp_path).out
    assert "6 partitions, 2.4 KiB (size of 1 unknown): 5 to clean, 1 leftovers\n" in out


# What to do next


@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize("options", [("plan", *COMPACT), (*CLEAN, "--dry-run"), CLEAN])
def test_leftovers_name_who_ends_the_swap(is_own: bool, options: tuple[str, ...], tmp_path: Path) -> None:
    directory = partition(tmp_path)
    leave_swap(directory)
    if is_own:
        (directory / STAGING).mkdir()
    ran = kcompact(*options, directory)
    assert ran.code == (0 if options[0] == "plan" else 8)
    if options == CLEAN:
        return  # It recovers first.
    assert ("run kcompact recover" in ran.out) == is_own
    assert ("start that broker once and stop it" in ran.out) != is_own
    assert "Run `kcompact recover` first" not in ran.err


def test_a_damaged_batch_names_the_next_step(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    flip(directory / LOG0, 65)
    ran = kcompact(*CLEAN, directory)
    assert ran.code == 3
    assert "\nRestore this segment from a replica or a backup" in ran.err
    assert "Restore this segment" not in ran.out
    assert "`kcompact verify DIR` lists all damage" in ran.err
    assert "`findings(log)` lists all damage" in str(CorruptBatchError(file="x", problem="y"))


def test_nothing_is_left_out_of_a_path_without_partitions(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for arguments in (CLEAN, ("plan", *COMPACT), ("inspect", *COMPACT)):
        ran = kcompact(*arguments, tmp_path)
        assert (ran.code, "left out" in ran.out) == (4, False)


@pytest.mark.parametrize(
    ("options", "start"),
    [
        (("--master", "nonsense"), "error: --master: 'nonsense' is not a Spark master"),
        (("--engine", "in-process", "--master", "local"), "error: --engine: in-process does not use a Spark master"),
        (
            ("--config", "cleanup.policy=compactt"),
            "error: cleanup.policy: 'compactt' must be compact, delete or both\n",
        ),
    ],
)
def test_wrong_options_are_named(options: tuple[str, ...], start: str, tmp_path: Path) -> None:
    ran = kcompact("clean", *options, partition(tmp_path))
    assert (ran.code, ran.err.startswith(start)) == (2, True), ran.err


def test_help_says_when_there_is_no_question() -> None:
    assert "with --json, kcompact never asks" in " ".join(kcompact("clean", "--help").out.split())


# Addresses


def test_several_addresses_are_tried_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def check(address: str, *_: object) -> None:
        tried.append(address)
        if address != "b:2":
            raise ClusterUnreachableError(address=address, problem="down")

    monkeypatch.setattr(listener, "check_listener", check)
    assert listener.usable_address("a:1,b:2,c:3") == "b:2"
    assert tried == ["a:1", "b:2"]
    with pytest.raises(ClusterUnreachableError, match="c:3: down"):
        listener.usable_address("a:1,c:3")


def test_an_address_of_a_list_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_connection", None)
    ran = kcompact("plan", "--bootstrap-server", "a:1,b", tmp_path)
    assert (ran.code, "'b' is not HOST:PORT" in ran.err) == (2, True)


# Terminals


def test_messages_are_wrapped_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"/{'deep/' * 20}orders-0"
    message = f"error: {path}: no such directory\n  a second line that is rather long, indented"
    monkeypatch.setattr(sys.stderr, "fileno", lambda: 2, raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda number: os.terminal_size((30, 24)))
    assert streams.wrapped(message).split("\n") == [
        "error:",
        f"{path}:",
        "no such directory",
        "  a second line that is rather",
        "  long, indented",
    ]


def test_messages_are_not_wrapped_in_pipes() -> None:
    assert streams.wrapped("error " * 100) == "error " * 100


@pytest.mark.long
def test_skipped_partitions_have_no_second_row(tmp_path: Path) -> None:
    partitions(tmp_path, 2)
    for number in range(4):
        partition(tmp_path, settings(f"hw=7 checkpoint=6 name=clean-{number}"))
    lines, all_lines = on_terminals([(100, (*CLEAN, "-y", tmp_path)), (100, (*CLEAN, "-y", "-v", tmp_path))])
    last = lines[max(at for at, line in enumerate(lines) if line.startswith("partition ")) :]
    assert not any(line.startswith("clean-") for line in last)
    assert "skipped: 4 active-only" in last
    last = all_lines[max(at for at, line in enumerate(all_lines) if line.startswith("partition ")) :]
    assert sum(line.startswith("clean-") for line in last) == 4
