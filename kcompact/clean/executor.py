"""Who calls the stages, and where progress goes.

`scan` and `write` tasks and `reduce` are plain functions. An `Executor` decides where they run; `engine` has two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from kcompact.clean.job import CleanJob, Split, WriteTask, WrittenPart
from kcompact.clean.offset_map import superseded
from kcompact.clean.scan import Scanned


class Reduced(NamedTuple):
    """What a bucket came to: a block per split of the records that are superseded, and how many keys the map holds."""

    blocks: list[bytes]
    map_keys: int


def reduce(job: CleanJob, blocks: Iterable[bytes]) -> Reduced:
    """Return what one bucket comes to, from all its blocks in any order."""
    return Reduced(*superseded(blocks, compiled=job.compiled))


class Progress:
    """Where a run reports to and asks whether to go on. This one is silent and never stops anything."""

    def begin(self, stage: str, total_bytes: int) -> None:
        """A stage starts, over so many bytes of source."""

    def compiling(self) -> None:
        """The kernels are about to be compiled, which takes some ten seconds and happens once on a machine."""

    def advance(self, done_bytes: int) -> None:
        """So many more bytes of the stage's source are done."""

    def check(self) -> None:
        """Raise CleaningAbortedError when the run has been asked to stop."""


class Executor(Protocol):
    """Calls the stages, each on as many workers as it has, and reports to a `Watch` in between."""

    @property
    def name(self) -> str: ...
    @property
    def parallelism(self) -> int: ...

    def scan_and_reduce(
        self, job: CleanJob, tasks: Sequence[Sequence[Split]]
    ) -> tuple[list[Scanned], Iterable[Reduced]]:
        """Scan every task's splits, bring the blocks of each bucket together and reduce them."""
        ...

    def write(self, job: CleanJob, tasks: Sequence[Sequence[WriteTask]], staging: str | None) -> list[WrittenPart]:
        """Write the parts of every task."""
        ...
