"""The in-process executor: runs each stage on threads, in parallel because kernels release the interpreter's lock."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, TypeVar

from kcompact.engine.seals import Seal, scratch_error
from kcompact.host import turns
from kcompact.host.machine import available_cores
from kcompact.host.throttle import Pace, Throttle
from kcompact.host.user_directories import temporary_directory
from kcompact.log.files import read_at
from kcompact.stages.executor import Argument, Bucket, Executor, Job, Part, Progress, Scan, Stages, Whole
from kcompact.stages.job import ScanJob, Split

POLL_S = 0.1
_OUT_OF_TURN_BYTES = 2 << 20
"""From so many bytes on, the kernels of a stage run long enough to let another thread work meanwhile."""

Task = TypeVar("Task")
Result = TypeVar("Result")


class SharedMemory:
    """The memory that executors share when they clean at the same time.

    Lets only as many tasks run at the same time, and hold as many keys, as the memory is enough for.

    A task takes one part of the memory, of as many parts as `CleanJob.workers` says, so a task that needs the whole
    memory runs alone.
    """

    def __init__(self) -> None:
        self._free = Fraction(1)
        self._changed = threading.Condition()
        self._held_bytes = 0

    @contextmanager
    def part(self, workers: int, waiting: Callable[[], None]) -> Iterator[None]:
        """Take one of `workers` parts as soon as it is free. Calls `waiting` meanwhile, which may raise."""
        part = Fraction(1, workers)
        if not self._taken(part, wait_s=0):
            with turns.out_of_turn():
                while not self._taken(part, wait_s=POLL_S):
                    waiting()
        try:
            yield
        finally:
            with self._changed:
                self._free += part
                self._changed.notify_all()

    def hold(self, size_bytes: int, limit_bytes: int) -> bool:
        """Return whether all keys that are held have at most `limit_bytes` with these. Only then they are held too."""
        with self._changed:
            if self._held_bytes + size_bytes > limit_bytes:
                return False
            self._held_bytes += size_bytes
            return True

    def release(self, size_bytes: int) -> None:
        """Hold so many bytes of keys less."""
        with self._changed:
            self._held_bytes -= size_bytes

    def _taken(self, part: Fraction, *, wait_s: float) -> bool:
        with self._changed:
            if not self._changed.wait_for(lambda: self._free >= part, wait_s):
                return False
            self._free -= part
            return True


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcess:
    """Runs the tasks of each stage side by side in this process.

    `throttle` limits several cleanings together; without it each stage has the limit of its job. Blocks of keys stay in
    memory, up to `job.keys_bytes` for each worker. The rest goes to an unnamed file. Executors that clean at the same
    time share `memory`, so together they run no more tasks, and need no more memory for them, than one of them. The
    unnamed file is in the directory `scratch`, by default in that for temporary files.
    """

    progress: Progress = field(default_factory=Progress)
    throttle: Throttle | None = None
    name: str = "in-process"
    memory: SharedMemory | None = None
    parallelism: int = field(default_factory=available_cores)
    is_on_other_machines: bool = False
    scratch: str | None = None
    whole_bytes: int = -1

    def run_whole(
        self, work: Callable[[Executor, int | None, Argument], Result], argument: Argument, whole: Whole
    ) -> Result:
        return work(self, whole.memory_bytes, argument)

    def scan_and_reduce(
        self, job: Job, tasks: Sequence[Sequence[Split]], stages: Stages[Job, Scan, Bucket]
    ) -> tuple[list[Scan], Iterable[Bucket]]:
        total_bytes = sum(split.size_bytes for splits in tasks for split in splits)
        self.progress.begin("scan", total_bytes)
        throttle = self.throttle or Throttle(job.max_bytes_per_second)
        limit_bytes, memory = job.keys_bytes * self.parallelism, self.memory or SharedMemory()
        with _Blocks(job.bucket_count, limit_bytes, memory, self.scratch) as blocks:

            def scan_task(splits: Sequence[Split], done: Callable[[int], None]) -> list[Scan]:
                scan = stages.scan(job, splits, Pace(throttle, done))
                while True:
                    try:
                        blocks.add(*next(scan))
                    except StopIteration as end:
                        scanned_splits: list[Scan] = end.value
                        return scanned_splits

            def reduce_task(bucket: int, done: Callable[[int], None]) -> Bucket:
                result = stages.reduce(job, blocks.take(bucket))
                done(0)
                return result

            scanned = [scan for scans in self._run_tasks(job, tasks, scan_task, total_bytes) for scan in scans]
            return scanned, self._run_tasks(job, range(job.bucket_count), reduce_task, total_bytes)

    def run(
        self, stage: str, job: Job, tasks: Sequence[Sequence[Part]], work: Callable[[Job, Part, Pace], Result]
    ) -> list[Result]:
        total_bytes = sum(part.size_bytes for parts in tasks for part in parts)
        self.progress.begin(stage, total_bytes)
        throttle = self.throttle or Throttle(job.max_bytes_per_second)

        def run_task(parts: Sequence[Part], done: Callable[[int], None]) -> list[Result]:
            return [work(job, part, Pace(throttle, done)) for part in parts]

        return [result for results in self._run_tasks(job, tasks, run_task, total_bytes) for result in results]

    def _run_tasks(
        self,
        job: ScanJob,
        tasks: Sequence[Task],
        run: Callable[[Task, Callable[[int], None]], Result],
        total_bytes: int = 0,
    ) -> list[Result]:
        """Return `run(task, done)` for each task, in order.

        `run` calls `done` with the number of source bytes that it has processed. `done` raises if the run must stop.
        If the tasks read many bytes, another thread gets the turn meanwhile.
        """

        def run_with_memory(task: Task, done: Callable[[int], None]) -> Result:
            if self.memory is None:
                return run(task, done)
            with self.memory.part(job.workers, lambda: done(0)):
                return run(task, done)

        if total_bytes >= _OUT_OF_TURN_BYTES:
            with turns.out_of_turn():
                return self._run(tasks, run_with_memory)
        return self._run(tasks, run_with_memory)

    def _run(self, tasks: Sequence[Task], run: Callable[[Task, Callable[[int], None]], Result]) -> list[Result]:
        if min(len(tasks), self.parallelism) <= 1:

            def done(size_bytes: int) -> None:
                self.progress.advance(size_bytes)
                self.progress.check()

            return [run(task, done) for task in tasks]
        return self._side_by_side(tasks, run)

    def _side_by_side(
        self, tasks: Sequence[Task], run: Callable[[Task, Callable[[int], None]], Result]
    ) -> list[Result]:
        threads = _ThreadProgress()
        with ThreadPoolExecutor(min(len(tasks), self.parallelism), "kcompact") as pool:
            running: list[Future[Result]] = [pool.submit(run, task, threads.done) for task in tasks]
            try:
                pending = set(running)
                while pending:
                    finished, pending = wait(pending, POLL_S, FIRST_EXCEPTION)
                    self.progress.advance(threads.taken())
                    for future in finished:
                        future.result()
                    self.progress.check()
            except BaseException:
                threads.is_stopped = True
                pool.shutdown(cancel_futures=True)
                raise
            self.progress.advance(threads.taken())
        return [future.result() for future in running]


class _StoppedError(Exception):
    """Ends a thread after another thread has failed, or when the run must stop."""


class _ThreadProgress:
    """The number of bytes that the threads have processed. The main thread reports it to the `Progress`."""

    def __init__(self) -> None:
        self.is_stopped = False
        self._bytes = 0
        self._lock = threading.Lock()

    def done(self, size_bytes: int) -> None:
        if self.is_stopped:
            raise _StoppedError
        with self._lock:
            self._bytes += size_bytes

    def taken(self) -> int:
        with self._lock:
            size_bytes, self._bytes = self._bytes, 0
        return size_bytes


class _Blocks:
    """Blocks by bucket: in memory up to `limit_bytes`, the rest in an unnamed file, with their checksums in memory.

    All blocks that are held in the same `memory` count.
    """

    def __init__(self, bucket_count: int, limit_bytes: int, memory: SharedMemory, scratch: str | None = None) -> None:
        self._held: list[list[bytes]] = [[] for _ in range(bucket_count)]
        self._spilled: list[list[tuple[int, Seal]]] = [[] for _ in range(bucket_count)]
        self._limit_bytes = limit_bytes
        self._memory = memory
        self._scratch = scratch
        self._file_bytes = 0
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None

    def __enter__(self) -> _Blocks:
        return self

    def __exit__(self, *_: object) -> None:
        for bucket in range(len(self._held)):
            self._release(bucket)
        if self._file is not None:
            self._file.close()

    def add(self, bucket: int, block: bytes) -> None:
        with self._lock:
            if self._memory.hold(len(block), self._limit_bytes):
                self._held[bucket].append(block)
                return
            descriptor = self._opened()
            start = self._file_bytes
            self._file_bytes += len(block)
            self._spilled[bucket].append((start, Seal.of(block)))
        view = memoryview(block)
        try:
            while view:
                written = os.pwrite(descriptor, view, start)
                view, start = view[written:], start + written
        except OSError as problem:
            raise scratch_error(self._place(), problem) from None

    def take(self, bucket: int) -> Iterator[bytes]:
        """Yield the blocks of a bucket and release their memory. Raises ScratchDamagedError, StorageError."""
        yield from self._held[bucket]
        self._release(bucket)
        for start, seal in self._spilled[bucket]:
            data = read_at(self._opened(), seal.size_bytes, start, path=Path(self._place()))
            yield seal.checked(data, source=f"unnamed file in {self._place()}")

    def _release(self, bucket: int) -> None:
        self._memory.release(sum(map(len, self._held[bucket])))
        self._held[bucket].clear()

    def _opened(self) -> int:
        """Return the descriptor of the file, which is made by the first call."""
        if self._file is None:
            try:
                self._file = tempfile.TemporaryFile(prefix="kcompact-keys-", dir=self._place())  # noqa: SIM115
            except OSError as problem:
                raise scratch_error(self._place(), problem) from None
        return self._file.fileno()

    def _place(self) -> str:
        return self._scratch or temporary_directory()
