"""Questions over all records of a log: a `Fold` says what is asked.

    fold_files            files -> runs of records -> one state after the other -> the answer
    folded_log.fold_log   pieces of a log, by the workers of an executor -> a state of each -> joined in order

A fold that cannot join two states is answered by one worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from kcompact.errors import CorruptDataError, KcompactError, RefusedError
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.log.files import LogFile
from kcompact.log.records import RecordRun, record_runs

State = TypeVar("State")
Found = TypeVar("Found")


class Fold(ABC, Generic[State, Found]):
    """A question. It travels to the workers, and so do its states; `add` and `join` may change the first one."""

    @abstractmethod
    def zero(self) -> State:
        """Return the state of no records."""

    @abstractmethod
    def add(self, state: State, run: RecordRun, file: LogFile) -> State:
        """Return the state with the next records. Raises CorruptBatchError for what it cannot read in them."""

    @abstractmethod
    def finish(self, state: State, damage: KcompactError | None) -> Found:
        """Return the answer; `damage` is what ended the reading. Raises it if there is no answer then."""


class JoinableFold(Fold[State, Found]):
    """A question that several workers can answer."""

    @abstractmethod
    def join(self, state: State, later: State) -> State:
        """Return the state of the records of both, of which `later` has those with greater offsets."""


def fold_files(
    question: Fold[Any, Found],
    files: Iterable[tuple[LogFile, int | None]],
    *,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    advance: Callable[[int], None] | None = None,
) -> Found:
    """Return the answer about some files of a log, each up to a position, by this thread.

    `memory_bytes` is what may be held for a batch; `advance` receives the bytes that were read. Raises StorageError,
    and what the fold raises.
    """
    parts = ((file, 0, end_position) for file, end_position in files)
    state, damage = folded(question, parts, memory_bytes, advance or (lambda size_bytes: None))
    return question.finish(state, damage)


def folded(
    question: Fold[State, Any],
    parts: Iterable[tuple[LogFile, int, int | None]],
    memory_bytes: int,
    advance: Callable[[int], None],
) -> tuple[State, KcompactError | None]:
    """Return the state of the records between two positions of each file, and the damage that ended the reading."""
    state = question.zero()
    for file, position, end_position in parts:
        try:
            for run in record_runs(file, start_position=position, end_position=end_position, memory_bytes=memory_bytes):
                state = question.add(state, run, file)
                advance(run.end_position - position)
                position = run.end_position
        except (CorruptDataError, RefusedError) as problem:
            return state, problem
    return state, None
