"""Hands the work of several threads out to Spark as tasks, in jobs that run at the same time.

A thread brings a piece of work, a partition for example, and waits for its result. The result arrives when its own task
ends, whatever else the job does: a long task holds back nobody. A job costs Spark several times what a task costs, so
work is gathered: the next job begins when fewer than two tasks for each slot of the cluster are left, with all work
that waits by then, the largest first.

Each piece of work has its own result or error. If a job itself fails, each piece without a result runs again in a job
of its own. Then only the one that is the cause fails.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from kcompact.errors import EngineError

POLL_S = 0.2
GATHER_S = 0.02
"""How long a job waits for more work. Partitions that end together bring their successors together."""
TASKS_PER_SLOT = 2
"""With so many tasks in flight for each slot, no slot waits for the driver."""
JOBS = 64
"""The most jobs that run at the same time."""


class Piece(NamedTuple):
    """Something to do in one task, as bytes, and the bytes of its source."""

    data: bytes
    size_bytes: int


Deliver = Callable[[int, bytes], None]
"""Takes the number of a piece in its job, and its result."""


class _Job:
    """A job that has begun. `wanted` are the requests without a result that somebody waits for."""

    def __init__(self, requests: Iterable[_Request]) -> None:
        self.group = f"kcompact-tasks-{secrets.token_hex(4)}"
        self.wanted = set(requests)
        self.ended = threading.Event()


class _Request:
    """A piece of work, and the job that runs it once there is one. `stopped` is what its check has raised."""

    def __init__(self, piece: Piece, check: Callable[[], None], *, alone: bool) -> None:
        self.piece = piece
        self.alone = alone
        self.job: _Job | None = None
        self.result: Future[bytes] = Future()
        self.stopped: BaseException | None = None
        self.check = check
        self._has_ended = threading.Event()
        self.result.add_done_callback(lambda result: self._has_ended.set())

    def look(self) -> None:
        """Stop if the check says so. After that it is not asked again."""
        if self.stopped is not None:
            return
        try:
            self.check()
        except BaseException as problem:
            self.stopped = problem
            self._has_ended.set()

    def wait(self) -> None:
        """Wait for the result or a stop. Raises what the check has raised."""
        self._has_ended.wait()
        if self.stopped is not None:
            raise self.stopped


class TaskQueue:
    """Runs pieces of work for several threads.

    `run` runs a job of this name and calls `deliver` as each piece ends, from any thread; no task of the job runs
    after it. `cancel` cancels a job until `ended(seconds)`, which waits at most so long, and returns when no task of it
    runs. `slots` is the number of tasks that run at the same time.
    """

    def __init__(
        self,
        run: Callable[[str, Sequence[Piece], Deliver], None],
        cancel: Callable[[str, Callable[[float], bool]], None],
        *,
        slots: int,
    ) -> None:
        self._run = run
        self._cancel = cancel
        self.slots = slots
        self._jobs = ThreadPoolExecutor(JOBS, "kcompact-job")
        self._changed = threading.Condition()
        self._waiting: list[_Request] = []
        self._watched: list[_Request] = []
        self._in_flight = 0
        self._has_ended = False
        for target, name in ((self._begin_jobs, "kcompact-tasks"), (self._watch, "kcompact-stops")):
            threading.Thread(target=target, name=name, daemon=True).start()

    def result(self, piece: Piece, check: Callable[[], None]) -> bytes:
        """Run a piece and return its result. Calls `check` meanwhile, from another thread; it may raise.

        A piece whose job has failed is run again alone. Raises the exception of `run` if that fails too. After an
        exception of `check` the piece does not run any more.
        """
        with contextlib.suppress(_JobFailedError):
            return self._result(_Request(piece, check, alone=False))
        return self._result(_Request(piece, check, alone=True))

    def end(self) -> None:
        """Begin no more jobs. Does not wait for one that runs."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()
        self._jobs.shutdown(wait=False, cancel_futures=True)

    def _result(self, request: _Request) -> bytes:
        request.check()
        with self._changed:
            self._waiting.append(request)
            self._watched.append(request)
            self._changed.notify_all()
        try:
            request.wait()
        except BaseException:
            self._withdraw(request)
            raise
        finally:
            with self._changed:
                self._watched.remove(request)
        return request.result.result()

    def _watch(self) -> None:
        """Look for each thread that waits whether it is to stop. A hundred that wake up to look cost far more."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._watched or self._has_ended)
                watched = list(self._watched)
            if not watched:
                return
            for request in watched:
                request.look()
            time.sleep(POLL_S)

    def _begin_jobs(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._can_begin)
            time.sleep(GATHER_S)
            with self._changed:
                if self._has_ended:
                    return
                requests = self._taken()
                if not requests:
                    continue  # They were withdrawn.
                self._in_flight += len(requests)
                job = _Job(requests)
                for request in requests:
                    request.job = job
                self._jobs.submit(self._run_job, job, requests)

    def _can_begin(self) -> bool:
        return self._has_ended or bool(self._waiting and self._in_flight < TASKS_PER_SLOT * self.slots)

    def _taken(self) -> list[_Request]:
        """Return the requests of the next job: one that has to be alone, or all that wait."""
        taken = next(([each] for each in self._waiting if each.alone), self._waiting)
        self._waiting = [each for each in self._waiting if each not in taken]
        return sorted(taken, key=lambda request: -request.piece.size_bytes)

    def _run_job(self, job: _Job, requests: Sequence[_Request]) -> None:
        def deliver(number: int, data: bytes) -> None:
            self._finish(requests[number], data)

        try:
            self._run(job.group, [request.piece for request in requests], deliver)
            problem: BaseException = EngineError(problem="Spark returned no result of a task")
        except BaseException as raised:
            problem = raised
        for request in requests:
            self._finish(request, problem if request.alone else _JobFailedError())
        job.ended.set()

    def _finish(self, request: _Request, outcome: bytes | BaseException) -> None:
        """Set the outcome of a request, unless it has one: a result stays when the rest of its job fails."""
        with self._changed:
            if request.result.done():
                return
            if isinstance(outcome, bytes):
                request.result.set_result(outcome)
            else:
                request.result.set_exception(outcome)
            if request.job is not None:
                request.job.wanted.discard(request)
            self._in_flight -= 1
            self._changed.notify_all()

    def _withdraw(self, request: _Request) -> None:
        """Return when the piece does not run any more. A job whose pieces are all withdrawn or done is cancelled."""
        with self._changed:
            job = request.job
            if job is None:
                self._waiting.remove(request)
                return
            job.wanted.discard(request)
        # Another thread may still want its part of the job.
        while not (request.result.done() or job.ended.wait(POLL_S)):
            if not job.wanted:
                self._cancel(job.group, job.ended.wait)
                return


class _JobFailedError(Exception):
    """A job has failed whose pieces will each be run again alone."""
