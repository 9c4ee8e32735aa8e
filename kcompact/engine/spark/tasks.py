"""What the workers of Spark run: the tasks of a job, and the values that travel to them and back.

Each task must read its input to the end; otherwise Spark ends the worker process. A worker must have the driver's
kcompact, or it would not give the driver's result.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kcompact import __version__
from kcompact.bucket.scratch import use_scratch_in
from kcompact.engine.in_process import InProcess
from kcompact.engine.seals import Seal, opened, scratch_error, sealed
from kcompact.engine.spark.pyspark_private import forget_accumulators
from kcompact.errors import EngineError, KcompactError, ScratchDamagedError
from kcompact.failures import as_failure
from kcompact.host.machine import available_cores, default_memory_bytes
from kcompact.host.throttle import Pace, Throttle
from kcompact.kernels.machine_code import library_sha256
from kcompact.stages.executor import Bucket, Executor, Job, Scan, Sized, Stages
from kcompact.stages.job import ScanJob, Split

if TYPE_CHECKING:
    from pyspark import SparkContext

SUMMARIES = -1
"""Used instead of a bucket number when the value is a list of what `Stages.scan` returned, not a block of keys."""
BETWEEN_PROCESSES = "a value that Spark passed between two processes"

# --- What travels ---------------------------------------------------------------------------------------


class Package(NamedTuple):
    """A version of kcompact, and the SHA-256 of its machine code; another version may have none."""

    version: str
    machine_code: str | None

    @classmethod
    def of_this_process(cls) -> Package:
        """Raises KernelsUnavailableError if the machine code cannot be loaded."""
        return cls(__version__, library_sha256())

    def __str__(self) -> str:
        code = "no machine code" if self.machine_code is None else f"machine code {self.machine_code[:12]}"
        return f"kcompact {self.version} with {code}"


def check_worker(driver: Package) -> None:
    """Raise EngineError if this worker does not run the driver's package, KernelsUnavailableError as above."""
    worker = Package(__version__, library_sha256())
    if worker != driver:
        raise EngineError(
            problem=f"a worker has {worker}, the driver has {driver}",
            hint="Install the same kcompact on the driver and on all workers.",
        )


def _opened(data: bytes) -> Any:
    """Return a value from the driver. What is in a bucket is mirrored in the directory of Spark."""
    directory = _local_directory()
    if directory is not None:
        use_scratch_in(directory)
    return opened(data, source=BETWEEN_PROCESSES)


_ACCUMULATORS = threading.Lock()
"""Held while accumulators are created: PySpark numbers them without a lock, and threads clean several partitions."""


class Report(NamedTuple):
    """Accumulators that each task sends to the driver at its end: sealed errors, and the number of source bytes."""

    errors: Any
    done_bytes: Any

    @classmethod
    def of(cls, sc: SparkContext) -> Report:
        with _ACCUMULATORS:
            return cls(sc.accumulator([], _Appended()), sc.accumulator(0))

    @contextlib.contextmanager
    def errors_reported(self) -> Iterator[None]:
        try:
            yield
        except (KcompactError, OSError, MemoryError) as problem:
            self.errors.add([sealed(as_failure(problem))])

    def end(self, *, may_get_more: bool) -> None:
        """Free what PySpark keeps of it. What it has counted stays."""
        forget_accumulators(self.errors, self.done_bytes, may_get_more=may_get_more)

    def check(self) -> None:
        if self.errors.value:
            error: KcompactError = opened(self.errors.value[0], source=BETWEEN_PROCESSES)
            raise error


