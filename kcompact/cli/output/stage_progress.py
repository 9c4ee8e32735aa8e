"""What executors report their stages to: the progress of a round of cleanings, and of a count of keys."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.cli.output import streams
from kcompact.cli.output.progress import Counter, Shown, bars_if_long
from kcompact.cli.signals import StopRequest, stop_request
from kcompact.remarks import Note
from kcompact.stages.executor import Executor, Progress, RoundProgress

if TYPE_CHECKING:
    from kcompact.cleaner.engines import EngineOptions
    from kcompact.cleaner.outcome import PartitionOutcome

_VERBS = {"scan": "reading", "count": "counting", "write": "rewriting"}


class CleaningProgress(RoundProgress):
    """The progress of all partitions of a round, and the request to stop them.

    A partition is read once to find the newest records and once more to rewrite it; both count. With `only_bars`
    nothing is printed off a terminal.
    """

    def __init__(
        self, request: StopRequest, outcomes: Sequence[PartitionOutcome], *, is_quiet: bool, only_bars: bool
    ) -> None:
        shown = Shown.NOTHING if is_quiet or only_bars else Shown.LINES
        if sys.stderr.isatty() and not is_quiet:
            shown = Shown.BARS
        self._request = request
        self._counter = Counter({each.directory: _work_of(each) for each in outcomes if each.is_eligible}, shown)

    def of(self, directory: Path) -> Progress:
        """Return the `Progress` of one partition."""
        return _PartitionProgress(self._counter, self._request, directory)

    def note(self, note: Note) -> None:
        """Print a remark on standard error."""
        streams.tell(f"note: {note}")

    def end(self) -> None:
        """Remove all bars."""
        self._counter.end()


def _work_of(outcome: PartitionOutcome) -> int:
    """Return how many bytes a cleaning reads: the dirty section for the keys, then all segments to be rewritten."""
    plan = outcome.plan
    return plan.cleanable_bytes + sum(segment.size_bytes for segment in plan.segments) if plan else 0


class _PartitionProgress(Progress):
    def __init__(self, counter: Counter, request: StopRequest, directory: Path) -> None:
        self._counter, self._request, self._directory = counter, request, directory
        self._left_bytes = counter.expected_bytes.get(directory, 0)

    def begin(self, stage: str, total_bytes: int) -> None:
        self._counter.begin(self._directory, _VERBS.get(stage, stage), total_bytes)

    def advance(self, done_bytes: int) -> None:
        # A stage that is repeated, and a section that is read twice, must not count as more than all of the work.
        counted_bytes = min(done_bytes, self._left_bytes)
        self._left_bytes -= counted_bytes
        self._counter.advance(self._directory, done_bytes, counted_bytes)

    def check(self) -> None:
        self._request.check(self._directory)

    def end(self) -> None:
        """Remove the bar."""
        self._counter.finish(self._directory, self._left_bytes)


class KeysProgress(Progress):
    """Shows how much of a topic is read. A signal ends the process at once, because nothing can be half done."""

    def __init__(self) -> None:
        self._counter = Counter({}, Shown.NOTHING)

    def begin(self, stage: str, total_bytes: int) -> None:
        self._counter.end()
        self._counter = Counter({Path("keys"): total_bytes}, bars_if_long(total_bytes))
        self._counter.begin(Path("keys"), "reading", total_bytes)

    def advance(self, done_bytes: int) -> None:
        self._counter.advance(Path("keys"), done_bytes, done_bytes)

    def end(self) -> None:
        self._counter.end()


@contextmanager
def executor_for(options: EngineOptions, directories: Sequence[Path]) -> Iterator[Executor]:
    """Yield the executor for a command that reads all records of some partitions, with progress on a terminal."""
    from kcompact.cleaner.engines import Engine
    from kcompact.log.files import log_bytes

    with ExitStack() as stack, stop_request() as stop:
        engine = Engine(options, stack, bytes_to_read=log_bytes(directories), paths=directories)
        if directories and engine.choice.name == "spark" and engine.choice.why:  # Its start takes seconds.
            streams.tell(str(engine.choice))
        engine.check()
        with stop.deferred():  # A signal must not interrupt the start halfway.
            engine.begin()
        executors = stack.enter_context(engine.executors(lambda note: streams.tell_notes([note])))
        progress = KeysProgress()
        try:
            yield executors(progress)
        finally:
            progress.end()
