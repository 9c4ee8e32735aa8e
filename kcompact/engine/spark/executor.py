"""The Spark executor: runs the stages as jobs of a SparkContext.

Tasks receive and return bytes through the RDD API, without SQL and without tables of records. Every value travels with
a checksum (`seals`). A task returns a problem in the data as a value: Spark would try a failed task four times and
print Java stack traces.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import InheritableThread, SparkContext

from kcompact import kernels
from kcompact.clean.executor import Progress, Reduced, reduce
from kcompact.clean.job import CleanJob, Split, WriteTask, WrittenPart
from kcompact.clean.scan import Scanned, scan_splits
from kcompact.clean.staged_files import StagingDirectory
from kcompact.clean.write import write_part
from kcompact.engine.seals import Seal, opened, scratch_error, sealed
from kcompact.engine.spark.java_errors import job_error
from kcompact.engine.spark.master import is_local
from kcompact.engine.spark.scratch import private_directory
from kcompact.errors import EngineError, KcompactError, ScratchDamagedError, as_failure
from kcompact.host.throttle import Pace, Throttle

POLL_S = 0.2
STOP_S = 30.0
"""How long to wait for the tasks of a cancelled job. A task that waits for a dead disk cannot be killed at all."""
_SUMMARIES = -1
"""Used instead of a bucket number when the value is a list of `Scanned`, not a block of keys."""
_BETWEEN_PROCESSES = "a value that Spark passed between two processes"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSpark:
    """Runs the stages as Spark jobs. Raises EngineError when Spark itself fails."""

    sc: SparkContext
    progress: Progress = field(default_factory=Progress)
    name: str = "spark"

    @property
    def parallelism(self) -> int:
        with _engine_errors():
            return int(self.sc.defaultParallelism)

    @property
    def is_on_other_machines(self) -> bool:
        return not is_local(self.sc.master)

    def scan_and_reduce(
        self, job: CleanJob, tasks: Sequence[Sequence[Split]]
    ) -> tuple[list[Scanned], Iterable[Reduced]]:
        if is_local(self.sc.master):
            return self._by_files(job, tasks)
        return self._by_shuffle(job, tasks)

    def _by_shuffle(self, job: CleanJob, tasks: Sequence[Sequence[Split]]) -> tuple[list[Scanned], list[Reduced]]:
        """Bring the blocks of each bucket together in Spark's shuffle. The workers can be on any machines."""
        with _engine_errors():
            report = _Report.of(self.sc)
            shipped = _shipped(job, self._throttle(job, tasks))
            rdd = (
                self._distributed(tasks)
                .mapPartitions(partial(_scan_partition, shipped, report))
                .partitionBy(job.bucket_count, _bucket_number)
                .mapPartitions(partial(_reduce_partition, shipped, report))
            )
        results = self._collect(rdd, report, "scan", _size_bytes(tasks))
        scanned = [scan for result in results if not isinstance(result, Reduced) for scan in result]
        return scanned, [result for result in results if isinstance(result, Reduced)]

    def _by_files(self, job: CleanJob, tasks: Sequence[Sequence[Split]]) -> tuple[list[Scanned], list[Reduced]]:
        """Pass the blocks through files of a private directory. All workers must be on this machine.

        Spark's shuffle would copy each byte about ten times between processes, in a JVM without the optimizing
        compiler. The files hold record references and hashes of keys, with a hash key of this run only.
        """
        local_dirs = self.sc.getConf().get("spark.local.dir")
        with private_directory(local_dirs.split(",")[0] if local_dirs else None) as directory:
            with _engine_errors():
                report = _Report.of(self.sc)
                shipped = _shipped(job, self._throttle(job, tasks), scratch=str(directory))
                rdd = self._distributed(tasks).mapPartitions(partial(_scan_partition, shipped, report))
            scanned: list[Scanned] = []
            buckets: dict[int, list[_BlockFile]] = {}
            for bucket, value in self._collect(rdd, report, "scan", _size_bytes(tasks)):
                if bucket == _SUMMARIES:
                    scanned += value
                else:
                    buckets.setdefault(bucket, []).append(value)
            if sum(block.seal.size_bytes for blocks in buckets.values() for block in blocks) <= job.keys_bytes:
                # The driver reduces a few blocks faster than Spark starts a job.
                return scanned, [_reduce_files(job, buckets[bucket]) for bucket in sorted(buckets)]
            with _engine_errors():
                report = _Report.of(self.sc)
                shipped = _shipped(job, self._throttle(job, tasks))
                rdd = self._distributed(list(buckets.values()), min(len(buckets), self.parallelism)).mapPartitions(
                    partial(_reduce_file_partition, shipped, report)
                )
            return scanned, self._collect(rdd, report, "reduce", 0)

    def write(
        self, job: CleanJob, tasks: Sequence[Sequence[WriteTask]], staging: StagingDirectory | None
    ) -> list[WrittenPart]:
        if staging is not None and not is_local(self.sc.master):
            staging = replace(staging, device=None)
        with _engine_errors():
            report = _Report.of(self.sc)
            shipped = _shipped(job, self._throttle(job, tasks), staging=staging)
            rdd = self._distributed(tasks).mapPartitions(partial(_write_partition, shipped, report))
        return self._collect(rdd, report, "count" if staging is None else "write", _size_bytes(tasks))

    def _distributed(self, tasks: Sequence[object], partitions: int | None = None) -> Any:
        """Return an RDD of the tasks, each of which is sealed; without `partitions` each has its own."""
        return self.sc.parallelize([sealed(task) for task in tasks], partitions or max(1, len(tasks)))

    def _throttle(self, job: CleanJob, tasks: Sequence[object]) -> Throttle:
        """Return a task's share of the limit: the limit divided by the number of tasks that run at a time."""
        return Throttle(job.max_bytes_per_second, 1 / max(1, min(len(tasks), self.parallelism)))

    def _collect(self, rdd: Any, report: _Report, stage: str, total_bytes: int) -> list[Any]:
        """Return the values that the elements of an RDD hold; report progress while the job runs.

        The job runs in a separate thread. This thread checks for a request to stop and for the first error of a task,
        and then cancels the job. Afterwards no task of the job is running as far as Spark reports, except a task that
        did not end within STOP_S.
        """
        group = f"kcompact-{stage}-{secrets.token_hex(4)}"
        results: list[list[Any]] = []
        problems: list[Exception] = []

        def collect() -> None:
            try:
                self.sc.setJobGroup(group, f"kcompact: {stage}")
                results.append(rdd.collect())
            except Exception as problem:
                problems.append(problem)

        self.progress.begin(stage, total_bytes)
        done_bytes = 0
        thread = InheritableThread(target=collect, name=group, daemon=True)
        with _engine_errors():
            thread.start()
        try:
            while thread.is_alive():
                thread.join(POLL_S)
                # A task that Spark has run twice has reported its bytes twice.
                now_bytes = min(report.done_bytes.value, total_bytes)
                self.progress.advance(now_bytes - done_bytes)
                done_bytes = now_bytes
                report.check()
                self.progress.check()
        except BaseException:
            self._cancel(group, thread)
            raise
        report.check()  # The job can have ended since the last look.
        if problems:
            with _engine_errors():
                raise problems[0]
        return [opened(element, source=_BETWEEN_PROCESSES) for element in results[0]]

    def _cancel(self, group: str, thread: threading.Thread) -> None:
        deadline = time.monotonic() + STOP_S
        with contextlib.suppress(Py4JError, OSError):
            while thread.is_alive() and time.monotonic() < deadline:
                self.sc.cancelJobGroup(group)  # Repeated, because the job may not be submitted yet.
                thread.join(POLL_S)
            # The job ends before its tasks do, and its tasks can still create files in the staging directory.
            while self._running_tasks(group) and time.monotonic() < deadline:
                time.sleep(POLL_S / 4)

    def _running_tasks(self, group: str) -> int:
        """Return how many tasks of a job group are running. Tasks of other partitions do not count."""
        tracker = self.sc.statusTracker()
        jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
        ran = filter(None, (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds))
        return sum(stage.numActiveTasks for stage in ran)