class _Appended:
    """Adds up accumulators of lists (an `AccumulatorParam`)."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value: list[Any], more: list[Any]) -> list[Any]:  # noqa: N802
        return value + more


class Shipped(NamedTuple):
    """What every task of a Spark job needs: the job, its share of the limit, and what it calls.

    `work` is a function, or the `Stages` of a scan and a reduction. `scratch` is the directory for blocks, None for the
    shuffle.
    """

    job: Any
    throttle: Throttle
    work: Any
    scratch: str | None

    @classmethod
    def opened(cls, data: bytes) -> Shipped:
        """Return what `ship` has sealed, if this worker has the driver's package. Raises as `check_worker`.

        The package comes first and alone: another version may not be able to read the rest.
        """
        (version, machine_code, *_), rest = opened(data, source=BETWEEN_PROCESSES)  # A later version may say more.
        check_worker(Package(version, machine_code))
        shipped: Shipped = _opened(rest)
        return shipped


def ship(
    job: ScanJob, throttle: Throttle, work: Stages[Any, Any, Any] | Callable[..., Any], *, scratch: str | None = None
) -> bytes:
    """Return what the tasks of a job need, sealed. Raises KernelsUnavailableError without the machine code."""
    package = tuple(Package.of_this_process())
    return sealed((package, sealed(Shipped(job, throttle, work, scratch))))


class BlockFile(NamedTuple):
    """A block of keys in a file of its own."""

    path: str
    seal: Seal

    @classmethod
    def write(cls, directory: str, block: bytes) -> BlockFile:
        """Write a block to a new file. Raises ScratchSpaceError, StorageError."""
        path = f"{directory}/{secrets.token_hex(8)}"
        try:
            with open(path, "xb") as file:
                file.write(block)
        except OSError as problem:
            raise scratch_error(directory, problem) from None
        return cls(path, Seal.of(block))

    def read(self) -> bytes:
        """Return the block. Raises ScratchDamagedError, StorageError."""
        try:
            data = Path(self.path).read_bytes()
        except OSError as problem:
            raise scratch_error(self.path, problem) from None
        return self.seal.checked(data, source=self.path)


# --- The tasks ------------------------------------------------------------------------------------------


def scan_partition(shipped: bytes, report: Report, tasks: Iterable[bytes]) -> Iterator[Any]:
    """Yield (bucket, block) and at the end (SUMMARIES, what the scan returned), each pair sealed.

    With a directory the block is a file in it. Without one, Spark's shuffle needs the bucket in front of each pair.
    """
    for task in tasks:
        with report.errors_reported():
            job, throttle, stages, directory = Shipped.opened(shipped)
            splits: Sequence[Split] = opened(task, source=BETWEEN_PROCESSES)
            scan = stages.scan(job, splits, Pace(throttle, report.done_bytes.add))
            for bucket, value in _with_summaries(scan):
                if directory is None:
                    yield bucket, sealed((bucket, value))
                elif bucket == SUMMARIES:
                    yield sealed((bucket, value))
                else:
                    yield sealed((bucket, BlockFile.write(directory, value)))


def _with_summaries(scan: Generator[tuple[int, bytes], None, list[Any]]) -> Iterator[tuple[int, Any]]:
    scanned = yield from scan
    yield SUMMARIES, scanned


def reduce_files(job: Job, stages: Stages[Job, Scan, Bucket], blocks: Iterable[BlockFile]) -> Bucket:
    """Return the result of a bucket whose blocks are in files. Raises ScratchDamagedError, StorageError."""
    return stages.reduce(job, (block.read() for block in blocks))


def reduce_file_partition(shipped: bytes, report: Report, buckets: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the result of each bucket whose blocks are in files, sealed."""
    for bucket in buckets:
        with report.errors_reported():
            job, _, stages, _ = Shipped.opened(shipped)
            yield sealed(reduce_files(job, stages, opened(bucket, source=BETWEEN_PROCESSES)))


def bucket_number(key: int) -> int:
    """Return the partition of Spark's shuffle that a key belongs to: buckets are numbered as partitions are."""
    return key


