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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import InheritableThread, SparkContext

from kcompact.clean.job import CleanJob, ScanJob, Split, WriteTask, WrittenPart
from kcompact.clean.scan import CLEANING
from kcompact.clean.staged_files import StagingDirectory
from kcompact.clean.stages import Bucket, Job, Progress, Scan, Stages
from kcompact.engine.seals import opened, sealed
from kcompact.engine.spark.java_errors import job_error
from kcompact.engine.spark.job_sharing import SharedJobs
from kcompact.engine.spark.master import is_local
from kcompact.engine.spark.scratch import private_directory
from kcompact.engine.spark.tasks import (
    BETWEEN_PROCESSES,
    SUMMARIES,
    BlockFile,
    Package,
    Report,
    SmallStage,
    bucket_number,
    reduce_file_partition,
    reduce_files,
    reduce_partition,
    run_small_stages,
    scan_partition,
    ship,
    write_partition,
)
from kcompact.errors import AccountingError, EngineError, KcompactError
from kcompact.host.throttle import Throttle

POLL_S = 0.2
STOP_S = 30.0
"""How long to wait for the tasks of a cancelled job. A task that waits for a dead disk cannot be killed at all."""
TASKS_PER_WORKER = 2
"""A shared job has at most so many tasks for each worker: a task costs Spark about as much as a small stage."""
SMALL_BYTES = 8 << 20
"""A stage that reads less is one task, if it can share a job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSpark:
    """Runs the stages as Spark jobs. Raises EngineError when Spark itself fails.

    With `shared_jobs` small stages share their jobs with those of other threads.
    """

    sc: SparkContext
    progress: Progress = field(default_factory=Progress)
    name: str = "spark"
    shared_jobs: SharedJobs[SmallStage] | None = None

    @property
    def parallelism(self) -> int:
        with _engine_errors():
            return int(self.sc.defaultParallelism)

    @property
    def is_on_other_machines(self) -> bool:
        return not is_local(self.sc.master)

    def scan_and_reduce(
        self, job: Job, tasks: Sequence[Sequence[Split]], stages: Stages[Job, Scan, Bucket]
    ) -> tuple[list[Scan], Iterable[Bucket]]:
        if self.shared_jobs is not None and self._is_small(job, tasks):
            stage = SmallStage("scan", job, tasks, stages=stages)
            found: tuple[list[Scan], list[Bucket]] = self._shared(self.shared_jobs, stage)
            return found
        if is_local(self.sc.master):
            return self._by_files(job, tasks, stages)
        return self._by_shuffle(job, tasks, stages)

    def _by_shuffle(
        self, job: Job, tasks: Sequence[Sequence[Split]], stages: Stages[Job, Scan, Bucket]
    ) -> tuple[list[Scan], list[Bucket]]:
        """Bring the blocks of each bucket together in Spark's shuffle. The workers can be on any machines."""
        with _engine_errors():
            report = Report.of(self.sc)
            shipped = ship(job, self._throttle(job, tasks), stages)
            rdd = (
                self._distributed(tasks)
                .mapPartitions(partial(scan_partition, shipped, report))
                .partitionBy(job.bucket_count, bucket_number)
                .mapPartitions(partial(reduce_partition, shipped, report))
            )
        results = self._collect(rdd, report, "scan", _size_bytes(tasks))
        scanned = [scan for is_bucket, result in results if not is_bucket for scan in result]
        return scanned, [result for is_bucket, result in results if is_bucket]

    def _by_files(
        self, job: Job, tasks: Sequence[Sequence[Split]], stages: Stages[Job, Scan, Bucket]
    ) -> tuple[list[Scan], list[Bucket]]:
        """Pass the blocks through files of a private directory. All workers must be on this machine.

        Spark's shuffle would copy each byte about ten times between processes, in a JVM without the optimizing
        compiler. The files hold record references and hashes of keys, with a hash key of this run only.
        """
        local_dirs = self.sc.getConf().get("spark.local.dir")
        with private_directory(local_dirs.split(",")[0] if local_dirs else None) as directory:
            with _engine_errors():
                report = Report.of(self.sc)
                shipped = ship(job, self._throttle(job, tasks), stages, scratch=str(directory))
                rdd = self._distributed(tasks).mapPartitions(partial(scan_partition, shipped, report))
            scanned: list[Scan] = []
            buckets: dict[int, list[BlockFile]] = {}
            for bucket, value in self._collect(rdd, report, "scan", _size_bytes(tasks)):
                if bucket == SUMMARIES:
                    scanned += value
                else:
                    buckets.setdefault(bucket, []).append(value)
            if sum(block.seal.size_bytes for blocks in buckets.values() for block in blocks) <= job.keys_bytes:
                # The driver reduces a few blocks faster than Spark starts a job.
                return scanned, [reduce_files(job, stages, buckets[bucket]) for bucket in sorted(buckets)]
            with _engine_errors():
                report = Report.of(self.sc)
                shipped = ship(job, self._throttle(job, tasks), stages)
                rdd = self._distributed(list(buckets.values()), min(len(buckets), self.parallelism)).mapPartitions(
                    partial(reduce_file_partition, shipped, report)
                )
            return scanned, self._collect(rdd, report, "reduce", 0)

    def write(
        self, job: CleanJob, tasks: Sequence[Sequence[WriteTask]], staging: StagingDirectory | None
    ) -> list[WrittenPart]:
        if staging is not None and not is_local(self.sc.master):
            staging = replace(staging, device=None)
        stage = "count" if staging is None else "write"
        if self.shared_jobs is not None and self._is_small(job, tasks):
            parts: list[WrittenPart] = self._shared(self.shared_jobs, SmallStage(stage, job, tasks, staging))
            return parts
        with _engine_errors():
            report = Report.of(self.sc)
            shipped = ship(job, self._throttle(job, tasks), CLEANING, staging=staging)
            rdd = self._distributed(tasks).mapPartitions(partial(write_partition, shipped, report))
        return self._collect(rdd, report, stage, _size_bytes(tasks))

    def _is_small(self, job: ScanJob, tasks: Sequence[Sequence[Split]] | Sequence[Sequence[WriteTask]]) -> bool:
        """Return whether a stage can be a task of a shared job: it has no limit and needs no more than a task's part.

        The memory of the workers is enough for as many of these tasks as run at a time.
        """
        if job.max_bytes_per_second is not None or job.workers < self.parallelism:
            return False
        return len(tasks) == 1 or _size_bytes(tasks) < SMALL_BYTES

    def _shared(self, jobs: SharedJobs[SmallStage], stage: SmallStage) -> Any:
        """Return what a stage returns that shares its job with others. Progress advances at its end."""
        total_bytes = _size_bytes(stage.tasks)
        self.progress.begin(stage.name, total_bytes)
        name, result = opened(jobs.result(stage, self.progress.check), source=BETWEEN_PROCESSES)
        if isinstance(result, KcompactError):
            raise result
        if name != stage.identity:
            problem = "the result of another partition came back"
            raise AccountingError(path=stage.job.directory, stage=stage.name, problem=problem)
        self.progress.advance(total_bytes)
        return result

    def _distributed(self, tasks: Sequence[object], partitions: int | None = None) -> Any:
        """Return an RDD of the tasks, each of which is sealed; without `partitions` each has its own."""
        return self.sc.parallelize([sealed(task) for task in tasks], partitions or max(1, len(tasks)))

    def _throttle(self, job: ScanJob, tasks: Sequence[object]) -> Throttle:
        """Return a task's share of the limit: the limit divided by the number of tasks that run at a time."""
        return Throttle(job.max_bytes_per_second, 1 / max(1, min(len(tasks), self.parallelism)))

    def _collect(self, rdd: Any, report: Report, stage: str, total_bytes: int) -> list[Any]:
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
            _cancel(self.sc, group, partial(_has_ended, thread))
            raise
        report.check()  # The job can have ended since the last look.
        if problems:
            _await_tasks(self.sc, group)
            with _engine_errors():
                raise problems[0]
        return [opened(element, source=BETWEEN_PROCESSES) for element in results[0]]


