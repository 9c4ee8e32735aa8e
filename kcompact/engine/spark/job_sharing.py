"""Collects the small stages of several threads, and runs them together as one job.

A job costs Spark many times what it costs to run a small stage. Stages that arrive while a job runs wait for the next
one, while the threads whose stages have ended do their part on the driver. A stage has its own result or error. If the
job itself fails, each of its stages runs again in a job of its own. Then only the stage that is the cause fails.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Generic, TypeVar

from kcompact.errors import EngineError

POLL_S = 0.2

Stage = TypeVar("Stage")


class _Job:
    """A job that has begun."""

    def __init__(self, size: int) -> None:
        self.group = f"kcompact-shared-{secrets.token_hex(4)}"
        self.wanted = size
        self.ended = threading.Event()


class _Request(Generic[Stage]):
    """A stage, and the job that runs it once there is one."""

    def __init__(self, stage: Stage, *, alone: bool) -> None:
        self.stage = stage
        self.alone = alone
        self.job: _Job | None = None
        self.result: Future[bytes] = Future()


class SharedJobs(Generic[Stage]):
    """Runs stages for several threads.

    `run` runs a job of this name and returns the results of its stages, in order; no task of the job runs after it.
    `cancel` cancels a job until `ended(seconds)`, which waits at most so long, and returns when no task of it runs.
    """

    def __init__(
        self,
        run: Callable[[str, Sequence[Stage]], Sequence[bytes]],
        cancel: Callable[[str, Callable[[float], bool]], None],
    ) -> None:
        self._run = run
        self._cancel = cancel
        self._pool = ThreadPoolExecutor(1, "kcompact-job")
        self._lock = threading.Lock()
        self._waiting: list[_Request[Stage]] = []

    def result(self, stage: Stage, check: Callable[[], None]) -> bytes:
        """Run a stage and return its result. Calls `check` meanwhile, which may raise.

        A stage whose job has failed is run again alone. Raises the exception of `run` if that fails too. After an
        exception of `check` the stage does not run any more.
        """
        with contextlib.suppress(_JobFailedError):
            return self._result(_Request(stage, alone=False), check)
        return self._result(_Request(stage, alone=True), check)

    def end(self) -> None:
        """Run no more stages. Does not wait for a job that runs."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _result(self, request: _Request[Stage], check: Callable[[], None]) -> bytes:
        with self._lock:
            self._waiting.append(request)
        self._pool.submit(self._run_next)
        try:
            check()
            while not wait([request.result], POLL_S).done:
                check()
        except BaseException:
            self._withdraw(request)
            raise
        return request.result.result()

    def _run_next(self) -> None:
        """Run all stages that wait as one job, or the first one alone if it is to be."""
        with self._lock:
            requests = self._taken()
            job = _Job(len(requests))
            for request in requests:
                request.job = job
        if not requests:
            return  # An earlier job has taken them.
        try:
            results = self._run(job.group, [request.stage for request in requests])
            if len(results) != len(requests):
                raise EngineError(problem=f"Spark returned {len(results)} results of {len(requests)} stages")
        except BaseException as problem:
            for request in requests:
                request.result.set_exception(problem if request.alone else _JobFailedError())
        else:
            for request, result in zip(requests, results, strict=True):
                request.result.set_result(result)
        finally:
            job.ended.set()

    def _taken(self) -> list[_Request[Stage]]:
        taken = next(([each] for each in self._waiting if each.alone), self._waiting)
        self._waiting = [each for each in self._waiting if each not in taken]
        return taken

    def _withdraw(self, request: _Request[Stage]) -> None:
        """Return when the stage does not run any more. A job whose stages are all withdrawn is cancelled."""
        with self._lock:
            job = request.job
            if job is None:
                self._waiting.remove(request)
                return
            job.wanted -= 1
        # Another thread may still want its part of the job. Its stages are small, so the job ends soon.
        while not job.ended.wait(POLL_S):
            if job.wanted == 0:
                break
        self._cancel(job.group, job.ended.wait)


class _JobFailedError(Exception):
    """A job has failed whose stages will each be run again alone."""
