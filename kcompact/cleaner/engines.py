"""Starts the executor that runs the stages: this process, or Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kcompact.clean.executor import Executor, Progress
from kcompact.engine.in_process import InProcess, available_cores
from kcompact.engine.shared_memory import SharedMemory
from kcompact.engine.spark.master import check_master
from kcompact.errors import ConfigError, KcompactError
from kcompact.wording import worded

if TYPE_CHECKING:
    from kcompact.engine.spark import SparkStart

ENGINES = ("spark", "in-process")
LOCAL_MASTER = "local[*]"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Which engine runs the stages of a round. Both give the same bytes. `master` and `spark_conf` are Spark's.

    Raises ConfigError for an unknown engine, a master that Spark does not know, and settings of Spark with another
    engine.
    """

    name: str = "in-process"
    master: str = LOCAL_MASTER
    spark_conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ConfigError(path=worded("--engine"), problem=f"'{self.name}' is none of {', '.join(ENGINES)}")
        if self.name != "spark" and (self.spark_conf or self.master != LOCAL_MASTER):
            raise ConfigError(
                path=worded("--engine"), problem=f"{self.name} does not use a Spark master or Spark settings"
            )
        check_master(self.master)


class Engine:
    """Makes the executors of a round. Spark needs seconds to start, so it can start in the background."""

    def __init__(self, options: EngineOptions, stack: ExitStack) -> None:
        self._options = options
        self._stack = stack
        self._start: SparkStart | KcompactError | None = None

    def check(self) -> None:
        """Raise KcompactError if Spark is the engine and cannot start, as far as that can be found out at once."""
        if self._options.name == "spark":
            from kcompact.engine.spark import check_prerequisites

            check_prerequisites(self._options.master, self._options.spark_conf)

    def begin(self) -> None:
        """Begin to start Spark, if it is the engine. `executors` raises a failure."""
        if self._options.name != "spark" or self._start is not None:
            return
        from kcompact.engine.spark import spark_start

        try:
            self._start = self._stack.enter_context(spark_start(self._options.master, dict(self._options.spark_conf)))
        except KcompactError as problem:
            self._start = problem

    @property
    def side_by_side(self) -> int:
        """How many small partitions are cleaned at the same time. On Spark they share jobs, so more cost less."""
        if self._options.name == "spark":
            return 16
        return 4 if available_cores() > 1 else 1

    @contextmanager
    def executors(self, note: Callable[[str], None]) -> Iterator[Callable[[Progress], Executor]]:
        """Yield a function that makes an executor for a `Progress`. Without a `begin` this process is the executor.

        `note` receives a remark for the user. Raises KcompactError if Spark did not start.
        """
        if self._start is None:
            memory = SharedMemory()
            yield lambda progress: InProcess(progress=progress, memory=memory)
            return
        if isinstance(self._start, KcompactError):
            raise self._start
        from kcompact.engine.spark import OnSpark, shared_jobs

        with self._start.context() as context, shared_jobs(context) as jobs:
            if self._start.is_first:
                note(
                    "after this run a background process prepares files that make later starts of Spark faster; "
                    "this happens once"
                )
            yield lambda progress: OnSpark(sc=context, progress=progress, shared_jobs=jobs)
