"""A partition that is cleaned whole in one task: the same result as in stages, whatever the task runs into."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kcompact.clean import join, write
from kcompact.clean.staged_files import StagingDirectory
from kcompact.cleaner import space, writing
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import CleanResult
from kcompact.cleaner.partition import clean_partition
from kcompact.engine.in_process import InProcess
from kcompact.engine.seals import opened, sealed
from kcompact.errors import BatchTooLargeError, CorruptBatchError, LogChangedError, NotEnoughSpaceError, StorageError
from kcompact.host.disk import Disk
from kcompact.log.lock import log_dir_lock
from kcompact.stages.executor import Progress
from tests.support.command_line import flip
from tests.support.patience import PATIENCE_S
from tests.support.spark_runs import content, left_behind, plan_of, write_log


@dataclasses.dataclass(frozen=True)
class InTasks(InProcess):
    """Runs whole partitions as a worker of Spark does: all that travels is pickled. `attempt` runs an attempt."""

    name: str = "spark"
    whole_bytes: int = 1 << 40
    memory_bytes: int | None = None
    attempt: Callable[[Callable[[], Any]], Any] = lambda run: run()
    ran: list[str] = dataclasses.field(default_factory=list)

    def run_whole(self, work: Any, argument: Any, whole: Any) -> Any:
        sent = sealed((work, argument))

        def run() -> bytes:
            function, received = opened(sent, source="test")
            return sealed(function(InProcess(parallelism=1), self.memory_bytes, received))

        result = opened(self.attempt(run), source="test")
        self.ran.append("needs stages" if result is None else "whole")
        return result


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    write_log(tmp_path / "logs")
    return tmp_path / "logs"


def clean(log_dir: Path, executor: InProcess, **options: Any) -> CleanResult:
    plan = plan_of(log_dir / "orders-0")
    with log_dir_lock(log_dir) as lock:
        return clean_partition(plan, executor, lock=lock, options=CleanOptions(**options))


def facts(result: CleanResult) -> Any:
    """Return what does not depend on the engine or the time."""
    segments = [(each.base_offset, [file.name for file in each.files]) for each in result.swapped.replaced]
    return result.status, result.stats, result.end_offset, result.held_back, result.notes, segments


@pytest.mark.parametrize("way", ["in place", "dry run", "copy", "kept", "rebuilt indexes"])
def test_the_result_is_that_of_stages(log_dir: Path, tmp_path: Path, way: str) -> None:
    shutil.copytree(log_dir, tmp_path / "other" / "logs")
    found = []
    for place, executor in ((tmp_path, InTasks()), (tmp_path / "other", InProcess())):
        options_of: dict[str, dict[str, Any]] = {
            "in place": {},
            "dry run": {"dry_run": True},
            "copy": {"output": place / "copy"},
            "kept": {"keep_replaced": place / "kept"},
            "rebuilt indexes": {"rebuild_indexes": True},
        }
        result = clean(place / "logs", executor, **options_of[way])
        files = content(place / "logs") | (content(place / "copy") if way == "copy" else {})
        found.append((facts(result), files, left_behind(place / "logs")))
        if isinstance(executor, InTasks):
            assert executor.ran == ["whole"]
    assert found[0] == found[1]
    assert found[0][0][1].messages_written > 0


def test_one_that_is_too_large_is_cleaned_in_stages(log_dir: Path) -> None:
    executor = dataclasses.replace(InTasks(), whole_bytes=1000)
    clean(log_dir, executor)
    assert executor.ran == []


def test_an_error_in_the_task_is_raised_as_it_is(log_dir: Path) -> None:
    plan = plan_of(log_dir / "orders-0")
    victim = log_dir / "orders-0" / plan.segments[2].log_name
    flip(victim, victim.stat().st_size // 2, 1)
    before = content(log_dir)
    with pytest.raises(CorruptBatchError) as raised:
        clean(log_dir, InTasks())
    assert raised.value.file == str(victim)
    assert content(log_dir) == before


# What does not fit a task's part


@pytest.mark.parametrize("is_copy", [False, True])
@pytest.mark.parametrize(
    ("part_bytes", "ran"), [(None, []), (30_000, ["needs stages"]), (1 << 30, ["whole"])], ids=["none", "little", "all"]
)
def test_without_enough_space_in_stages(
    log_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    part_bytes: int | None,
    ran: list[str],
    is_copy: bool,
) -> None:
    """The partition has 170 kB and keeps 100 kB; a task that may fill 30 kB writes nothing."""
    shutil.copytree(log_dir, tmp_path / "other")
    released = []

    def reserved(*_: Any, **__: Any) -> Any:
        if part_bytes is None:
            raise NotEnoughSpaceError(path="here", needed_bytes=2, free_bytes=1)
        return Disk(part_bytes, 4096), lambda: released.append(1)

    monkeypatch.setattr(writing, "reserved_for_task", reserved)
    executor = InTasks()
    options = {"output": tmp_path / "copy"} if is_copy else {}
    clean(log_dir, executor, **options)
    assert executor.ran == ran
    assert len(released) == len(ran)
    other = {"output": tmp_path / "other-copy"} if is_copy else {}
    clean(tmp_path / "other", InProcess(), **other)
    assert content(log_dir) == content(tmp_path / "other")
    assert left_behind(log_dir) == []
    if is_copy:
        assert content(tmp_path / "copy") == content(tmp_path / "other-copy")


def test_bounds_that_do_not_fit_are_counted(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fits(sizes: Any, disk: Disk) -> int:
        asked.append(sizes.is_exact)
        return 0 if sizes.is_exact else 1 << 50

    monkeypatch.setattr(space._Sizes, "at_once_bytes", fits)
    executor = InTasks()
    clean(log_dir, executor)
    assert (executor.ran, asked) == (["whole"], [False, True])


def test_what_a_task_may_fill(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least what the partition takes now, at most eight times that, in between a part of what is free."""
    plan = plan_of(log_dir / "orders-0")
    size = sum(file.size_bytes for segment in plan.segments for file in segment.files)
    least = size + size // space._TASK_SPARE + space._TASK_FIXED_BYTES
    found = {}
    for free in (least - 1, least, 40 * least, 64 * least, 10_000 * least):
        monkeypatch.setattr(Disk, "of", staticmethod(lambda path, free=free: Disk(free, 4096)))
        try:
            disk, release = space.reserved_for_task(plan, log_dir, Progress(), is_copy=False)
        except NotEnoughSpaceError as problem:
            found[free] = problem.needed_bytes
        else:
            found[free] = disk.free_bytes
            release()
    assert list(found.values()) == [least, least, 40 * least // 32, 2 * least, 8 * least]


def test_tasks_reserve_beside_each_other(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(log_dir / "orders-0")
    monkeypatch.setattr(Disk, "of", staticmethod(lambda path: Disk(3 << 20, 4096)))

    class Waits:
        def check(self) -> None:
            raise TimeoutError

    releases = [space.reserved_for_task(plan, log_dir, Waits(), is_copy=False)[1] for _ in range(2)]  # type: ignore[arg-type]
    with pytest.raises(TimeoutError):
        space.reserved_for_task(plan, log_dir, Waits(), is_copy=False)  # type: ignore[arg-type]
    for release in releases:
        release()
    space.reserved_for_task(plan, log_dir, Waits(), is_copy=False)[1]()  # type: ignore[arg-type]


def test_a_batch_that_needs_all_memory_is_cleaned_in_stages(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: Any, **__: Any) -> Any:
        raise BatchTooLargeError(file="f", position=0, offset=0, problem="p", needed_bytes=None)

    monkeypatch.setattr(writing, "prepare_clean", too_large)
    executor = InTasks()
    assert clean(log_dir, executor).stats.messages_written > 0
    assert executor.ran == ["needs stages"]


# Attempts


class Zombie:
    """Runs a first attempt that stops before its n-th step, and a second one whose result counts.

    Spark takes a worker for lost that it cannot reach. The worker may go on at any later time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stops_at: int) -> None:
        self._stops_at = stops_at
        self._steps = 0
        self._thread: threading.Thread | None = None
        self._stopped, self._goes_on = threading.Event(), threading.Event()
        self.ended_with: BaseException | None = None
        for module, name in (
            *((write, name) for name in ("create", "write_pieces", "sync", "verify_staged_log")),
            *((join, name) for name in ("create", "write_all", "sync", "open_regular", "verify_staged_log")),
        ):
            monkeypatch.setattr(module, name, self._watched(getattr(module, name)))
        really = StagingDirectory.opened

        @contextmanager
        def opened_later(staging: Any) -> Iterator[int]:
            self._step()
            with really(staging) as fd:
                yield fd

        monkeypatch.setattr(StagingDirectory, "opened", opened_later)

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            self._step()
            return function(*arguments, **options)

        return watched

    def _step(self) -> None:
        if threading.current_thread() is self._thread:
            self._steps += 1
            if self._steps == self._stops_at:
                self._stopped.set()
                assert self._goes_on.wait(PATIENCE_S)

    def attempts(self, run: Callable[[], bytes]) -> bytes:
        def first() -> None:
            try:
                run()
            except BaseException as problem:
                self.ended_with = problem
            self._stopped.set()

        self._thread = threading.Thread(target=first)
        self._thread.start()
        assert self._stopped.wait(PATIENCE_S)
        return run()

    def wake(self) -> int:
        """Let the first attempt go on to its end; return how many steps it made."""
        self._goes_on.set()
        assert self._thread is not None
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self._steps


@pytest.mark.parametrize("is_copy", [False, True])
def test_an_attempt_that_comes_late_touches_nothing(tmp_path: Path, is_copy: bool) -> None:
    log_dir = write_log(tmp_path / "logs", segments=2, batches=20).parent
    clean_dir = shutil.copytree(log_dir, tmp_path / "clean")
    clean(clean_dir, InProcess(), **({"output": tmp_path / "clean-copy"} if is_copy else {}))
    expected = content(tmp_path / "clean-copy" if is_copy else clean_dir)
    stops_at, steps = 10_000, 0  # The first attempt first ends before the second one begins.
    while stops_at:
        case = tmp_path / str(stops_at)
        shutil.copytree(log_dir, case / "logs")
        with pytest.MonkeyPatch.context() as monkeypatch:
            zombie = Zombie(monkeypatch, stops_at)
            executor = InTasks(attempt=zombie.attempts)
            clean(case / "logs", executor, **({"output": case / "copy"} if is_copy else {}))
            after = content(case / "copy" if is_copy else case / "logs")
            assert after == expected
            steps = max(steps, zombie.wake())
            if stops_at <= steps:
                assert isinstance(zombie.ended_with, LogChangedError | StorageError), zombie.ended_with
        assert content(case / "copy" if is_copy else case / "logs") == expected, f"stopped at step {stops_at}"
        assert left_behind(case / "logs") == []
        stops_at = min(stops_at, steps + 1) - 1
    assert steps > 10