def reduce_partition(shipped: bytes, report: Report, pairs: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """Yield (True, the result of a bucket) for each, and (False, what the scans returned), each pair sealed."""
    scanned: list[Any] = []
    buckets: dict[int, list[bytes]] = {}
    with report.errors_reported():
        job, _, stages, _ = Shipped.opened(shipped)
        for key, data in pairs:
            bucket, value = opened(data, source=BETWEEN_PROCESSES)
            if bucket != key:
                raise ScratchDamagedError(source=BETWEEN_PROCESSES, problem="a block came to the wrong task")
            if bucket == SUMMARIES:
                scanned += value
            else:
                buckets.setdefault(bucket, []).append(value)
        for bucket in sorted(buckets):
            yield sealed((True, stages.reduce(job, buckets.pop(bucket))))
        yield sealed((False, scanned))


def run_partition(shipped: bytes, report: Report, tasks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the result of the work on each part of each task, sealed."""
    for task in tasks:
        with report.errors_reported():
            job, throttle, work, _ = Shipped.opened(shipped)
            parts: Sequence[Sized] = opened(task, source=BETWEEN_PROCESSES)
            for part in parts:
                yield sealed(work(job, part, Pace(throttle, report.done_bytes.add)))


# --- Whole tasks ----------------------------------------------------------------------------------------


class WholeTask(NamedTuple):
    """Work that runs as a whole in one task, on the in-process executor. `token` tells it from all other work.

    `memory_bytes` are the task's part; None means that of the machine it runs on.
    """

    token: str
    work: Callable[[Executor, int | None, Any], Any]
    argument: Any
    memory_bytes: int | None
    is_on_other_machines: bool

    def run(self) -> Any:
        """Return what the work returns, or the problem in the data."""
        cores = _cores_of_task()
        executor = InProcess(
            name="spark",
            parallelism=cores,
            is_on_other_machines=self.is_on_other_machines,
            scratch=_local_directory(),
        )
        memory_bytes = self.memory_bytes or default_memory_bytes() // max(1, available_cores() // cores)
        try:
            return self.work(executor, memory_bytes, self.argument)
        except (KcompactError, OSError, MemoryError) as problem:
            return as_failure(problem)


def _local_directory() -> str | None:
    """Return the directory that Spark has for the files of its workers, and removes with its own."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


def _cores_of_task() -> int:
    """Return `spark.task.cpus`, 1 outside a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 1 if context is None else context.cpus()


def run_whole_tasks(package: bytes, results: Any, tasks: Iterable[Sequence[tuple[int, bytes]]]) -> Iterator[None]:
    """Run the pieces of each task, each a number and a `WholeTask`, sealed.

    Adds (number, (token, result) sealed) to the accumulator `results`, which Spark sends to the driver when the task
    ends, of one attempt only. A piece that arrives altered has its error as result.
    """
    for task in tasks:
        for number, data in task:
            results.add([(number, _run_whole_task(package, data))])
    yield from ()


def _run_whole_task(package: bytes, data: bytes) -> bytes:
    try:
        check_worker(opened(package, source=BETWEEN_PROCESSES))
        task: WholeTask = _opened(data)
    except KcompactError as problem:
        return sealed((None, problem))
    return sealed((task.token, task.run()))


class Delivered:
    """An accumulator that keeps nothing on the driver: calls `deliver` for each result (an `AccumulatorParam`)."""

    def __init__(self, deliver: Callable[[int, bytes], None]) -> None:
        self._deliver = deliver

    def __reduce__(self) -> tuple[type[_Appended], tuple[()]]:
        return _Appended, ()  # A worker collects its results in a list.

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value: list[Any], more: list[Any]) -> list[Any]:  # noqa: N802
        for number, data in more:
            self._deliver(number, data)
        return value


def delivered(sc: SparkContext, deliver: Callable[[int, bytes], None]) -> Any:
    """Return an accumulator of results for `run_whole_tasks`."""
    with _ACCUMULATORS:
        return sc.accumulator([], Delivered(deliver))
