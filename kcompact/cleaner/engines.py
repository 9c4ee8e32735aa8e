"""Chooses the executor that runs the stages, this process or Spark, and starts it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.clean.stages import Executor, Progress
from kcompact.engine.in_process import InProcess, SharedMemory
from kcompact.engine.spark.master import check_master
from kcompact.errors import ConfigError, KcompactError, RefusedError
from kcompact.host.machine import available_cores
from kcompact.notes import Note, NoteCode
from kcompact.wording import worded

if TYPE_CHECKING:
    from kcompact.engine.spark import SparkStart

ENGINES = ("auto", "spark", "in-process")
LOCAL_MASTER = "local[*]"
SPARK_BYTES = 16 << 30
"""From so many bytes to read on, `auto` chooses Spark where it can run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Which engine runs the stages of a round. Both give the same bytes. `master` and `spark_conf` are Spark's.

    `auto` chooses by the options and the size of the work: see `choose`. Without a `master` Spark runs on this machine.
    Raises ConfigError for an unknown engine, a master that Spark does not know, and settings of Spark with another
    engine.
    """

    name: str = "auto"
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ConfigError(path=worded("--engine"), problem=f"'{self.name}' is none of {', '.join(ENGINES)}")
        if self.name == "in-process" and (self.spark_conf or self.master is not None):
            raise ConfigError(
                path=worded("--engine"), problem=f"{self.name} does not use a Spark master or Spark settings"
            )
        if self.master is not None:
            check_master(self.master)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """The engine that runs: `spark` or `in-process`. `why` it was chosen is empty if the options name it."""

    name: str
    why: str = ""

    def __str__(self) -> str:
        return f"engine: {self.name}" + (f" ({self.why})" if self.why else "")


def choose(
    options: EngineOptions, *, bytes_to_read: int, has_spark: Callable[[], bool], has_java: Callable[[], bool]
) -> EngineChoice:
    """Return the engine of a round: Spark where its options are given, or where the work is large and Spark can run.

    `has_spark` and `has_java` take time, and are called only for a choice that depends on them.
    """
    if options.name != "auto":
        return EngineChoice(name=options.name)
    if options.master is not None or options.spark_conf:
        option = worded("--spark-conf" if options.master is None else "--master")
        return EngineChoice(name="spark", why=f"{option} is given")
    size, least = f"{readable.size(bytes_to_read)} to read", readable.size(SPARK_BYTES)
    if bytes_to_read < SPARK_BYTES:
        return EngineChoice(name="in-process", why=f"{size}; Spark from {least}")
    if not has_spark():
        return EngineChoice(name="in-process", why=f"{size}, but Spark is not installed")
    if not has_java():
        return EngineChoice(name="in-process", why=f"{size}, but no usable Java was found")
    return EngineChoice(name="spark", why=f"{size}; Spark from {least}")


def _has_spark() -> bool:
    from kcompact.engine.spark.jvm import spark_home

    with suppress(RefusedError):
        return bool(spark_home())
    return False


def _has_java() -> bool:
    from kcompact.engine.spark import find_java

    with suppress(RefusedError):
        return bool(find_java())
    return False


class Engine:
    """Makes the executors of a round. Spark needs seconds to start, so it can start in the background."""

    def __init__(self, options: EngineOptions, stack: ExitStack, *, bytes_to_read: int) -> None:
        self.choice = choose(options, bytes_to_read=bytes_to_read, has_spark=_has_spark, has_java=_has_java)
        self._master = options.master or LOCAL_MASTER
        self._spark_conf = dict(options.spark_conf)
        self._stack = stack
        self._start: SparkStart | KcompactError | None = None

    def check(self) -> None:
        """Raise KcompactError if Spark is the engine and cannot start, as far as that can be found out at once."""
        if self.choice.name == "spark":
            from kcompact.engine.spark import check_prerequisites

            check_prerequisites(self._master, self._spark_conf)

    def begin(self) -> None:
        """Begin to start Spark, if it is the engine. `executors` raises a failure."""
        if self.choice.name != "spark" or self._start is not None:
            return
        from kcompact.engine.spark import spark_start

        try:
            self._start = self._stack.enter_context(spark_start(self._master, self._spark_conf))
        except KcompactError as problem:
            self._start = problem

    @property
    def side_by_side(self) -> int:
        """How many small partitions are cleaned at the same time. On Spark they share jobs, so more cost less."""
        if self.choice.name == "spark":
            return 16
        return 4 if available_cores() > 1 else 1

    @contextmanager
    def executors(self, note: Callable[[Note], None]) -> Iterator[Callable[[Progress], Executor]]:
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
                note(Note.of(NoteCode.SPARK_START_PREPARED))
            yield lambda progress: OnSpark(sc=context, progress=progress, shared_jobs=jobs)
