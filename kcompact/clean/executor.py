"""The interfaces of a cleaning: `Executor` runs the stages, `Progress` receives the progress and can stop the cleaning.

The stages are plain functions. `engine` has two executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from kcompact.clean.job import CleanJob, Split, WriteTask, WrittenPart
from kcompact.clean.offset_map import superseded
from kcompact.clean.scan import Scanned, scan_splits
from kcompact.clean.staged_files import StagingDirectory
from kcompact.clean.stages import Bucket, Job, Scan, Stages


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