_ACCUMULATORS = threading.Lock()
"""Held while accumulators are created: PySpark numbers them without a lock, and threads clean several partitions."""


def _size_bytes(tasks: Iterable[Iterable[Split] | Iterable[WriteTask]]) -> int:
    return sum(part.size_bytes for task in tasks for part in task)


class _Report(NamedTuple):
    """Accumulators that each task sends to the driver at its end: sealed errors, and the number of source bytes."""

    errors: Any
    done_bytes: Any

    @classmethod
    def of(cls, sc: SparkContext) -> _Report:
        with _ACCUMULATORS:
            return cls(sc.accumulator([], _Appended()), sc.accumulator(0))

    @contextlib.contextmanager
    def errors_reported(self) -> Iterator[None]:
        try:
            yield
        except (KcompactError, OSError) as problem:
            self.errors.add([sealed(as_failure(problem))])

    def check(self) -> None:
        if self.errors.value:
            error: KcompactError = opened(self.errors.value[0], source=_BETWEEN_PROCESSES)
            raise error


class _Appended:
    """Adds up accumulators of lists (an `AccumulatorParam`)."""

    def zero(self, value: list[bytes]) -> list[bytes]:
        return []

    def addInPlace(self, value: list[bytes], more: list[bytes]) -> list[bytes]:  # noqa: N802
        return value + more


