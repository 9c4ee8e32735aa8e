"""The Spark executor: runs the stages as jobs of a SparkContext.

Tasks receive and return bytes through the RDD API, without SQL and without tables of records. A task returns a problem
in the data as a value: Spark would try a failed task four times and print Java stack traces.
"""

from __future__ import annotations

import contextlib
import pickle
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import InheritableThread, SparkContext

from kcompact import kernels
from kcompact.clean.executor import Progress, Reduced, reduce
from kcompact.clean.job import CleanJob, Split, WriteTask, WrittenPart
from kcompact.clean.scan import Scanned, scan_splits
from kcompact.clean.write import write_part
from kcompact.engine.spark.java_errors import cause, with_whole_text
from kcompact.engine.spark.master import is_local
from kcompact.engine.spark.scratch import private_directory
from kcompact.errors import EngineError, KcompactError
from kcompact.host.throttle import Pace, Throttle

POLL_S = 0.2
STOP_S = 30.0
"""How long to wait for the tasks of a cancelled job. A task that waits for a dead disk cannot be killed at all."""
_SUMMARIES = -1
"""Used instead of a bucket number when the value is a list of `Scanned`, not a block of keys."""


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
            rdd = (
                self.sc.parallelize(tasks, max(1, len(tasks)))
                .mapPartitions(partial(_scan_partition, _ShippedJob.of(job), self._throttle(job, tasks), None, report))
                .partitionBy(job.bucket_count, _bucket_number)
                .mapPartitions(partial(_reduce_partition, _ShippedJob.of(job), report))
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
                rdd = self.sc.parallelize(tasks, max(1, len(tasks))).mapPartitions(
                    partial(_scan_partition, _ShippedJob.of(job), self._throttle(job, tasks), str(directory), report)
                )
            scanned: list[Scanned] = []
            buckets: dict[int, list[_BlockFile]] = {}
            for bucket, value in self._collect(rdd, report, "scan", _size_bytes(tasks)):
                if bucket == _SUMMARIES:
                    scanned += value
                else:
                    buckets.setdefault(bucket, []).append(value)
            if sum(block.size_bytes for blocks in buckets.values() for block in blocks) <= job.keys_bytes:
                # The driver reduces a few blocks faster than Spark starts a job.
                return scanned, [_reduce_files(job, buckets[bucket]) for bucket in sorted(buckets)]
            with _engine_errors():
                report = _Report.of(self.sc)
                rdd = self.sc.parallelize(list(buckets.values()), min(len(buckets), self.parallelism)).mapPartitions(
                    partial(_reduce_file_partition, _ShippedJob.of(job), report)
                )
            return scanned, self._collect(rdd, report, "reduce", 0)

    def write(self, job: CleanJob, tasks: Sequence[Sequence[WriteTask]], staging: str | None) -> list[WrittenPart]:
        with _engine_errors():
            report = _Report.of(self.sc)
            rdd = self.sc.parallelize(tasks, max(1, len(tasks))).mapPartitions(
                partial(_write_partition, _ShippedJob.of(job), self._throttle(job, tasks), staging, report)
            )
        return self._collect(rdd, report, "count" if staging is None else "write", _size_bytes(tasks))

    def _throttle(self, job: CleanJob, tasks: Sequence[object]) -> Throttle:
        """Return a task's share of the limit: the limit divided by the number of tasks that run at a time."""
        return Throttle(job.max_bytes_per_second, 1 / max(1, min(len(tasks), self.parallelism)))

    def _collect(self, rdd: Any, report: _Report, stage: str, total_bytes: int) -> list[Any]:
        """Return the elements of an RDD; report progress while the job runs.

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
        if problems:
            with _engine_errors():
                raise problems[0]
        return results[0]

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
    """Accumulators that each task sends to the driver at its end: pickled errors, and the number of source bytes."""

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
        except KcompactError as problem:
            self.errors.add([pickle.dumps(problem)])

    def check(self) -> None:
        if self.errors.value:
            error: KcompactError = pickle.loads(self.errors.value[0])
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
        error = EngineError(problem=f"the job failed: {cause(problem)}")
        raise with_whole_text(error, str(problem)) from problem
    except (Py4JError, OSError, EOFError) as problem:
        raise EngineError(
            problem=f"the Java process has ended or cannot be reached ({type(problem).__name__})",
            hint="If it ran out of memory, run again with --spark-conf spark.driver.memory=1g.\n"
            "To clean without Spark, use --engine in-process.",
        ) from problem


# These functions run in a worker. Each must read its input to the end; otherwise Spark ends the worker process.


def _scan_partition(
    shipped: _ShippedJob, throttle: Throttle, directory: str | None, report: _Report, tasks: Iterable[Sequence[Split]]
) -> Iterator[tuple[int, Any]]:
    """Yield each block, or its file, with its bucket, and at the end the list of `Scanned` with _SUMMARIES."""
    job = shipped.unpacked()
    for splits in tasks:
        with report.errors_reported():
            scan = scan_splits(job, splits, Pace(throttle, report.done_bytes.add))
            while True:
                try:
                    bucket, block = next(scan)
                except StopIteration as end:
                    yield _SUMMARIES, end.value
                    break
                yield bucket, block if directory is None else _BlockFile.write(directory, block)


class _ShippedJob(NamedTuple):
    """A job for a worker, with the driver's machine code for a worker that has no cache."""

    job: CleanJob
    machine_code: tuple[str, bytes] | None

    @classmethod
    def of(cls, job: CleanJob) -> _ShippedJob:
        return cls(job, kernels.exported() if job.compiled else None)

    def unpacked(self) -> CleanJob:
        """Return the job, and provide the machine code to the kernels of this worker."""
        if self.machine_code is not None:
            kernels.provide(*self.machine_code)
        return self.job


class _BlockFile(NamedTuple):
    """A block of keys in a file of its own."""

    path: str
    size_bytes: int

    @classmethod
    def write(cls, directory: str, block: bytes) -> _BlockFile:
        path = f"{directory}/{secrets.token_hex(8)}"
        with open(path, "xb") as file:
            file.write(block)
        return cls(path, len(block))

    def read(self) -> bytes:
        return Path(self.path).read_bytes()


def _reduce_files(job: CleanJob, blocks: Iterable[_BlockFile]) -> Reduced:
    return reduce(job, (block.read() for block in blocks))


def _reduce_file_partition(
    shipped: _ShippedJob, report: _Report, buckets: Iterable[Sequence[_BlockFile]]
) -> Iterator[Reduced]:
    job = shipped.unpacked()
    for blocks in buckets:
        with report.errors_reported():
            yield _reduce_files(job, blocks)


def _bucket_number(key: int) -> int:
    return key


def _reduce_partition(
    shipped: _ShippedJob, report: _Report, pairs: Iterable[tuple[int, Any]]
) -> Iterator[Reduced | list[Scanned]]:
    job = shipped.unpacked()
    scanned: list[Scanned] = []
    buckets: dict[int, list[bytes]] = {}
    for key, value in pairs:
        if key == _SUMMARIES:
            scanned += value
        else:
            buckets.setdefault(key, []).append(value)
    for bucket in sorted(buckets):
        with report.errors_reported():
            yield reduce(job, buckets.pop(bucket))
    yield scanned


def _write_partition(
    shipped: _ShippedJob,
    throttle: Throttle,
    staging: str | None,
    report: _Report,
    tasks: Iterable[Sequence[WriteTask]],
) -> Iterator[WrittenPart]:
    job = shipped.unpacked()
    for parts in tasks:
        with report.errors_reported():
            for part in parts:
                yield write_part(job, part, staging, Pace(throttle, report.done_bytes.add))
