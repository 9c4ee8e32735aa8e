"""The interfaces of a cleaning: `Executor` runs the stages, `Progress` receives the progress and can stop the cleaning.

The stages are plain functions. `engine` has two executors.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from kcompact.clean.job import CleanJob, ScanJob, Split, WriteTask, WrittenPart
from kcompact.clean.offset_map import superseded
from kcompact.clean.scan import Scanned, scan_splits
from kcompact.clean.staged_files import StagingDirectory
from kcompact.host.throttle import Pace


class Reduced(NamedTuple):
    """The result of one bucket: a block of superseded records for each split that has any.

    `keys` is the number of keys in the blocks that came in, `superseded` of them have a newer record. `map_keys` is the
    number of different keys in the offset map.
    """

    blocks: list[bytes]
    keys: int
    superseded: int
    map_keys: int


def reduce(job: CleanJob, blocks: Iterable[bytes]) -> Reduced:
    """Return the result of one bucket, from all its blocks in any order."""
    return Reduced(*superseded(blocks))


Job = TypeVar("Job", bound=ScanJob)
Scan = TypeVar("Scan")
Bucket = TypeVar("Bucket")


class Stages(NamedTuple, Generic[Job, Scan, Bucket]):
    """A scan and a reduction: functions of modules, so that they can be sent to other processes.

    `scan` yields (bucket, block) for the splits of a task and returns a list; `reduce` returns the result of a bucket
    from all its blocks in any order.
    """

    scan: Callable[[Job, Sequence[Split], Pace], Generator[tuple[int, bytes], None, list[Scan]]]
    reduce: Callable[[Job, Iterable[bytes]], Bucket]


CLEANING: Stages[CleanJob, Scanned, Reduced] = Stages(scan_splits, reduce)
"""The first two stages of a cleaning."""


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

    def write(
        self, job: CleanJob, tasks: Sequence[Sequence[WriteTask]], staging: StagingDirectory | None
    ) -> list[WrittenPart]:
        """Write the parts of every task."""
        ...
