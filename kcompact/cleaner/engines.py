"""Chooses the executor that runs the stages, this process or Spark, and starts it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact import readable
from kcompact.bucket.path import is_in_bucket
from kcompact.cleaner.small_partitions import SMALL_BYTES, SideBySide
from kcompact.engine.in_process import InProcess, SharedMemory
from kcompact.engine.spark.master import check_master
from kcompact.errors import ConfigError, KcompactError, RefusedError
from kcompact.host.access import user_name
from kcompact.host.machine import available_cores, most_at_once
from kcompact.remarks import Note, RemarkCode
from kcompact.stages.executor import Executor, Progress
from kcompact.stages.sizing import TASK_BYTES
from kcompact.values import dataclass
from kcompact.wording import worded

if TYPE_CHECKING:
    from kcompact.engine.spark import OnSpark, SparkStart

ENGINES = ("auto", "spark", "in-process")
LOCAL_MASTER = "local[*]"
SPARK_BYTES = 16 << 30
"""From so many bytes to read on, `auto` chooses Spark where it can run."""
MIN_THREADS = 32
THREADS_PER_SLOT = 3
"""The driver's threads on Spark, each with a partition: for each slot two tasks in flight, and one that is swapped."""
DESCRIPTORS_PER_THREAD = 5
"""A thread holds a partition and its staging directory open, and more while it swaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Which engine runs the stages of a round. Both give the same bytes. `master` and `spark_conf` are Spark's.

    `auto` chooses by the options and the size of the work: see `choose`. Without a `master` Spark runs on this machine.
    Spark `on` an executor runs already, and goes on running.
    Raises ConfigError for an unknown engine, a master that Spark does not know, and settings of Spark with another
    engine.
    """

    name: str = "auto"
    master: str | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    on: OnSpark | None = None

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ConfigError(path=worded("--engine"), problem=f"'{self.name}' is none of {', '.join(ENGINES)}")
        if self.name == "in-process" and (self.spark_conf or self.master is not None):
            raise ConfigError(
                path=worded("--engine"), problem=f"{self.name} does not use a Spark master or Spark settings"
            )
        if self.master is not None:
            check_master(self.master)


def engine_options(engine: EngineOptions | OnSpark | str | None) -> EngineOptions:
    """Return the options of an engine, of its name, or of an executor on a Spark that runs. Raises ConfigError."""
    if engine is None or isinstance(engine, str):
        return EngineOptions(name=engine or "auto")
    return engine if isinstance(engine, EngineOptions) else EngineOptions(name="spark", on=engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """The engine that runs: `spark` or `in-process`. `why` it was chosen is empty if the options name it."""

    name: str
    why: str = ""

    def __str__(self) -> str:
        return f"engine: {self.name}" + (f" ({self.why})" if self.why else "")


def choose(
    options: EngineOptions,
    *,
    bytes_to_read: int,
    is_in_bucket: bool = False,
    has_spark: Callable[[], bool],
    has_java: Callable[[], bool],
    has_user_name: Callable[[], bool],
) -> EngineChoice:
    """Return the engine of a round: Spark where its options are given, or where the work is large and Spark can do it.

    The functions take time, and are called only for a choice that depends on them.
    """
    if options.name != "auto":
        return EngineChoice(name=options.name)
    if options.master is not None or options.spark_conf:
        option = worded("--spark-conf" if options.master is None else "--master")
        return EngineChoice(name="spark", why=f"{option} is given")
    size, least = f"{readable.size(bytes_to_read)} to read", readable.size(SPARK_BYTES)
    if bytes_to_read < SPARK_BYTES:
        return EngineChoice(name="in-process", why=f"{size}; Spark from {least}")
    if is_in_bucket:
        return EngineChoice(name="in-process", why=f"{size}, in a bucket")
    if not has_spark():
        return EngineChoice(name="in-process", why=f"{size}, but Spark is not installed")
    if not has_user_name():
        return EngineChoice(
            name="in-process", why=f"{size}, but Spark needs an entry for this user in the list of users"
        )
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


@dataclass(frozen=True, slots=True)
class RunningSpark:
    """A Spark of the caller, in place of one that starts. It is not stopped."""

    executor: OnSpark
    is_first: bool = field(default=False, init=False)

    @contextmanager
    def context(self) -> Iterator[Any]:
        """Yield the SparkContext."""
        yield self.executor.sc


class Engine:
    """Makes the executors of a round. Spark needs seconds to start, so it can start in the background."""

    def __init__(
        self,
        options: EngineOptions,
        stack: ExitStack,
        *,
        bytes_to_read: int,
        paths: Iterable[Path] = (),
        uploads: bool = False,
        fetches: bool = False,
    ) -> None:
        """`paths` are read or written. With `uploads` each partition is copied to a bucket, by a task of its own.

        With `fetches` partitions are copied to a local directory: of those in a bucket only this process can do it.
        """
        address = next((str(path) for path in paths if is_in_bucket(path)), None)
        self.choice = choose(
            options,
            bytes_to_read=bytes_to_read,
            is_in_bucket=address is not None,
            has_spark=_has_spark,
            has_java=_has_java,
            has_user_name=lambda: user_name() is not None,
        )
        self._refusal = None
        self.copies_in_tasks = uploads and self.choice.name == "spark"
        """Whether each partition is copied by a task, also one that needs no cleaning."""
        if address is not None and self.choice.name == "spark" and fetches:
            self._refusal = RefusedError(
                path=address,
                problem="is in a bucket, from which Spark's workers copy only to a bucket",
                hint=worded("Run again with --engine in-process, without --master and --spark-conf."),
            )
        self._master = options.master or LOCAL_MASTER
        self._spark_conf = dict(options.spark_conf)
        self._stack = stack
        self._bytes_to_read = bytes_to_read
        self.side_by_side = SideBySide(threads=4 if available_cores() > 1 else 1)
        self._running = options.on
        self._start: SparkStart | RunningSpark | KcompactError | None = None

    def check(self) -> None:
        """Raise KcompactError if Spark is the engine and cannot do it, as far as that can be found out at once."""
        if self._refusal is not None:
            raise self._refusal
        if self.choice.name == "spark" and self._running is None:
            from kcompact.engine.spark import check_prerequisites

            check_prerequisites(self._master, self._spark_conf)

    def begin(self) -> None:
        """Begin to start Spark, if it is the engine. `executors` raises a failure."""
        if self.choice.name != "spark" or self._start is not None:
            return
        if self._refusal is not None:
            self._start = self._refusal
            return
        if self._running is not None:
            self._start = RunningSpark(self._running)
            return
        from kcompact.engine.spark import spark_start

        try:
            self._start = self._stack.enter_context(spark_start(self._master, self._spark_conf))
        except KcompactError as problem:
            self._start = problem

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
        from kcompact.engine.spark import OnSpark, queue_of

        with self._start.context() as context, queue_of(context) as tasks:
            if self._start.is_first:
                note(Note.of(RemarkCode.SPARK_START_PREPARED))
            # A larger one alone would take longer in one task than the whole round should.
            whole_bytes = min(TASK_BYTES, max(SMALL_BYTES, self._bytes_to_read // tasks.slots))
            if self.copies_in_tasks:
                whole_bytes = sys.maxsize
            threads = min(max(MIN_THREADS, THREADS_PER_SLOT * tasks.slots), most_at_once(DESCRIPTORS_PER_THREAD))
            self.side_by_side = SideBySide(
                threads=threads, each_bytes=whole_bytes, together_bytes=None, is_largest_first=True
            )
            yield lambda progress: OnSpark(sc=context, progress=progress, tasks=tasks, whole_bytes=whole_bytes)
