"""Starts the executor that runs the stages: this process, or Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING

from kcompact.clean.executor import Executor, Progress
from kcompact.cli.commands.request import Request
from kcompact.cli.entries import Entry
from kcompact.cli.output import streams
from kcompact.cli.signals import StopRequest
from kcompact.engine.in_process import InProcess
from kcompact.errors import KcompactError

if TYPE_CHECKING:
    from kcompact.engine.spark import SparkStart


class Engine:
    """Makes the executors. Spark needs seconds to start, so it starts in the background while the plans are shown."""

    def __init__(self, request: Request, stack: ExitStack, stop: StopRequest) -> None:
        self._request = request
        self._stack = stack
        self._stop = stop
        self._start: SparkStart | KcompactError | None = None

    def begin(self, entries: Sequence[Entry]) -> None:
        """Begin to start Spark, if it is the engine and there is something to clean. `executors` raises a failure."""
        if self._request.engine != "spark" or self._start is not None:
            return
        if not any(entry.is_eligible for entry in entries):
            return
        with self._stop.deferred():  # A signal must not interrupt the start halfway.
            try:
                self._start = self._stack.enter_context(_spark(self._request))
            except KcompactError as problem:
                self._start = problem

    @contextmanager
    def executors(self, entries: Sequence[Entry]) -> Iterator[Callable[[Progress], Executor]]:
        """Yield a function that makes an executor for a `Progress`. Raises KcompactError if Spark did not start."""
        self.begin(entries)
        if self._start is None:
            yield lambda progress: InProcess(progress=progress)
            return
        if isinstance(self._start, KcompactError):
            raise self._start
        from kcompact.engine.spark import OnSpark

        if self._start.is_first:
            streams.tell(
                "note: after this run a background process prepares files that make later starts of Spark faster; "
                "this happens once"
            )
        with self._start.context() as context:
            yield lambda progress: OnSpark(sc=context, progress=progress)


def _spark(request: Request) -> AbstractContextManager[SparkStart]:
    from kcompact.engine.spark import spark_start

    return spark_start(request.master, request.spark_conf)
