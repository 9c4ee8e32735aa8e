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
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import InheritableThread, SparkContext
from pyspark.errors import PySparkException

from kcompact.engine.seals import opened, sealed
from kcompact.engine.spark.java_errors import as_py4j_raises, job_error
from kcompact.engine.spark.master import is_local
from kcompact.engine.spark.pyspark_private import forget_accumulators
from kcompact.engine.spark.scratch import private_directory
from kcompact.engine.spark.task_queue import TASKS_PER_SLOT, Deliver, Piece, TaskQueue
from kcompact.engine.spark.tasks import (
    BETWEEN_PROCESSES,
    SUMMARIES,
    BlockFile,
    Package,
    Report,
    WholeTask,
    bucket_number,
    delivered,
    reduce_file_partition,
    reduce_files,
    reduce_partition,
    run_partition,
    run_whole_tasks,
    scan_partition,
    ship,
)
from kcompact.engine.spark.worker_python import check_workers
from kcompact.errors import AccountingError, EngineError, KcompactError, RefusedError
from kcompact.host import turns
from kcompact.host.machine import default_memory_bytes
from kcompact.host.throttle import Pace, Throttle
from kcompact.stages.executor import Argument, Bucket, Executor, Job, Part, Progress, Result, Scan, Sized, Stages, Whole
from kcompact.stages.job import ScanJob, Split

POLL_S = 0.2
STOP_S = 30.0
"""How long to wait for the tasks of a cancelled job. A task that waits for a dead disk cannot be killed at all."""
TASK_BYTES = 32 << 20
"""Small pieces of work are put together to tasks of at most so many bytes: a task costs Spark as much as some MiB."""
SMALL_BYTES = 8 << 20
"""A scan that reads less is one task, with its reduction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSpark:
    """Runs the stages as Spark jobs. Raises EngineError when Spark itself fails.

    With `tasks` a whole partition of at most `whole_bytes` is a task, and so is a small scan with its reduction. Such
    tasks of several threads share their jobs. `sc` may also be a SparkSession, whose context it is then. Raises
    RefusedError for a session without a context, as Spark Connect has it; UnsupportedError for a Spark of this machine
    whose Python has no kcompact.
    """

    sc: SparkContext = field(kw_only=False)
    progress: Progress = field(default_factory=Progress)
    name: str = "spark"
    tasks: TaskQueue | None = None
    whole_bytes: int = -1

    def __post_init__(self) -> None:
        if not isinstance(self.sc, SparkContext):
            object.__setattr__(self, "sc", _context_of(self.sc))
            # A context that kcompact has started has a Python with it.
            check_workers(self.sc, path="OnSpark")

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
        if self._is_small(job, tasks):
            return self.run_whole(_scan_and_reduce, (job, tasks, stages), Whole(("scan",), _size_bytes(tasks)))
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

    def run(
        self, stage: str, job: Job, tasks: Sequence[Sequence[Part]], work: Callable[[Job, Part, Pace], Result]
    ) -> list[Result]:
        with _engine_errors():
            report = Report.of(self.sc)
            shipped = ship(job, self._throttle(job, tasks), work)
            rdd = self._distributed(tasks).mapPartitions(partial(run_partition, shipped, report))
        return self._collect(rdd, report, stage, _size_bytes(tasks))

    def run_whole(
        self, work: Callable[[Executor, int | None, Argument], Result], argument: Argument, whole: Whole
    ) -> Result:
        """Run the work in one task. Progress advances at its end."""
        assert self.tasks is not None
        for stage in whole.stages[:1]:
            self.progress.begin(stage, whole.size_bytes)
        # Each task has a part of the memory for all. By default a worker of a cluster divides that of its machine.
        memory_bytes = whole.memory_bytes
        if memory_bytes is not None or not self.is_on_other_machines:
            memory_bytes = max(1, (memory_bytes or default_memory_bytes()) // self.tasks.slots)
        task = WholeTask(
            token=secrets.token_hex(8),
            work=work,
            argument=argument,
            memory_bytes=memory_bytes,
            is_on_other_machines=self.is_on_other_machines,
        )
        piece = Piece(sealed(task), whole.size_bytes)
        with turns.out_of_turn():
            data = self.tasks.result(piece, self.progress.check)
        token, result = opened(data, source=BETWEEN_PROCESSES)
        if isinstance(result, KcompactError):
            raise result
        if token != task.token:
            raise AccountingError(path=BETWEEN_PROCESSES, stage="task", problem="the result of other work came back")
        for number, stage in enumerate(whole.stages):
            if number:
                self.progress.begin(stage, whole.size_bytes)
            self.progress.advance(whole.size_bytes)
        outcome: Result = result
        return outcome

    def _is_small(self, job: ScanJob, tasks: Sequence[Sequence[Split]]) -> bool:
        """Return whether a scan can be one task: it has no limit and needs no more memory than a task's part."""
        if self.tasks is None or job.max_bytes_per_second is not None or job.workers < self.parallelism:
            return False
        return len(tasks) == 1 or _size_bytes(tasks) < SMALL_BYTES

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
                with as_py4j_raises():
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
        finally:
            report.end(may_get_more=not results)
        report.check()  # The job can have ended since the last look.
        if problems:
            _await_tasks(self.sc, group)
            with _engine_errors():
                raise problems[0]
        return [opened(element, source=BETWEEN_PROCESSES) for element in results[0]]


