"""What runs the stages: an `Executor`, of which `engine` has two.

A `Progress` receives the progress and can stop the run, a `RoundProgress` has one for each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from kcompact.host.throttle import Pace
from kcompact.remarks import Note
from kcompact.stages.job import ScanJob, Split

Job = TypeVar("Job", bound=ScanJob)
Scan = TypeVar("Scan")
Bucket = TypeVar("Bucket")
Argument = TypeVar("Argument")
Part = TypeVar("Part", bound="Sized")
Result = TypeVar("Result")


class Stages(NamedTuple, Generic[Job, Scan, Bucket]):
    """A scan and a reduction: functions of modules, so that they can be sent to other processes.

    `scan` yields (bucket, block) for the splits of a task and returns a list; `reduce` returns the result of a bucket
    from all its blocks in any order.
    """

    scan: Callable[[Job, Sequence[Split], Pace], Generator[tuple[int, bytes], None, list[Scan]]]
    reduce: Callable[[Job, Iterable[bytes]], Bucket]


class Progress:
    """Receives the progress of a cleaning, and can stop it. This base class prints nothing and never stops."""

    def begin(self, stage: str, total_bytes: int) -> None:
        """A stage begins; its source has `total_bytes`."""

    def advance(self, done_bytes: int) -> None:
        """The stage has processed `done_bytes` more of its source."""

    def check(self) -> None:
        """Raise CleaningAbortedError if the cleaning must stop."""

    def end(self) -> None:
        """The cleaning has ended, whatever its result."""


class RoundProgress:
    """Receives the progress of a round. This base class prints nothing and never stops. Called from several threads."""

    def of(self, directory: Path) -> Progress:
        """Return the `Progress` of one partition."""
        return Progress()

    def note(self, note: Note) -> None:
        """Receive a remark for the user."""


class Sized(Protocol):
    """A piece of work that reads so many bytes."""

    @property
    def size_bytes(self) -> int: ...


class Whole(NamedTuple):
    """What `Executor.run_whole` must know about its work.

    `stages` are the stages whose progress is reported; each reads `size_bytes`. `memory_bytes` is for all workers
    together; None means `host.machine.default_memory_bytes`.
    """

    stages: tuple[str, ...]
    size_bytes: int
    memory_bytes: int | None = None


class Executor(Protocol):
    """Calls each stage on as many workers as it has, and reports to a `Progress`."""

    @property
    def name(self) -> str: ...
    @property
    def parallelism(self) -> int: ...
    @property
    def is_on_other_machines(self) -> bool:
        """Whether the workers need storage that several machines share."""
        ...

    def scan_and_reduce(
        self, job: Job, tasks: Sequence[Sequence[Split]], stages: Stages[Job, Scan, Bucket]
    ) -> tuple[list[Scan], Iterable[Bucket]]:
        """Scan the splits of every task, bring the blocks of each bucket together and reduce them."""
        ...

    def run(
        self, stage: str, job: Job, tasks: Sequence[Sequence[Part]], work: Callable[[Job, Part, Pace], Result]
    ) -> list[Result]:
        """Return `work(job, part, pace)` of the parts of every task, in any order.

        `work` can be sent to another process. It may run more than once for a part, and then one result is returned.
        """
        ...

    @property
    def whole_bytes(self) -> int:
        """A partition with at most so many bytes to clean is best cleaned by `run_whole`; -1 for none."""
        ...

    def run_whole(
        self, work: Callable[[Executor, int | None, Argument], Result], argument: Argument, whole: Whole
    ) -> Result:
        """Return `work(executor, memory_bytes, argument)`, which one worker runs with an executor of its own.

        `work` is a function of a module, so that it can be sent to another process. It may run more than once, also at
        the same time, and only one of its results is returned. `memory_bytes` are the worker's part.
        """
        ...