@contextlib.contextmanager
def _engine_errors() -> Iterator[None]:
    """Raise EngineError for a job that failed and for a JVM that has ended."""
    try:
        yield
    except Py4JJavaError as problem:
        raise job_error(problem) from problem
    except (Py4JError, OSError, EOFError) as problem:
        raise EngineError(
            problem=f"the Java process has ended or cannot be reached ({type(problem).__name__})",
            hint="If it ran out of memory, run again with --spark-conf spark.driver.memory=1g.\n"
            "To clean without Spark, use --engine in-process.",
        ) from problem


# These functions run in a worker. Each must read its input to the end; otherwise Spark ends the worker process.


class _Shipped(NamedTuple):
    """What every task of a Spark job needs: the job, its share of the limit, and the directory that it writes to.

    `scratch` is the directory for blocks, None for the shuffle; `staging` that for segments, None in a dry run.
    `machine_code` is the driver's, for a worker that has no cache.
    """

    job: CleanJob
    throttle: Throttle
    scratch: str | None
    staging: StagingDirectory | None
    machine_code: tuple[str, bytes] | None

    @classmethod
    def opened(cls, data: bytes) -> _Shipped:
        """Return what the driver has sealed, and provide the machine code to the kernels of this worker."""
        shipped: _Shipped = opened(data, source=_BETWEEN_PROCESSES)
        if shipped.machine_code is not None:
            kernels.provide(*shipped.machine_code)
        return shipped


def _shipped(
    job: CleanJob, throttle: Throttle, *, scratch: str | None = None, staging: StagingDirectory | None = None
) -> bytes:
    return sealed(_Shipped(job, throttle, scratch, staging, kernels.exported() if job.compiled else None))


def _scan_partition(shipped: bytes, report: _Report, tasks: Iterable[bytes]) -> Iterator[Any]:
    """Yield (bucket, block) and at the end (_SUMMARIES, list of `Scanned`), each pair sealed.

    With a directory the block is a file in it. Without one, Spark's shuffle needs the bucket in front of each pair.
    """
    for task in tasks:
        with report.errors_reported():
            job, throttle, directory, _, _ = _Shipped.opened(shipped)
            splits: Sequence[Split] = opened(task, source=_BETWEEN_PROCESSES)
            scan = scan_splits(job, splits, Pace(throttle, report.done_bytes.add))
            for bucket, value in _with_summaries(scan):
                if directory is None:
                    yield bucket, sealed((bucket, value))
                elif bucket == _SUMMARIES:
                    yield sealed((bucket, value))
                else:
                    yield sealed((bucket, _BlockFile.write(directory, value)))


def _with_summaries(scan: Generator[tuple[int, bytes], None, list[Scanned]]) -> Iterator[tuple[int, Any]]:
    scanned = yield from scan
    yield _SUMMARIES, scanned


class _BlockFile(NamedTuple):
    """A block of keys in a file of its own."""

    path: str
    seal: Seal

    @classmethod
    def write(cls, directory: str, block: bytes) -> _BlockFile:
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


def _reduce_files(job: CleanJob, blocks: Iterable[_BlockFile]) -> Reduced:
    return reduce(job, (block.read() for block in blocks))


def _reduce_file_partition(shipped: bytes, report: _Report, buckets: Iterable[bytes]) -> Iterator[bytes]:
    for bucket in buckets:
        with report.errors_reported():
            job = _Shipped.opened(shipped).job
            yield sealed(_reduce_files(job, opened(bucket, source=_BETWEEN_PROCESSES)))


def _bucket_number(key: int) -> int:
    return key


def _reduce_partition(shipped: bytes, report: _Report, pairs: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """Yield the `Reduced` of each bucket, and a list of `Scanned`, each sealed."""
    scanned: list[Scanned] = []
    buckets: dict[int, list[bytes]] = {}
    with report.errors_reported():
        job = _Shipped.opened(shipped).job
        for key, data in pairs:
            bucket, value = opened(data, source=_BETWEEN_PROCESSES)
            if bucket != key:
                raise ScratchDamagedError(source=_BETWEEN_PROCESSES, problem="a block came to the wrong task")
            if bucket == _SUMMARIES:
                scanned += value
            else:
                buckets.setdefault(bucket, []).append(value)
        for bucket in sorted(buckets):
            yield sealed(reduce(job, buckets.pop(bucket)))
        yield sealed(scanned)


def _write_partition(shipped: bytes, report: _Report, tasks: Iterable[bytes]) -> Iterator[bytes]:
    for task in tasks:
        with report.errors_reported():
            job, throttle, _, staging, _ = _Shipped.opened(shipped)
            parts: Sequence[WriteTask] = opened(task, source=_BETWEEN_PROCESSES)
            for part in parts:
                yield sealed(write_part(job, part, staging, Pace(throttle, report.done_bytes.add)))
