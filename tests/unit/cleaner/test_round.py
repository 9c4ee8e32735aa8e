"""`clean_log_dir` does what the command does, in one call; its options, results and failures."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kcompact as package
from kcompact.clean.held_back import HeldBack
from kcompact.cleaner import engines
from kcompact.cleaner import round as round_module
from kcompact.cleaner.cleaning import Cleaning, CleanOptions
from kcompact.cleaner.engines import EngineOptions
from kcompact.cleaner.outcome import CleanResult, RoundResult
from kcompact.cleaner.partition import swap_in
from kcompact.cleaner.round import clean_log_dir
from kcompact.cleaner.round_end import SwappedPartition
from kcompact.cleaner.service import Cleaner
from kcompact.config.broker_config import BrokerConfig
from kcompact.config.settings import TopicOverrides
from kcompact.errors import (
    CleaningAbortedError,
    ConfigError,
    CorruptCheckpointError,
    CorruptDataError,
    LogDirLockedError,
    RefusedError,
    UnfinishedCopyError,
)
from kcompact.host import turns
from kcompact.log.lock import is_locked, log_dir_lock
from kcompact.plan.options import PlanOptions
from kcompact.remarks import RemarkCode
from kcompact.stages.executor import Progress, RoundProgress
from tests.support import log_dsl
from tests.support.command_line import COMPACTED, clean, digest, flip, partition, settings, values
from tests.support.patience import PATIENCE_S
from tests.support.sealed import edited

COMPACT = {"cleanup.policy": "compact"}
PLAN = PlanOptions(now_ms=log_dsl.time_of("10:00"))
NAMES = ("dirty-0", "dirty-1", "clean-0", "corrupt-0", "__consumer_offsets-0")


def log_dir_with_everything(log_dir: Path) -> Path:
    for name in NAMES:
        partition(log_dir, settings(f"name={name}" + (" checkpoint=6" if name == "clean-0" else "")))
    flip(log_dir / "corrupt-0" / f"{0:020d}.log", 100)
    (log_dir / "dirty-1" / ".kcompact-0123456789abcdef").mkdir(mode=0o700)
    return log_dir


def test_it_does_what_the_command_does(tmp_path: Path) -> None:
    by_command, by_call = log_dir_with_everything(tmp_path / "a"), log_dir_with_everything(tmp_path / "b")
    ran = clean(by_command)
    result = clean_log_dir(str(by_call), COMPACT, plan_options=PLAN)
    assert result.exit_code == ran.code == 3
    assert [(each.name, each.status, each.recovered, each.exit_code) for each in result.partitions] == [
        (Path(entry["directory"]).name, entry["status"], entry["recovered"], entry["exit_code"])
        for entry in ran.json["partitions"]
    ]
    assert {each.name: each.status for each in result.partitions} == {
        "dirty-0": "cleaned",
        "dirty-1": "cleaned",
        "clean-0": "skipped",
        "corrupt-0": "failed",
        "__consumer_offsets-0": "skipped",
    }
    assert [each.recovered for each in result.partitions if each.recovered] == ["tidied"]
    assert values(by_call / "dirty-0") == COMPACTED
    for log in by_command.rglob("*0*"):
        if log.is_file():
            assert (by_call / log.relative_to(by_command)).read_bytes() == log.read_bytes()
    assert not is_locked(by_call)
    with pytest.raises(CorruptDataError):
        result.raise_failure()


def test_an_output_is_finished_or_an_error(tmp_path: Path) -> None:
    log_dir = partition(tmp_path / "data").parent
    internal = partition(log_dir, settings("name=__consumer_offsets-0"))
    leftover = internal / f"{0:020d}.log.swap"
    leftover.touch()

    def copy() -> RoundResult:
        return clean_log_dir(log_dir, COMPACT, plan_options=PLAN, options=CleanOptions(output=str(tmp_path / "out")))

    unfinished = copy()
    assert unfinished.copied is not None
    assert isinstance(unfinished.copied.error, UnfinishedCopyError)
    assert (unfinished.exit_code, unfinished.copied.report.missing) == (8, ("__consumer_offsets-0",))
    leftover.unlink()
    finished = copy()
    assert finished.copied is not None
    assert (finished.exit_code, finished.copied.report.is_finished) == (0, True)
    assert {each.name: each.status for each in finished.partitions} == {
        "orders-0": "cleaned",
        "__consumer_offsets-0": "copied",
    }
    assert values(tmp_path / "out" / "orders-0") == COMPACTED


@pytest.mark.parametrize(("end", "is_kept"), [(2, True), (3, False), (9, False)])
def test_a_continued_copy_keeps_only_what_holds_back_the_same(end: int, is_kept: bool, tmp_path: Path) -> None:
    log_dir = partition(tmp_path / "data", "log now=10:00\n0: a=1 b=2\n2: b=~(horizon=09:00) c=1\n4: d=1").parent
    leftover = partition(log_dir, settings("name=__consumer_offsets-0")) / f"{0:020d}.log.swap"
    leftover.touch()

    def copy(end: int) -> RoundResult:
        other = tmp_path / f"replica-{end}"
        if not other.exists():
            partition(other, f"log now=10:00 hw={end}\n0: {' '.join(f'k{number}=1' for number in range(end))}")
        plan = replace(PLAN, force=True, replicas=(other,))
        return clean_log_dir(log_dir, COMPACT, plan_options=plan, options=CleanOptions(output=tmp_path / "out"))

    assert copy(2).exit_code == 8
    leftover.unlink()
    result = copy(end)
    (copied,) = [each.result for each in result.partitions if each.name == "orders-0" and each.result]
    assert (result.exit_code, copied.resumed) == (0, is_kept)
    assert copied.held_back == HeldBack(tombstones=1 if end == 2 else 0)
    assert [note.code for note in copied.notes] == ([RemarkCode.HELD_BACK] if end < 5 else [])
    assert (2 in values(tmp_path / "out" / "orders-0")) == (end == 2)


@pytest.mark.parametrize(
    ("checkpoint", "is_kept"),
    [("", True), ("cleaner-offset-checkpoint", False), ("log-start-offset-checkpoint", False)],
)
def test_a_continued_copy_keeps_only_what_has_the_same_offsets(checkpoint: str, is_kept: bool, tmp_path: Path) -> None:
    log_dir = partition(tmp_path / "data").parent
    leftover = partition(log_dir, settings("name=__consumer_offsets-0")) / f"{0:020d}.log.swap"
    leftover.touch()
    plan, options = replace(PLAN, force=True), CleanOptions(output=tmp_path / "out")
    assert clean_log_dir(log_dir, COMPACT, plan_options=plan, options=options).exit_code == 8
    leftover.unlink()
    if checkpoint:
        (log_dir / checkpoint).write_text("0\n1\norders 0 2\n")
    result = clean_log_dir(log_dir, COMPACT, plan_options=plan, options=options)
    resumed = [each.result.resumed for each in result.partitions if each.name == "orders-0" and each.result]
    assert (result.exit_code, resumed) == (0, [is_kept])
    if checkpoint == "log-start-offset-checkpoint":
        assert "orders 0 2" in (tmp_path / "out" / checkpoint).read_text()


@pytest.mark.parametrize(
    "change",
    [
        {"status": "melted"},
        {"status": None},
        {"stats": []},
        {"stats": {"bytes_read": "many"}},
        {"stats": {"bytes_eaten": 1}},
        {"elapsed_s": None},
        {"end_offset": "7"},
        {"engine": 7},
        {"more": 1},
    ],
)
def test_a_damaged_record_of_a_copy_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    log_dir = partition(tmp_path / "data").parent
    leftover = partition(log_dir, settings("name=__consumer_offsets-0")) / f"{0:020d}.log.swap"
    leftover.touch()
    plan, options = replace(PLAN, force=True), CleanOptions(output=tmp_path / "out")
    assert clean_log_dir(log_dir, COMPACT, plan_options=plan, options=options).exit_code == 8
    leftover.unlink()
    (record,) = (
        path for path in (tmp_path / "out" / ".kcompact-copy").glob("[0-9]*.json") if "orders-0" in path.read_text()
    )
    outcome = json.loads(record.read_text())["outcome"]
    record.write_bytes(edited(record.read_bytes(), ["outcome"], outcome | change))
    result = clean_log_dir(log_dir, COMPACT, plan_options=plan, options=options)
    errors = {each.name: each.error for each in result.partitions}
    assert isinstance(errors["orders-0"], CorruptCheckpointError)
    assert "the record of orders-0 is damaged" in str(errors["orders-0"])


@pytest.mark.parametrize("path_of", [str, Path, os.fspath])
def test_a_path_is_text_or_an_object(path_of: Callable[[Path], Any], tmp_path: Path) -> None:
    log_dir, copy = tmp_path / "logs", tmp_path / "copy"
    directory = partition(log_dir)
    assert package.read_log(path_of(directory)).log_end_offset == 7
    assert [path.name for path in package.find_partitions([path_of(log_dir)])] == ["orders-0"]
    with package.log_dir_lock(path_of(log_dir)):
        assert not package.recover(path_of(directory), log_dir=path_of(log_dir)).changed
    assert len(list(package.batches(path_of(directory / f"{0:020d}.log")))) == 3
    assert package.plan_partition(path_of(directory), package.topic_config("orders"), now_ms=0).groups == ()
    options = CleanOptions(output=path_of(copy))
    assert clean_log_dir(path_of(log_dir), COMPACT, plan_options=PLAN, options=options).exit_code == 0
    assert values(copy / "orders-0") == COMPACTED
    assert clean_log_dir(path_of(directory), COMPACT, plan_options=PLAN).partitions[0].status == "cleaned"


@pytest.mark.parametrize(
    ("config", "status"),
    [
        (COMPACT, "cleaned"),
        ({"orders:cleanup.policy": "compact"}, "cleaned"),
        ({**COMPACT, "min.compaction.lag.ms": "86400000"}, "skipped"),
        ({"cleanup.policy": "delete"}, "skipped"),
        ({"log.cleanup.policy": "compact"}, "failed"),  # The topic may have another, which nobody knows.
        ({}, "failed"),
    ],
)
def test_settings_have_the_names_of_the_command_line(config: dict[str, str], status: str, tmp_path: Path) -> None:
    partition(tmp_path)
    (outcome,) = clean_log_dir(tmp_path, config, plan_options=PLAN).partitions
    assert outcome.status == status


def untyped(value: Any) -> Any:
    """Return a value as a caller passes it who checks no types."""
    return value


REFUSED: dict[str, Callable[[Path], object]] = {
    "retention in a copy": lambda path: CleanOptions(output=path / "copy", apply_retention=True),
    "no bytes a second": lambda path: CleanOptions(max_bytes_per_second=0),
    "no memory": lambda path: CleanOptions(memory_bytes=-1),
    "seconds": lambda path: PlanOptions(now_ms=1_704_103_200),
    "a fraction of a millisecond": lambda path: PlanOptions(now_ms=untyped(1.5)),
    "a time before 1970": lambda path: PlanOptions(now_ms=-1),
    "a time as text": lambda path: PlanOptions(now_ms=untyped("2024-01-01")),
    "topics as one text": lambda path: PlanOptions(now_ms=0, topics=untyped("orders")),
    "settings as a list": lambda path: clean_log_dir(path, untyped(["cleanup.policy=compact"])),
    "an engine by a wrong name": lambda path: clean_log_dir(path, engine="flink"),
    "an unknown engine": lambda path: EngineOptions(name="flink"),
    "an unknown master": lambda path: EngineOptions(name="spark", master="nonsense"),
    "a master without Spark": lambda path: EngineOptions(name="in-process", master="local[1]"),
    "settings without Spark": lambda path: EngineOptions(name="in-process", spark_conf={"spark.ui.enabled": "true"}),
    "an unknown setting": lambda path: clean_log_dir(path, {"clean.policy": "compact"}, plan_options=PLAN),
    "a wrong value": lambda path: clean_log_dir(path, {"cleanup.policy": "compress"}, plan_options=PLAN),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused_with_nothing_changed(name: str, tmp_path: Path) -> None:
    partition(tmp_path)
    before = digest(tmp_path)
    with pytest.raises(ConfigError):
        REFUSED[name](tmp_path)
    assert digest(tmp_path) == before


def test_a_locked_log_directory_is_each_partitions_failure(tmp_path: Path) -> None:
    partition(tmp_path)
    with log_dir_lock(tmp_path):
        (outcome,) = clean_log_dir(tmp_path, COMPACT, plan_options=PLAN).partitions
    assert isinstance(outcome.error, LogDirLockedError)


def test_topics_select_partitions(tmp_path: Path) -> None:
    for name in ("orders-0", "prices-0", "names-0"):
        partition(tmp_path, settings(f"name={name}"))
    options = PlanOptions(now_ms=PLAN.now_ms, topics=("ord*", "names"))
    result = clean_log_dir(tmp_path, COMPACT, plan_options=options)
    assert [each.name for each in result.partitions] == ["names-0", "orders-0"]
    with pytest.raises(RefusedError, match="no partition of a topic that matches 'a' or 'b'"):
        clean_log_dir(tmp_path, COMPACT, plan_options=PlanOptions(now_ms=0, topics=("a", "b")))


@pytest.mark.parametrize(
    "call",
    [
        lambda: clean_log_dir("", COMPACT, plan_options=PLAN),
        lambda: CleanOptions(output=""),
        lambda: Cleaner([""], COMPACT),
    ],
    ids=["clean_log_dir", "output", "Cleaner"],
)
def test_an_empty_path_is_not_the_current_directory(
    call: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = digest(tmp_path)
    with pytest.raises(ConfigError, match="the path is empty"):
        call()
    assert digest(tmp_path) == before


def test_a_doubtful_time_is_in_the_notes(tmp_path: Path) -> None:
    partition(tmp_path)
    known = replace(
        PLAN, broker_config=BrokerConfig(), topic_configs={"orders": TopicOverrides(values=COMPACT, origin="a test")}
    )
    too_early = replace(known, now_ms=log_dsl.time_of("08:00"))
    (note,) = clean_log_dir(tmp_path, COMPACT, plan_options=too_early, options=CleanOptions(dry_run=True)).notes
    assert "but the newest segment of orders-0 has the time" in note.text
    assert clean_log_dir(tmp_path, COMPACT, plan_options=known).notes == ()


def test_assumed_settings_are_in_the_notes(tmp_path: Path) -> None:
    partition(tmp_path)
    of_broker, of_topic = clean_log_dir(tmp_path, COMPACT, plan_options=PLAN).notes
    assert "Kafka's defaults are assumed, and decide here, for min.cleanable.dirty.ratio, " in of_broker.text
    assert of_topic.code is RemarkCode.UNKNOWN_SETTINGS
    assert "--config cleanup.policy=compact decides for orders" in of_topic.text


# --- Side by side -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cores", "limit", "at_once"), [(1, None, 1), (2, None, 4), (8, None, 4), (2, 1 << 30, 1)])
def test_small_partitions_are_cleaned_side_by_side(
    cores: int, limit: int | None, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"small-{number}" for number in range(6)]
    for name in names:
        partition(tmp_path / "logs", settings(f"name={name}"))
    meeting, running, most = threading.Barrier(min(at_once, 2), timeout=PATIENCE_S), set[str](), 0
    really = swap_in

    def cleaned(cleaning: Cleaning) -> SwappedPartition | CleanResult:
        nonlocal most
        name = cleaning.plan.log.directory.name
        running.add(name)
        most = max(most, len(running))
        meeting.wait()  # Six partitions meet in pairs.
        try:
            return really(cleaning)
        finally:
            running.remove(name)

    monkeypatch.setattr(round_module, "swap_in", cleaned)
    monkeypatch.setattr(turns, "_MOST_WAIT_S", 0.01)  # Who meets another has the turn, and keeps it.
    monkeypatch.setattr(engines, "available_cores", lambda: cores)
    options = CleanOptions(max_bytes_per_second=limit)
    result = clean_log_dir(tmp_path / "logs", COMPACT, plan_options=PLAN, options=options)
    assert [(each.name, each.status) for each in result.partitions] == [(name, "cleaned") for name in names]
    assert 1 <= most <= at_once
    assert (most > 1) == (at_once > 1)
    for name in names:
        assert values(tmp_path / "logs" / name) == COMPACTED
    checkpoint = (tmp_path / "logs" / "cleaner-offset-checkpoint").read_text().splitlines()
    assert sorted(line.split()[0] + "-" + line.split()[1] for line in checkpoint[2:]) == names


# --- Stops ------------------------------------------------------------------------------------------------


class StopsAfter(RoundProgress):
    """Asks for a stop when the cleanings have checked a number of times."""

    def __init__(self, checks: int) -> None:
        self.checks = checks

    def of(self, directory: Path) -> Progress:
        whole = self

        class Checked(Progress):
            def check(self) -> None:
                whole.checks -= 1
                if whole.checks < 0:
                    raise CleaningAbortedError(path=directory)

        return Checked()


def test_after_a_stop_only_what_was_due_has_failed(tmp_path: Path) -> None:
    for words in ("name=dirty-0", "name=dirty-1", "name=clean-0 checkpoint=6"):
        partition(tmp_path, settings(words))
    before = digest(tmp_path)
    stopped = clean_log_dir(tmp_path, COMPACT, plan_options=PLAN, progress=StopsAfter(0))
    assert [(each.name, each.status, each.is_eligible, str(each.reason)) for each in stopped.partitions] == [
        ("dirty-0", "failed", True, "dirty-ratio"),
        ("dirty-1", "failed", True, "dirty-ratio"),
        ("clean-0", "skipped", False, "active-only"),
    ]
    assert stopped.exit_code == 130
    assert digest(tmp_path) == before


# --- Texts -----------------------------------------------------------------------------------------------------


def test_results_print_in_a_line(tmp_path: Path) -> None:
    partition(tmp_path)
    partition(tmp_path, settings("name=clean-0 checkpoint=6"))
    log = package.read_log(tmp_path / "orders-0")
    plan = package.plan_partition(tmp_path / "orders-0", package.topic_config("orders"), now_ms=PLAN.now_ms)
    result = clean_log_dir(tmp_path, COMPACT, plan_options=PLAN)
    shown = [str(each) for each in (log, plan, result, *(outcome.result for outcome in result.partitions))]
    assert shown == [
        "orders-0: 3 segments, 489 B, offsets 0 to 7",
        "orders-0 is not to be cleaned (policy-unknown): the cleanup.policy of orders is unknown",
        "2 partitions: 1 cleaned, 1 skipped; 419 B -> 282 B",
        "orders-0: cleaned, 419 B -> 282 B, 6 -> 4 records, clean up to offset 6",
        "clean-0: skipped",
    ]
    assert repr(result) == f"<RoundResult {result}>"
    assert all(len(repr(each)) < 200 for each in (log, plan, result))