def _context_of(session: Any) -> SparkContext:
    """Return the context of a SparkSession. Raises RefusedError."""
    try:
        context = session.sparkContext
    except PySparkException:
        context = None
    if not isinstance(context, SparkContext):
        raise RefusedError(
            path="OnSpark",
            problem=f"a {type(session).__name__} without a SparkContext: the stages run through Spark's RDDs",
            hint="Pass a SparkSession or a SparkContext of this process. A session of Spark Connect has none.",
        )
    return context


def _scan_and_reduce(
    executor: Executor, _: int | None, scan: tuple[Job, Sequence[Sequence[Split]], Stages[Job, Scan, Bucket]]
) -> tuple[list[Scan], list[Bucket]]:
    scanned, reduced = executor.scan_and_reduce(*scan)
    return scanned, list(reduced)


def _slots_of(sc: SparkContext) -> int:
    """Return how many tasks run at the same time. Raises EngineError."""
    with _engine_errors():
        return max(1, int(sc.defaultParallelism) // int(sc.getConf().get("spark.task.cpus", "1") or 1))


@contextlib.contextmanager
def queue_of(sc: SparkContext) -> Iterator[TaskQueue]:
    """Yield the queue for whole tasks of several threads. Raises EngineError."""
    slots = _slots_of(sc)

    def run(group: str, pieces: Sequence[Piece], deliver: Deliver) -> None:
        with _engine_errors():
            package = sealed(Package.of_this_process())
            sc.setJobGroup(group, "kcompact: partitions")
            tasks = _in_tasks(pieces, slots)
            rdd, results = sc.parallelize(tasks, len(tasks)), delivered(sc, deliver)
            has_failed = True
            try:
                with as_py4j_raises():
                    rdd.mapPartitions(partial(run_whole_tasks, package, results)).collect()
                has_failed = False
            except Py4JError:
                _await_tasks(sc, group)  # The pieces will run again, and not at the same time.
                raise
            finally:
                forget_accumulators(results, may_get_more=has_failed)

    queue = TaskQueue(run, partial(_cancel, sc), slots=slots)
    try:
        yield queue
    finally:
        queue.end()


def _in_tasks(pieces: Sequence[Piece], slots: int) -> list[list[tuple[int, bytes]]]:
    """Put numbered pieces together to tasks of at most TASK_BYTES, but not to fewer tasks than keep all slots busy."""
    most_bytes = min(TASK_BYTES, sum(piece.size_bytes for piece in pieces) // (TASKS_PER_SLOT * slots))
    tasks: list[list[tuple[int, bytes]]] = []
    task_bytes = 0
    for number, piece in enumerate(pieces):
        if not tasks or task_bytes + piece.size_bytes > most_bytes:
            tasks.append([])
            task_bytes = 0
        tasks[-1].append((number, piece.data))
        task_bytes += piece.size_bytes
    return tasks


def _cancel(sc: SparkContext, group: str, ended: Callable[[float], bool]) -> None:
    """Cancel a job until `ended(seconds)`, which waits at most so long. Then wait for the end of its tasks."""
    deadline = time.monotonic() + STOP_S
    with contextlib.suppress(Py4JError, OSError):
        while not ended(0) and time.monotonic() < deadline:
            sc.cancelJobGroup(group)  # Repeated, because the job may not be submitted yet.
            ended(POLL_S)
    # Of a Java process that is gone the job learns later. Py4J would print what it learns after the context has ended.
    ended(max(0.0, deadline - time.monotonic()))
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


def _size_bytes(tasks: Iterable[Iterable[Sized]]) -> int:
    return sum(part.size_bytes for task in tasks for part in task)


@contextlib.contextmanager
def _engine_errors() -> Iterator[None]:
    """Raise EngineError for a job that failed and for a JVM that has ended."""
    try:
        with as_py4j_raises():
            yield
    except Py4JJavaError as problem:
        raise job_error(problem) from problem
    except (Py4JError, OSError, EOFError) as problem:
        raise EngineError(
            problem=f"the Java process has ended or cannot be reached ({type(problem).__name__})",
            hint="If it ran out of memory, run again with --spark-conf spark.driver.memory=1g.\n"
            "To clean without Spark, use --engine in-process.",
        ) from problem