@contextlib.contextmanager
def shared_jobs(sc: SparkContext) -> Iterator[SharedJobs[SmallStage]]:
    """Yield the jobs that small stages of several threads share."""

    def run(group: str, stages: Sequence[SmallStage]) -> Sequence[bytes]:
        with _engine_errors():
            package = sealed(Package.of_this_process())
            sc.setJobGroup(group, "kcompact: small stages")
            tasks = min(len(stages), TASKS_PER_WORKER * sc.defaultParallelism)
            rdd = sc.parallelize([sealed(stage) for stage in stages], tasks)
            try:
                results: list[bytes] = rdd.mapPartitions(partial(run_small_stages, package)).collect()
            except Py4JError:
                _await_tasks(sc, group)  # The stages will run again, and not at the same time.
                raise
        return results

    jobs = SharedJobs(run, partial(_cancel, sc))
    try:
        yield jobs
    finally:
        jobs.end()


def _cancel(sc: SparkContext, group: str, ended: Callable[[float], bool]) -> None:
    """Cancel a job until `ended(seconds)`, which waits at most so long. Then wait for the end of its tasks."""
    deadline = time.monotonic() + STOP_S
    with contextlib.suppress(Py4JError, OSError):
        while not ended(0) and time.monotonic() < deadline:
            sc.cancelJobGroup(group)  # Repeated, because the job may not be submitted yet.
            ended(POLL_S)
    _await_tasks(sc, group, deadline)


def _await_tasks(sc: SparkContext, group: str, deadline: float | None = None) -> None:
    """Wait for the tasks of a job, at most STOP_S or until the deadline.

    A job that was cancelled or has failed ends before its tasks do, and they can still create files in the staging
    directory.
    """
    deadline = deadline or time.monotonic() + STOP_S
    with contextlib.suppress(Py4JError, OSError):
        while _running_tasks(sc, group) and time.monotonic() < deadline:
            time.sleep(POLL_S / 4)


def _running_tasks(sc: SparkContext, group: str) -> int:
    """Return how many tasks of a job group are running. Tasks of other jobs do not count."""
    tracker = sc.statusTracker()
    jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
    ran = filter(None, (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds))
    return sum(stage.numActiveTasks for stage in ran)


def _has_ended(thread: threading.Thread, timeout_s: float) -> bool:
    thread.join(timeout_s)
    return not thread.is_alive()


def _size_bytes(tasks: Iterable[Iterable[Split] | Iterable[WriteTask]]) -> int:
    return sum(part.size_bytes for task in tasks for part in task)


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
