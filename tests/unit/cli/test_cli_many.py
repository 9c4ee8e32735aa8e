"""Log directories with many partitions: reports of one screen, one error once, totals, and the next command."""

from __future__ import annotations

import os
import re
import shlex
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kcompact.cleaner import engines
from kcompact.cli.output import progress
from kcompact.cli.output.next_command import command_after
from kcompact.engine.in_process import InProcess
from kcompact.engine.spark import context
from kcompact.errors import EngineError
from tests.support.command_line import (
    COMPACT,
    after_notes,
    clean,
    flip,
    kcompact,
    on_terminal,
    on_terminals,
    partition,
    running_broker,
    settings,
)
from tests.support.many_partitions import write_many

CLEAN = ("clean", "--engine", "in-process", *COMPACT)
SCREEN = 24
"""The lines of the terminals of `on_terminal`."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with 53 partitions, 3 of them to be cleaned; two are corrupt, two half-swapped. Not to change."""
    return write_many(tmp_path_factory.mktemp("many") / "logs", one_in=4)


@pytest.fixture(scope="module")
def two_hundred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with 200 partitions of all kinds. Not to change."""
    return write_many(tmp_path_factory.mktemp("two-hundred") / "logs")


@pytest.fixture
def dirty(tmp_path: Path) -> Path:
    """A log directory with 5 partitions to be cleaned and one that is clean."""
    log_dir = tmp_path / "logs"
    for number in range(5):
        partition(log_dir, settings(f"hw=7 name=orders-{number}"))
    partition(log_dir, settings("hw=7 checkpoint=6 name=clean-0"))
    return log_dir


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_many_inspected_partitions_are_summed_up(command: str, many: Path) -> None:
    ran = kcompact(command, *COMPACT, many)
    sums = [line for line in ran.out.splitlines() if re.match(r"\d+ partitions, \d+ segments, ", line)]
    failed = sum(entry["error"] is not None for entry in kcompact(command, "--json", *COMPACT, many).json["partitions"])
    assert len(sums) == 1
    assert failed
    assert sums[0].endswith(f": {failed} with an error")


def test_a_few_inspected_partitions_are_not_summed_up(dirty: Path) -> None:
    assert " segments, " not in kcompact("inspect", *COMPACT, dirty).out


def errors_of(ran_err: str) -> list[str]:
    return [line for line in ran_err.splitlines() if line.startswith("error: ")]


# The plan


@pytest.mark.long
def test_two_hundred_partitions_fit_on_a_screen(two_hundred: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(two_hundred.parent)
    for width, lines in on_terminal((60, 80, 120), "plan", *COMPACT, "logs").items():
        report = after_notes(lines[: next(n for n, line in enumerate(lines) if line.startswith("next: ")) + 1])
        assert len(report) <= SCREEN + 9, report  # The terminal breaks some lines.
        assert (
            report[0].split() == ["partition", "size", "clean", "dirty", "ratio", "reason", "why"][: 6 + (width > 60)]
        )
        assert "and 7 more to clean; -v lists them" in report
        assert any(re.match(r"below-ratio +60  28.7 KiB  below \(60\)$", line) for line in report), report
        assert "200 partitions, 77.8 KiB: 12 to clean, 188 not" in report
        assert "rewrites 4.9 KiB: 4.9 KiB dirty, 0 B clean" in report
        assert not any("->" in line for line in report), "details of single partitions"
        assert report[-1] == f"next: kcompact clean {' '.join(COMPACT)} logs"
        assert max(map(len, report[:-1])) <= width


def test_a_pipe_gets_a_row_for_each_partition(many: Path) -> None:
    out = kcompact("plan", *COMPACT, many).out
    rows = out.partition("\n\n")[0].splitlines()
    verdicts = Counter(re.split(r"  +", row)[6] for row in rows[1:])
    assert verdicts == {
        **dict.fromkeys(("empty", "high-watermark"), 5),
        **dict.fromkeys(("corrupt", "leftovers"), 2),
        "dirty-ratio": 3,
        "below-ratio": 15,
        "active-only": 10,
        "internal": 11,
    }
    counts = (
        "3 to clean, 15 below-ratio, 11 internal, 10 active-only, 5 empty, 5 high-watermark, 2 corrupt, 2 leftovers"
    )
    assert f"53 partitions, 20.9 KiB: {counts}\n" in out
    assert out.count("checkpoint none -> 6") == 3, "the details of so few"


def test_details_of_many_only_with_verbose(dirty: Path) -> None:
    assert "->" not in kcompact("plan", *COMPACT, dirty).out
    assert kcompact("plan", "-v", *COMPACT, dirty).out.count("  checkpoint none -> 6\n") == 5
    assert kcompact("plan", "-v", "-q", *COMPACT, dirty).code == 2


def test_quiet(tmp_path: Path) -> None:
    many = write_many(tmp_path / "logs", one_in=4)
    ran = kcompact("plan", "-q", *COMPACT, many)
    assert ran.out.splitlines()[1:] == ["rewrites 1.2 KiB: 1.2 KiB dirty, 0 B clean"]
    assert ran.out.startswith("53 partitions, 20.9 KiB: 3 to clean, 15 below-ratio")
    (error,) = errors_of(ran.err)
    ran = kcompact(*CLEAN, "--quiet", many)
    assert (ran.out, len(errors_of(ran.err))) == ("", 2)
    assert errors_of(ran.err)[0] == error


def test_a_note_that_all_have_is_printed_once(tmp_path: Path) -> None:
    for number in range(5):
        partition(tmp_path, settings(f"name=orders-{number}"))
    note = "note: no replication-offset-checkpoint: high watermark taken as the log end"
    assert kcompact("plan", *COMPACT, tmp_path).out.splitlines().count(note) == 1
    partition(tmp_path, settings("hw=7 name=users-0"))
    out = kcompact("plan", *COMPACT, "--high-watermark", "leo", tmp_path).out
    assert "note:" not in out


# Errors


def test_a_lock_is_one_error(many: Path) -> None:
    with running_broker(many):
        text, json = kcompact(*CLEAN, many), clean(many)
    (error,) = errors_of(text.err)
    assert re.fullmatch(rf"error: {re.escape(str(many))}/.lock: python\S* \(process \d+\) holds this lock", error)
    assert re.search(r"^53 partitions: \S+-0, \S+, \S+ and 50 more$", text.err, re.MULTILINE)
    assert (text.code, {entry["exit_code"] for entry in json.json["partitions"]}) == (5, {5})
    assert all(") holds this lock" in entry["error"] for entry in json.json["partitions"])


def test_a_corrupt_checkpoint_of_the_log_directory_is_one_error(dirty: Path) -> None:
    (dirty / "cleaner-offset-checkpoint").write_text("9\n")
    for command in ("plan", *COMPACT), CLEAN:
        ran = kcompact(*command, dirty)
        assert (ran.code, len(errors_of(ran.err))) == (3, 1)
        assert f"{dirty}/cleaner-offset-checkpoint" in ran.err
        assert "6 partitions: " in ran.err


def test_an_unknown_policy_is_one_error_for_all_topics(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1", "users-0", "a-0"):
        partition(tmp_path, settings(f"hw=7 name={name}"))
    ran = kcompact("clean", "--engine", "in-process", "--now", COMPACT[-1], tmp_path)
    assert ran.err.splitlines() == [
        "error: the cleanup.policy of these topics is unknown",
        "For each topic that is compacted, pass --config TOPIC:cleanup.policy=compact",
        "4 partitions: a-0, orders-0, orders-1 and 1 more",
    ]


def test_different_errors_stay_different(tmp_path: Path) -> None:
    ran = kcompact("plan", *COMPACT, tmp_path / "nowhere", tmp_path / "neither")
    assert errors_of(ran.err) == [f"error: {tmp_path}/{name}: no such directory" for name in ("nowhere", "neither")]


def test_spark_that_does_not_start_fails_only_what_it_would_clean(dirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def broken(*_: Any) -> Iterator[Any]:
        raise EngineError(problem="no Java")
        yield

    monkeypatch.setattr(context, "spark_start", broken)
    ran = kcompact("clean", "--engine", "spark", "--json", *COMPACT, dirty)
    statuses = Counter(entry["status"] for entry in ran.json["partitions"])
    assert (ran.code, statuses) == (1, {"failed": 5, "skipped": 1})
    assert errors_of(ran.err) == ["error: Spark: no Java"]


# An interruption


def test_an_interrupted_round(dirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = InProcess.run
    written: list[str] = []

    def interrupted(self: InProcess, stage: str, job: Any, tasks: Any, work: Any) -> Any:
        assert stage == "write"
        written.append(job.directory)
        if len(written) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return run(self, stage, job, tasks, work)

    monkeypatch.setattr(InProcess, "run", interrupted)
    monkeypatch.setattr(engines, "available_cores", lambda: 1)  # One partition after the other.
    ran = clean(dirty)
    entries = {f"{entry['topic']}-{entry['partition']}": entry for entry in ran.json["partitions"]}
    assert ran.code == 130
    assert {name: entry["status"] for name, entry in entries.items()} == {
        **{f"orders-{number}": "cleaned" if number < 2 else "failed" for number in range(5)},
        "clean-0": "skipped",
    }
    for number in (2, 3, 4):
        entry = entries[f"orders-{number}"]
        assert (entry["eligible"], entry["reason"], entry["exit_code"]) == (True, "dirty-ratio", 130)
    assert (entries["clean-0"]["exit_code"], entries["clean-0"]["reason"]) == (0, "active-only")
    assert ran.err.splitlines()[-2:] == [
        "interrupted: 2 cleaned, 3 not: orders-2, orders-3, orders-4",
        "Nothing is half done. Run the same command again to go on.",
    ]
    assert errors_of(ran.err) == []
    again = clean(dirty)
    assert (again.code, Counter(entry["status"] for entry in again.json["partitions"])) == (
        0,
        {"cleaned": 3, "skipped": 3},
    )


# The result


def test_totals_of_a_clean(dirty: Path) -> None:
    out = kcompact(*CLEAN, dirty).out
    assert "Log cleaner thread" not in out
    assert re.search(r"^6 partitions: 5 cleaned, 1 skipped\n2.0 KiB -> 1.4 KiB \(32.7 % smaller\) in ", out, re.M)
    assert out.splitlines()[-1] == "30 -> 20 messages (33.3 % fewer)"


def test_units_of_kafkas_words_are_explained(dirty: Path) -> None:
    out = kcompact(*CLEAN, dirty / "orders-0").out
    assert out.index("whose MB and Mb are MiB") < out.index("0.0 MB of log processed")
    assert kcompact(*CLEAN, "-v", dirty).out.count("Log cleaner thread 0 cleaned log") == 4


@pytest.mark.long
def test_a_screen_after_a_clean(two_hundred: Path) -> None:
    (lines,) = on_terminal((80,), *CLEAN, "--dry-run", two_hundred).values()
    last = lines[max(number for number, line in enumerate(lines) if line.startswith("partition ")) :]
    assert len(last) <= SCREEN, last
    assert [line.split()[:4] for line in last[1:3]] == [[f"orders-{n}", "dry-run", "419", "B"] for n in (0, 1)]
    assert "200 partitions: 12 dry-run, 4 failed, 184 skipped" in last


def test_a_dry_run_names_the_next_command(dirty: Path) -> None:
    out = kcompact(*CLEAN, "--dry-run", "--topic", "ord*", dirty).out
    assert out.splitlines()[-1] == f"next: kcompact {' '.join(CLEAN)} --topic 'ord*' {dirty}"
    assert "next: " not in kcompact(*CLEAN, dirty).out


@pytest.mark.parametrize(
    ("typed", "command", "without", "following"),
    [
        (["plan", "-v", "a b"], "clean", [], ["clean", "a b"]),
        (["plan", "-vq", "--json", "--topic", "o*", "--", "-v"], "clean", [], ["clean", "--topic", "o*", "--", "-v"]),
        (["clean", "--dry-run", "--force", "x"], "clean", ["--dry-run"], ["clean", "--force", "x"]),
    ],
)
def test_next_command(typed: list[str], command: str, without: list[str], following: list[str]) -> None:
    assert shlex.split(command_after(typed, command, without=without)) == ["kcompact", *following]


# What is left out


def test_left_out_directories(many: Path) -> None:
    unique_id = "0123456789abcdef0123456789abcdef"
    expected = {
        f"gone-0.{unique_id}-delete": ("delete", 4096),
        f"moving-1.{unique_id}-future": ("future", 4096),
        f"lost-2.{unique_id}-stray": ("stray", 4096),
        "remote-log-index-cache": ("remote-log-index-cache", 100),
        "lost+found": ("unknown", 0),
        "orders-0.bak": ("unknown", 2048),
    }
    line = (
        "left out: 6 directories, 14.1 KiB: gone-0 (delete: a broker deletes it); moving-1 (future: moving from "
        "another log directory); lost-2 (stray: not assigned to the broker); remote-log-index-cache "
        "(Kafka's cache for tiered storage); lost+found, orders-0.bak (unknown: no name of Kafka's; may keep a broker "
        "from starting)"
    )
    for command in ("plan", *COMPACT), ("inspect", *COMPACT), (*CLEAN, "--dry-run"):
        described = kcompact(*command, "--json", many).json["left_out"]
        assert {Path(each["directory"]).name: (each["kind"], each["size_bytes"]) for each in described} == expected
        assert line in kcompact(*command, many).out.splitlines()
    of_topic = kcompact("plan", *COMPACT, "--json", "--topic", "[og]*", many).json["left_out"]
    assert [Path(each["directory"]).name for each in of_topic] == [f"gone-0.{unique_id}-delete"]
    assert kcompact("plan", *COMPACT, "--json", many / "orders-0").json["left_out"] == []
    assert f"gone-0.{unique_id}-delete " in kcompact("plan", *COMPACT, "-v", many).out


def test_a_partition_with_another_name(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    directory = directory.rename(tmp_path / "orders")
    ran = kcompact("plan", *COMPACT, directory)
    assert ran.code == 4
    assert "its name 'orders' is not TOPIC-PARTITION" in ran.err
    assert "such as orders-0" in ran.err
    assert "no .log file" not in ran.err


# Progress


def test_progress_in_a_pipe_is_a_line_now_and_then(dirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kcompact(*CLEAN, "--dry-run", dirty).complaints == ""
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    lines = kcompact(*CLEAN, "--dry-run", dirty).complaints.splitlines()
    assert all(
        re.fullmatch(r"\d of 5 partitions, .* of 4.1 KiB read, .*/s(, about [\d,]+ seconds left)?", each)
        for each in lines
    )
    assert lines[-1].startswith("5 of 5 partitions, 4.1 KiB of 4.1 KiB read, ")
    assert kcompact(*CLEAN, "--dry-run", "-q", dirty).complaints == ""
    assert kcompact(*CLEAN, "--dry-run", "--json", dirty).complaints == ""


@pytest.mark.long
def test_bars_fit_on_narrow_terminals(tmp_path: Path) -> None:
    for number in range(5):
        partition(tmp_path, settings(f"hw=7 name={'a-long-topic-name' * 5}-{number}"))
    for width, lines in on_terminal((40, 60, 80), *CLEAN, "--dry-run", tmp_path).items():
        bars = [line for line in lines if " rewriting" in line or "of 5 partitions" in line or "of 4.1 KiB" in line]
        assert bars
        assert max(map(len, bars)) <= width
        assert any(re.match(r"\d of 5 part.* of 4.1 KiB", line) for line in bars), bars
        assert not any(re.search(r"[MKG]B", line) for line in bars)


# A terminal of 80 x 24


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "damaged", "left"), [(60, 8, 4), pytest.param(400, 30, 10, marks=pytest.mark.slow)], ids=["60", "400"]
)
def test_many_partitions_end_with_the_totals_on_the_last_screen(
    count: int, damaged: int, left: int, tmp_path: Path
) -> None:
    caught_up = "log now=10:00 checkpoint=6 hw=7 name={}\n0: a=1 b=2\n3: c=5\n6: a=6"
    for number in range(count):
        name = f"orders-{number}"
        made = partition(tmp_path, caught_up.format(name) if number % 2 else settings(f"hw=7 name={name}"))
        if number < damaged:
            flip(made / "00000000000000000006.log", 17, number + 1)  # Each has another wrong checksum.
        elif number < damaged + left:
            (made / ".kcompact-0123456789abcdef").mkdir()
    dirty = (count - damaged) // 2
    ends = {
        ("recover",): f"{count} partitions: {left} tidied, {count - left} nothing-to-do",
        ("plan", *COMPACT): rf"{count} partitions, .*: {dirty} to clean, {count - dirty} not",
        ("doctor", *COMPACT): rf"stops a broker: \d+; stops kcompact: {2 * damaged}; note: \d+",
        (*CLEAN, "--yes"): f"{count} partitions: {dirty} cleaned, {damaged} failed, {dirty} skipped",
        (*CLEAN, "--force", "--yes"): f"{count} partitions: {damaged} failed, {count - damaged} skipped",
    }
    shown = on_terminals([(80, (*command, tmp_path)) for command in ends])
    for (command, totals), lines in zip(ends.items(), shown, strict=True):
        (at,) = (number for number, line in enumerate(lines) if re.fullmatch(totals, line))
        height = sum(max(1, -(-len(line) // 80)) for line in lines[at:])
        assert height < SCREEN, (command, lines[-SCREEN:])
        assert not any(
            "nothing-to-do" in line or "active-only " in line for line in lines if line.startswith("orders-")
        )


def test_few_errors_on_a_terminal_and_the_gravest_first(tmp_path: Path) -> None:
    for number in range(6):
        made = partition(tmp_path, settings(f"hw=7 name=orders-{number}"))
        if number < 5:
            flip(made / "00000000000000000006.log", 17, number + 1)
    partition(tmp_path / "other", settings("unclean name=aaa-0"))
    arguments = (*CLEAN, "--dry-run", tmp_path / "other" / "aaa-0", tmp_path)
    shown, all_shown = on_terminals([(120, arguments), (120, (*arguments, "-v"))])
    named = [line for line in shown if line.startswith("error: ")]
    assert [re.findall(r"/(orders-\d|aaa-\d)/", line) for line in named] == [["orders-0"], ["orders-1"]]
    assert "and 4 more errors; -v lists them" in shown
    assert len(errors_of("\n".join(all_shown))) == 6
    assert len(errors_of(kcompact(*arguments).err)) == 6
