"""Pieces of work of several threads run as tasks of some jobs: each has its own result, error and end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kcompact.engine.spark import task_queue
from kcompact.engine.spark.task_queue import Deliver, Piece, TaskQueue
from kcompact.errors import EngineError
from tests.support.patience import PATIENCE_S, becomes


class Jobs:
    """Runs jobs as Spark does: each task waits until the test lets it end. The task "bad" makes its job fail."""

    def __init__(self) -> None:
        self.ran: list[list[str]] = []
        self.cancelled: list[str] = []
        self.may_end: dict[str, threading.Event] = {}
        self.is_cancelled = threading.Event()

    def let(self, *names: str) -> None:
        for name in names:
            self.may_end.setdefault(name, threading.Event()).set()

    def run(self, group: str, pieces: Sequence[Piece], deliver: Deliver) -> None:
        names = [piece.data.decode() for piece in pieces]
        self.ran.append(names)
        waiting = dict(enumerate(names))
        while waiting and not self.is_cancelled.is_set():
            for number, name in list(waiting.items()):
                if self.may_end.setdefault(name, threading.Event()).wait(0.005):
                    if name == "bad":
                        raise ValueError("bad")
                    deliver(number, waiting.pop(number).upper().encode())

    def cancel(self, group: str, ended: Callable[[float], bool]) -> None:
        self.cancelled.append(group)
        self.is_cancelled.set()
        assert ended(PATIENCE_S)


class Scene:
    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.jobs = Jobs()
        self.queue = TaskQueue(self.jobs.run, self.jobs.cancel, slots=1)
        self.pool = pool

    def submit(self, name: str, size: int = 1, check: Callable[[], None] = lambda: None) -> Future[bytes]:
        return self.pool.submit(self.queue.result, Piece(name.encode(), size), check)

    def fill(self) -> list[Future[bytes]]:
        """Submit as many tasks as may be in flight, and wait until they run."""
        first = [self.submit(name) for name in ("one", "two")]
        assert becomes(lambda: sum(map(len, self.jobs.ran)) == 2)
        return first

    def wait_for(self, count: int) -> None:
        assert becomes(lambda: len(self.queue._waiting) == count)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(task_queue, "POLL_S", 0.02)
    with ThreadPoolExecutor() as pool:
        scene = Scene(pool)
        yield scene
        scene.jobs.is_cancelled.set()  # A test that has failed may have left tasks that wait.
    scene.queue.end()


def test_what_waits_is_one_job_the_largest_first(scene: Scene) -> None:
    one, two = scene.fill()
    rest = {name: scene.submit(name, size) for name, size in (("small", 1), ("large", 9), ("middle", 5))}
    scene.wait_for(3)
    began = len(scene.jobs.ran)
    scene.jobs.let("one")
    assert one.result(PATIENCE_S) == b"ONE"
    assert becomes(lambda: len(scene.jobs.ran) > began), "a straggler blocks the next job"
    assert scene.jobs.ran[-1] == ["large", "middle", "small"]
    scene.jobs.let("middle")
    assert rest["middle"].result(PATIENCE_S) == b"MIDDLE"  # Long before its job ends.
    assert not two.done()
    scene.jobs.let("two", "small", "large")
    assert {name: future.result(PATIENCE_S) for name, future in rest.items()} == {
        name: name.upper().encode() for name in rest
    }


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"], ["a", "bad", "c"], ["bad"]], ids=" ".join)
def test_what_a_failed_job_leaves_runs_again_alone(scene: Scene, names: list[str]) -> None:
    scene.fill()
    rest = {name: scene.submit(name, size) for size, name in enumerate(names)}
    scene.wait_for(len(names))
    scene.jobs.let("one", "two")
    assert becomes(lambda: sorted(names) in map(sorted, scene.jobs.ran))
    began = len(scene.jobs.ran)
    if "a" in names:
        scene.jobs.let("a")
        assert rest["a"].result(PATIENCE_S) == b"A"
    scene.jobs.let("bad", "b", "c")
    for name, future in rest.items():
        if name == "bad":
            with pytest.raises(ValueError, match="bad"):
                future.result(PATIENCE_S)
        else:
            assert future.result(PATIENCE_S) == name.upper().encode()
    again = sorted(scene.jobs.ran[began:])
    # "a" had ended before its job failed. "c" may have, too.
    if "bad" in names:
        assert again in ([["bad"]], [["bad"], ["c"]])
    else:
        assert again == []


def test_a_job_without_a_result_is_an_error() -> None:
    queue = TaskQueue(lambda group, pieces, deliver: None, Jobs().cancel, slots=1)
    with pytest.raises(EngineError, match="Spark returned no result of a task"):
        queue.result(Piece(b"lost", 1), lambda: None)
    queue.end()


def test_a_result_that_comes_twice_counts_once() -> None:
    def run(group: str, pieces: Sequence[Piece], deliver: Deliver) -> None:
        deliver(0, b"first")
        deliver(0, b"second")

    queue = TaskQueue(run, Jobs().cancel, slots=1)
    for _ in range(5):  # Counted twice, it would let too many tasks or none into the next job.
        assert queue.result(Piece(b"", 1), lambda: None) == b"first"
    assert queue._in_flight == 0
    queue.end()


class StopError(Exception):
    pass


def raising(stop: threading.Event) -> Callable[[], None]:
    def check() -> None:
        if stop.is_set():
            raise StopError

    return check


def test_a_job_that_nobody_wants_is_cancelled(scene: Scene) -> None:
    stop = threading.Event()
    runs = [scene.submit(name, check=raising(stop)) for name in ("one", "two")]
    assert becomes(lambda: sum(map(len, scene.jobs.ran)) == 2)
    waits = scene.submit("waits", check=raising(stop))
    scene.wait_for(1)
    stop.set()
    for stopped in (*runs, waits):
        with pytest.raises(StopError):
            stopped.result(PATIENCE_S)
    assert ["waits"] not in scene.jobs.ran
    assert scene.jobs.cancelled


def test_a_check_that_has_raised_is_not_asked_again(scene: Scene) -> None:
    """It may say only once that its partition is to stop."""
    stop, asked_by = threading.Event(), list[str]()

    def check() -> None:
        if stop.is_set():
            asked_by.append(threading.current_thread().name)
            raise StopError

    scene.fill()
    stopped, other = scene.submit("stopped", check=check), scene.submit("other")
    scene.wait_for(2)
    scene.jobs.let("one", "two")
    assert becomes(lambda: sum(map(len, scene.jobs.ran)) == 4)
    stop.set()
    assert becomes(lambda: any(request.stopped for request in scene.queue._watched))
    with pytest.raises(TimeoutError):
        stopped.result(0.1)  # Its task may still write files.
    scene.jobs.let("stopped", "other")
    with pytest.raises(StopError):
        stopped.result(PATIENCE_S)
    assert other.result(PATIENCE_S) == b"OTHER"
    assert asked_by == ["kcompact-stops"]


def test_a_job_that_another_wants_is_not_cancelled(scene: Scene) -> None:
    stop = threading.Event()
    scene.fill()
    stays, leaves = scene.submit("stays"), scene.submit("leaves", check=raising(stop))
    scene.wait_for(2)
    scene.jobs.let("one", "two")
    assert becomes(lambda: sum(map(len, scene.jobs.ran)) == 4)
    stop.set()
    assert becomes(lambda: any(request.stopped for request in scene.queue._watched))
    with pytest.raises(TimeoutError):
        leaves.result(0.1)  # Its task may still write files.
    scene.jobs.let("leaves")
    with pytest.raises(StopError):
        leaves.result(PATIENCE_S)
    scene.jobs.let("stays")
    assert stays.result(PATIENCE_S) == b"STAYS"
    assert scene.jobs.cancelled == []
