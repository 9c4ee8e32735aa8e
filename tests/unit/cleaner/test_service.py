"""The cleaner as a service, with real threads on real logs: choice, aborts, pauses, failures, metrics."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kcompact.clean.job import CleanJob
from kcompact.clean.offset_map import Reduced
from kcompact.clean.scan import Scanned
from kcompact.cleaner import log_pool, service
from kcompact.cleaner.cleaning import Cleaning, CleanOptions
from kcompact.cleaner.journal import Journal
from kcompact.cleaner.outcome import CleanResult
from kcompact.cleaner.partition import perform
from kcompact.cleaner.round import clean_log_dir
from kcompact.cleaner.service import Cleaner
from kcompact.cleaner.states import ABORTED, IN_PROGRESS, NONE, paused
from kcompact.engine.in_process import InProcess
from kcompact.errors import (
    CleanerStateError,
    ConfigError,
    CorruptDataError,
    KcompactError,
    LogDirLockedError,
    RefusedError,
    StorageError,
)
from kcompact.format.names import TopicPartition
from kcompact.log.lock import is_locked, log_dir_lock
from kcompact.plan.options import PlanOptions
from kcompact.plan.walk import plan_partitions
from kcompact.stages.job import Split
from tests.support import log_dsl
from tests.support.command_line import COMPACTED, DIRTY, digest, flip, partition, settings, values
from tests.support.patience import PATIENCE_S, becomes

NOW_MS = log_dsl.time_of("10:00")
COMPACT = {"cleanup.policy": "compact", "log.cleaner.backoff.ms": "20"}
ORDERS, PRICES = TopicPartition("orders", 0), TopicPartition("prices", 0)
DIRTIER = settings("name=prices-0 checkpoint=0", DIRTY)
LESS_DIRTY = settings("name=orders-0 checkpoint=3", DIRTY)


def cleaner_of(log_dir: Path, config: Mapping[str, str] = COMPACT, **more: Any) -> Cleaner:
    """A cleaner of one log directory whose clock stands at the time of the logs."""
    return Cleaner([log_dir], config, clock=lambda: NOW_MS, **more)


class Gate:
    """Holds every cleaning before its first stage until it is opened."""

    def __init__(self) -> None:
        self.reached, self._opened = threading.Event(), threading.Event()

    def open(self) -> None:
        self._opened.set()

    def wait(self) -> None:
        self.reached.set()
        assert self._opened.wait(PATIENCE_S)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    held = Gate()
    scan_and_reduce = InProcess.scan_and_reduce

    def waiting(
        self: InProcess, job: CleanJob, tasks: Sequence[Sequence[Split]], stages: Any
    ) -> tuple[list[Scanned], list[Reduced]]:
        held.wait()
        self.progress.check()
        scanned, reduced = scan_and_reduce(self, job, tasks, stages)
        return scanned, list(reduced)

    monkeypatch.setattr(InProcess, "scan_and_reduce", waiting)
    return held


@contextmanager
def in_background(action: Any) -> Iterator[threading.Thread]:
    """Run an action in a thread for the length of the block."""
    thread = threading.Thread(target=action)
    thread.start()
    yield thread
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def await_state(cleaner: Cleaner, state: object, of: TopicPartition = ORDERS) -> None:
    assert becomes(lambda: cleaner.state_of(of) == state)


# --- What it cleans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
def test_it_cleans_what_a_round_cleans(threads: int, tmp_path: Path) -> None:
    for name in ("expected", "cleaned"):
        for number in range(6):
            partition(tmp_path / name, settings(f"name=orders-{number}"))
    options = PlanOptions(now_ms=NOW_MS)
    round_ = clean_log_dir(tmp_path / "expected", COMPACT, plan_options=options)
    assert (round_.exit_code, len(round_.partitions)) == (0, 6)
    with cleaner_of(tmp_path / "cleaned", {**COMPACT, "log.cleaner.threads": str(threads)}) as cleaner:
        for number in range(6):
            assert cleaner.await_cleaned(TopicPartition("orders", number), 6, PATIENCE_S)
            assert cleaner.state_of(TopicPartition("orders", number)) == NONE
    for path in sorted((tmp_path / "expected").rglob("*0*")):
        if path.is_file():
            assert (tmp_path / "cleaned" / path.relative_to(tmp_path / "expected")).read_bytes() == path.read_bytes()


def test_each_thread_takes_the_dirtiest_log(tmp_path: Path) -> None:
    partition(tmp_path, LESS_DIRTY)
    partition(tmp_path, DIRTIER)
    cleaned: list[CleanResult] = []
    with cleaner_of(tmp_path, {**COMPACT, "min.cleanable.dirty.ratio": "0"}, on_cleaned=cleaned.append) as cleaner:
        assert cleaner.await_cleaned(PRICES, 6, PATIENCE_S)
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)
    assert [result.directory.name for result in cleaned] == ["prices-0", "orders-0"]


def test_a_log_that_appears_later_is_cleaned_after_the_back_off(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    log_dir.mkdir()
    with cleaner_of(log_dir) as cleaner:
        partition(tmp_path / "elsewhere", settings("lone")).rename(log_dir / "orders-0")
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)
    assert values(log_dir / "orders-0") == COMPACTED


def test_waiting_for_what_does_not_come_ends_in_time(tmp_path: Path) -> None:
    partition(tmp_path)
    with cleaner_of(tmp_path) as cleaner:
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)
        assert not cleaner.await_cleaned(ORDERS, 7, 0.05)
        with pytest.raises(RefusedError, match="no log directory of the cleaner has this partition"):
            cleaner.await_cleaned(PRICES, 1, 0)


def test_a_checkpoint_outside_the_log_is_reset_as_by_kafka(tmp_path: Path) -> None:
    partition(tmp_path, settings("checkpoint=99 min.cleanable.dirty.ratio=1"))
    with cleaner_of(tmp_path, {**COMPACT, "min.cleanable.dirty.ratio": "1"}) as cleaner:
        assert becomes(lambda: cleaner.checkpoint_of(ORDERS) == 0)


def test_old_segments_are_deleted_after_each_choice(tmp_path: Path) -> None:
    directory = partition(tmp_path, settings("start=6"))
    with cleaner_of(tmp_path, options=CleanOptions(apply_retention=True)):
        assert becomes(lambda: not (directory / f"{0:020d}.log").exists())
    assert [log.name for log in sorted(directory.glob("*.log"))] == [f"{6:020d}.log"]


# --- Aborts and pauses ------------------------------------------------------------------------------------


def test_an_abort_waits_until_the_cleaning_has_stopped(gate: Gate, tmp_path: Path) -> None:
    directory = partition(tmp_path)
    with cleaner_of(tmp_path) as cleaner:
        before = digest(directory)
        assert gate.reached.wait(PATIENCE_S)
        assert cleaner.state_of(ORDERS) == IN_PROGRESS
        with in_background(lambda: cleaner.abort_and_pause_cleaning(ORDERS)) as aborting:
            await_state(cleaner, ABORTED)
            with pytest.raises(CleanerStateError, match="not possible in the state 'aborted'"):
                cleaner.abort_and_pause_cleaning(ORDERS)
            assert aborting.is_alive()
            gate.open()
        assert (cleaner.state_of(ORDERS), digest(directory)) == (paused(1), before)
        assert not cleaner.await_cleaned(ORDERS, 6, 0.1)
        cleaner.resume_cleaning([ORDERS])
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)


def test_pauses_nest(tmp_path: Path) -> None:
    partition(tmp_path)
    cleaner = cleaner_of(tmp_path)
    cleaner.abort_and_pause_cleaning(ORDERS)
    cleaner.abort_and_pause_cleaning(ORDERS)
    assert cleaner.state_of(ORDERS) == paused(2)
    with cleaner:
        cleaner.resume_cleaning([ORDERS])
        assert not cleaner.await_cleaned(ORDERS, 6, 0.1)
        cleaner.resume_cleaning([ORDERS])
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)
        with pytest.raises(CleanerStateError, match="'resume' is not possible in the state 'none'"):
            cleaner.resume_cleaning([ORDERS])


def test_an_abort_without_a_pause_leaves_no_state(gate: Gate, tmp_path: Path) -> None:
    partition(tmp_path)
    with cleaner_of(tmp_path) as cleaner:
        assert gate.reached.wait(PATIENCE_S)
        with in_background(lambda: cleaner.abort_cleaning(ORDERS)):
            await_state(cleaner, ABORTED)
            gate.open()
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)
    assert cleaner.state_of(ORDERS) == NONE


def test_a_truncation_aborts_the_cleaning_and_lowers_the_checkpoint(gate: Gate, tmp_path: Path) -> None:
    directory = partition(tmp_path, settings("checkpoint=4 min.cleanable.dirty.ratio=0"))
    with cleaner_of(tmp_path, {**COMPACT, "min.cleanable.dirty.ratio": "0"}) as cleaner:
        assert gate.reached.wait(PATIENCE_S)

        def truncate() -> None:
            with cleaner.truncating(ORDERS, 3) as found:
                assert (found, cleaner.state_of(ORDERS)) == (directory, paused(1))
                for name in sorted(found.glob(f"{6:020d}.*")):
                    name.unlink()

        with in_background(truncate):
            await_state(cleaner, ABORTED)
            gate.open()
        assert cleaner.checkpoint_of(ORDERS) == 3
        assert sorted(values(directory)) == [0, 1, 2, 3, 4, 5]


def test_a_truncation_that_fails_lowers_the_checkpoint_too(tmp_path: Path) -> None:
    partition(tmp_path, settings("checkpoint=6 min.cleanable.dirty.ratio=1"))
    with cleaner_of(tmp_path) as cleaner:
        with pytest.raises(ZeroDivisionError), cleaner.truncating(ORDERS, 4):
            raise ZeroDivisionError
        assert (cleaner.checkpoint_of(ORDERS), cleaner.state_of(ORDERS)) == (4, NONE)
        with pytest.raises(ConfigError, match="-4 is below 0"), cleaner.truncating(ORDERS, -4):
            raise AssertionError("not reached")
        assert cleaner.checkpoint_of(ORDERS) == 4


def test_a_plan_made_before_a_truncation_is_not_used_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition(tmp_path, settings("checkpoint=3"))
    truncated: list[bool] = []
    cleaned_from: list[int] = []

    def plan(directories: Sequence[Path], options: PlanOptions) -> Iterator[Any]:
        for each in plan_partitions(directories, options):
            if not truncated:
                truncated.append(True)
                with cleaner.truncating(ORDERS, 1):
                    pass
            yield each

    def cleaned(cleaning: Cleaning) -> CleanResult:
        cleaned_from.append(cleaning.plan.first_dirty_offset)
        return perform(cleaning)

    monkeypatch.setattr(log_pool, "plan_partitions", plan)
    monkeypatch.setattr(service, "perform", cleaned)
    cleaner = cleaner_of(tmp_path, {**COMPACT, "min.cleanable.dirty.ratio": "0"})
    with cleaner:
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)
    assert cleaned_from == [1]


def test_a_truncation_needs_the_lock(tmp_path: Path) -> None:
    partition(tmp_path, settings("checkpoint=3"))
    cleaner = cleaner_of(tmp_path)
    with pytest.raises(CleanerStateError, match="not running"), cleaner.truncating(ORDERS, 1):
        raise AssertionError("not reached")
    assert cleaner.checkpoint_of(ORDERS) == 3


def test_a_callback_may_pause_the_partition(tmp_path: Path) -> None:
    partition(tmp_path)
    paused_by_callback = threading.Event()

    def pause(result: CleanResult) -> None:
        cleaner.abort_and_pause_cleaning(ORDERS)
        paused_by_callback.set()

    cleaner = cleaner_of(tmp_path, on_cleaned=pause)
    with cleaner:
        assert paused_by_callback.wait(PATIENCE_S)
        assert cleaner.state_of(ORDERS) == paused(1)


def test_a_callback_that_fails_ends_its_thread_and_nothing_else(tmp_path: Path) -> None:
    partition(tmp_path)

    def fail(result: CleanResult) -> None:
        raise OSError(5, "the callback's own file")

    with cleaner_of(tmp_path, on_cleaned=fail) as cleaner:
        assert becomes(lambda: cleaner.metrics()["DeadThreadCount"] == 1)
        assert (cleaner.checkpoint_of(ORDERS), cleaner.uncleanable_partitions, cleaner.offline_log_dirs) == (6, {}, {})


def test_a_log_that_changes_meanwhile_is_planned_anew(gate: Gate, tmp_path: Path) -> None:
    directory = partition(tmp_path)
    with cleaner_of(tmp_path) as cleaner:
        assert gate.reached.wait(PATIENCE_S)
        for name in sorted(directory.glob(f"{6:020d}.*")):
            name.unlink()
        gate.open()
        assert cleaner.await_cleaned(ORDERS, 3, PATIENCE_S)
        assert (cleaner.uncleanable_partitions, cleaner.offline_log_dirs) == ({}, {})


@pytest.mark.long
def test_aborts_at_any_time_lose_nothing(tmp_path: Path) -> None:
    partitions = [TopicPartition("orders", number) for number in range(24)]
    for each in partitions:
        partition(tmp_path, settings(f"name={each}"))
    done = threading.Event()
    with cleaner_of(tmp_path, {**COMPACT, "log.cleaner.threads": "3"}) as cleaner:

        def abort_some(seed: int) -> None:
            rng = random.Random(seed)
            while not done.is_set():
                chosen = rng.choice(partitions)
                with suppress(CleanerStateError):  # Another thread waits for the same abort.
                    cleaner.abort_and_pause_cleaning(chosen)
                    done.wait(rng.random() * 0.01)
                    cleaner.resume_cleaning([chosen])

        with in_background(lambda: abort_some(1)), in_background(lambda: abort_some(2)):
            cleaned = [cleaner.await_cleaned(each, 6, PATIENCE_S) for each in partitions]
            done.set()
        assert all(cleaned)
        assert {cleaner.state_of(each) for each in partitions} == {NONE}
        assert (cleaner.uncleanable_partitions, cleaner.thread_failures) == ({}, ())
    assert all(values(tmp_path / str(each)) == COMPACTED for each in partitions)


# --- Its life -----------------------------------------------------------------------------------------------


def test_a_shutdown_stops_a_cleaning_with_nothing_changed(gate: Gate, tmp_path: Path) -> None:
    directory = partition(tmp_path)
    before = digest(directory)
    cleaner = cleaner_of(tmp_path)
    cleaner.startup()
    with pytest.raises(CleanerStateError):
        cleaner.startup()
    assert gate.reached.wait(PATIENCE_S)
    assert is_locked(tmp_path)
    with in_background(cleaner.shutdown):
        gate.open()
    assert (digest(directory), cleaner.state_of(ORDERS), is_locked(tmp_path)) == (before, NONE, False)
    with cleaner:
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)


def test_a_locked_log_directory_keeps_it_from_starting(tmp_path: Path) -> None:
    for name in ("a", "b"):
        partition(tmp_path / name)
    cleaner = Cleaner([tmp_path / "a", str(tmp_path / "b")], COMPACT, clock=lambda: NOW_MS)
    with log_dir_lock(tmp_path / "b"), pytest.raises(LogDirLockedError):
        cleaner.startup()
    assert not is_locked(tmp_path / "a")
    with cleaner:
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)


def test_no_start_while_a_shutdown_waits(gate: Gate, tmp_path: Path) -> None:
    partition(tmp_path)
    cleaner = cleaner_of(tmp_path)
    cleaner.startup()
    assert gate.reached.wait(PATIENCE_S)
    with in_background(cleaner.shutdown), in_background(cleaner.shutdown):
        assert becomes(lambda: not cleaner._is_running)
        with pytest.raises(CleanerStateError, match="'startup' is not possible"):
            cleaner.startup()
        assert is_locked(tmp_path)
        gate.open()
    assert not is_locked(tmp_path)
    with cleaner:
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)


def test_a_start_tries_uncleanable_partitions_again(tmp_path: Path) -> None:
    log = partition(tmp_path) / f"{0:020d}.log"
    sound = log.read_bytes()
    flip(log, 100)
    cleaner = cleaner_of(tmp_path)
    with cleaner:
        await_uncleanable(cleaner, {ORDERS})
    log.write_bytes(sound)
    with cleaner:
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)
        assert cleaner.uncleanable_partitions == {}


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ({}, CleanOptions(dry_run=True)),
        ({}, CleanOptions(output="elsewhere")),
        ({"log.cleaner.threads": "0"}, CleanOptions()),
        ({"log.cleaner.backoff.ms": "-1"}, CleanOptions()),
        ({"log.cleaner.io.max.bytes.per.second": "0"}, CleanOptions()),
        ({"no.such.setting": "1"}, CleanOptions()),
    ],
)
def test_options_that_make_no_sense_are_refused(config: dict[str, str], options: CleanOptions, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Cleaner([tmp_path], config, options=options)


def test_all_threads_share_one_throttle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    throttles: list[object] = []

    class Watched(InProcess):
        def __init__(self, **fields: Any) -> None:
            throttles.append(fields["throttle"])
            super().__init__(**fields)

    monkeypatch.setattr(service, "InProcess", Watched)
    for number in range(4):
        partition(tmp_path, settings(f"name=orders-{number}"))
    config = {**COMPACT, "log.cleaner.threads": "2", "log.cleaner.io.max.bytes.per.second": "5e7"}
    with cleaner_of(tmp_path, config) as cleaner:
        for number in range(4):
            assert cleaner.await_cleaned(TopicPartition("orders", number), 6, PATIENCE_S)
    assert len({id(throttle) for throttle in throttles}) == 1
    assert getattr(throttles[0], "max_bytes_per_second", None) == 50_000_000


# --- Failures and metrics -----------------------------------------------------------------------------------


def test_an_uncleanable_partition_is_remembered_until_it_is_forgotten(tmp_path: Path) -> None:
    directory, other = partition(tmp_path), partition(tmp_path, settings("name=prices-0"))
    log = directory / f"{0:020d}.log"
    sound = log.read_bytes()
    flip(log, 100)
    before = digest(directory)
    with cleaner_of(tmp_path) as cleaner:
        assert cleaner.await_cleaned(PRICES, 6, PATIENCE_S)
        await_uncleanable(cleaner, {ORDERS})
        failed = cleaner.uncleanable_partitions[ORDERS]
        assert failed.cause.__traceback__ is None
        cleanable_bytes = sum((directory / f"{base:020d}.log").stat().st_size for base in (0, 3))
        assert isinstance(failed.cause, CorruptDataError)
        assert (failed.directory, failed.cleanable_bytes) == (directory, cleanable_bytes)
        assert digest(directory) == before
        metrics = cleaner.metrics()
        assert metrics[f"uncleanable-partitions-count,logDirectory={tmp_path}"] == 1
        assert metrics[f"uncleanable-bytes,logDirectory={tmp_path}"] == cleanable_bytes

        log.write_bytes(sound)
        assert not cleaner.await_cleaned(ORDERS, 6, 0.1)
        cleaner.forget_uncleanable(ORDERS)
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)
        assert cleaner.uncleanable_partitions == {}
    assert values(directory) == values(other) == COMPACTED


def await_uncleanable(cleaner: Cleaner, expected: set[TopicPartition]) -> None:
    assert becomes(lambda: set(cleaner.uncleanable_partitions) == expected)


def test_an_uncleanable_partition_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs")
    flip(directory / f"{0:020d}.log", 100)
    with cleaner_of(tmp_path / "logs") as cleaner:
        await_uncleanable(cleaner, {ORDERS})
        directory.rename(tmp_path / "moved")
        await_uncleanable(cleaner, set())


def test_a_failed_read_takes_the_log_directory_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sound", "failing"):
        for topic in ("orders", "prices"):
            partition(tmp_path / name, settings(f"name={topic}-{name == 'failing':d}"))

    def failing(cleaning: Cleaning) -> CleanResult:
        directory = cleaning.plan.log.directory
        if directory.parent.name == "failing":
            raise OSError(5, "Input/output error", str(directory))
        return perform(cleaning)

    monkeypatch.setattr(service, "perform", failing)
    with Cleaner([tmp_path / "sound", tmp_path / "failing"], COMPACT, clock=lambda: NOW_MS) as cleaner:
        for topic in ("orders", "prices"):
            assert cleaner.await_cleaned(TopicPartition(topic, 0), 6, PATIENCE_S)
        assert becomes(lambda: bool(cleaner.offline_log_dirs))
        assert set(cleaner.offline_log_dirs) == {tmp_path / "failing"}
        assert cleaner.uncleanable_partitions == {}


def test_a_journal_that_cannot_be_written_leaves_the_log_directory_online(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, journal = partition(tmp_path / "logs"), tmp_path / "journal"

    def failing(self: Journal, *arguments: object, **options: object) -> None:
        raise StorageError(path=self.path, problem=OSError(5, "Input/output error"))

    monkeypatch.setattr(Journal, "begin", failing)
    options = CleanOptions(journal=journal)
    with Cleaner(directory.parent, COMPACT, options=options, clock=lambda: NOW_MS) as cleaner:
        assert becomes(lambda: bool(cleaner.uncleanable_partitions))
        (uncleanable,) = cleaner.uncleanable_partitions.values()
        assert str(journal) in str(uncleanable.cause)
        assert cleaner.offline_log_dirs == {}


def test_a_partition_that_is_removed_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = tmp_path / "logs"
    removed, kept = partition(log_dir), partition(log_dir, settings("name=prices-0"))

    def plan(directories: Sequence[Path], options: PlanOptions) -> Any:
        if removed in directories and removed.exists():
            removed.rename(tmp_path / "removed")
        return plan_partitions(directories, options)

    monkeypatch.setattr(log_pool, "plan_partitions", plan)
    with cleaner_of(log_dir) as cleaner:
        assert cleaner.await_cleaned(PRICES, 6, PATIENCE_S)
        await_uncleanable(cleaner, set())
        assert (cleaner.offline_log_dirs, cleaner.thread_failures) == ({}, ())
    assert values(kept) == COMPACTED


def test_a_log_directory_that_is_gone_leaves_the_others_alone(tmp_path: Path) -> None:
    gone, kept = tmp_path / "gone", tmp_path / "kept"
    partition(gone)
    kept.mkdir()
    with Cleaner([gone, kept], COMPACT, clock=lambda: NOW_MS) as cleaner:
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)
        gone.rename(tmp_path / "elsewhere")
        partition(tmp_path / "new", settings("name=prices-0 lone")).rename(kept / "prices-0")
        assert cleaner.await_cleaned(PRICES, 6, PATIENCE_S)
        # The look that found the new partition may have been at the other directory before it went away.
        assert becomes(lambda: list(cleaner.offline_log_dirs) == [gone])
        assert cleaner.thread_failures == ()


def test_a_log_directory_that_is_replaced_is_left_alone(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    log_dir.mkdir()
    new = partition(tmp_path / "new", settings("name=prices-0")).parent
    before = digest(new)
    with cleaner_of(log_dir) as cleaner:
        log_dir.rename(tmp_path / "moved")
        new.rename(log_dir)
        assert becomes(lambda: list(cleaner.offline_log_dirs) == [log_dir])
    assert digest(log_dir) == before


def test_one_path_is_one_log_directory(tmp_path: Path) -> None:
    partition(tmp_path)
    with Cleaner(str(tmp_path), COMPACT, clock=lambda: NOW_MS) as cleaner:
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)
    assert not cleaner.await_cleaned(ORDERS, 7, PATIENCE_S)  # It does not run, so it does not wait.
    with pytest.raises(RefusedError, match="no such directory"):
        Cleaner(tmp_path / "missing", COMPACT).startup()


@pytest.mark.filterwarnings("error")
def test_a_thread_that_dies_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition(tmp_path)

    def dying(_: object) -> None:
        raise KcompactError("not of one log")

    monkeypatch.setattr(log_pool.LogPool, "grab_dirtiest", dying)
    with cleaner_of(tmp_path, {**COMPACT, "log.cleaner.threads": "2"}) as cleaner:
        assert becomes(lambda: cleaner.metrics()["DeadThreadCount"] == 2)
        assert [str(failure) for failure in cleaner.thread_failures] == ["not of one log"] * 2


def test_the_metrics_have_kafkas_names(tmp_path: Path) -> None:
    partition(tmp_path)
    with cleaner_of(tmp_path) as cleaner:
        assert cleaner.await_cleaned(ORDERS, 6, PATIENCE_S)
        metrics = cleaner.metrics()
    assert {name.split(",")[0] for name in metrics} == {
        "max-dirty-percent",
        "cleaner-recopy-percent",
        "max-clean-time-secs",
        "max-buffer-utilization-percent",
        "max-compaction-delay-secs",
        "time-since-last-run-ms",
        "uncleanable-partitions-count",
        "uncleanable-bytes",
        "DeadThreadCount",
    }
