"""Questions over all records of a log: a `Fold` says what is asked.

    fold_files  files -> runs of records -> one state after the other -> the answer
    fold_log    pieces of a log, by the workers of an executor -> a state of each -> joined in order -> the answer

A fold that cannot join two states is answered by one worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, Generic, NamedTuple, TypeVar

from kcompact.errors import CorruptDataError, KcompactError, RefusedError
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.host.throttle import Pace
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile
from kcompact.log.records import RecordRun, record_runs
from kcompact.stages.executor import Executor
from kcompact.stages.job import ScanJob, Split
from kcompact.stages.sizing import Sizing
from kcompact.stages.splits import balanced, cut_despite_damage, whole
from kcompact.values import dataclass

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


class LogPiece(NamedTuple):
    """Consecutive splits of a log: `number` counts the pieces."""

    number: int
    splits: tuple[Split, ...]

    @property
    def size_bytes(self) -> int:
        return sum(split.size_bytes for split in self.splits)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldJob(ScanJob):
    """What each worker needs besides its piece."""

    fold: Fold[Any, Any]


class FoldedPiece(NamedTuple):
    """The state of a piece, up to the damage in it."""

    number: int
    state: Any
    damage: KcompactError | None


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
    state, damage = _folded(question, parts, memory_bytes, advance or (lambda size_bytes: None))
    return question.finish(state, damage)


def _folded(
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


def fold_piece(job: FoldJob, piece: LogPiece, pace: Pace) -> FoldedPiece:
    """Return the state of a piece. Raises StorageError."""
    parts = ((split.log, split.start_position, split.end_position) for split in piece.splits)
    return FoldedPiece(piece.number, *_folded(job.fold, parts, job.memory_bytes, pace.done))


def fold_log(
    question: Fold[Any, Found], log: PartitionLog, executor: Executor, *, memory_bytes: int | None = None
) -> tuple[Found, KcompactError | None]:
    """Return the answer about a log, and the damage that ended the reading. Changes nothing.

    `memory_bytes` is for all workers together. Raises StorageError, EngineError, and what the fold raises.
    """
    sizing = Sizing(executor, memory_bytes, [(log.file(each.log_name), each.size_bytes) for each in log.segments])
    if isinstance(question, JoinableFold) and sizing.workers > 1:
        splits = cut_despite_damage(log, sizing.split_bytes, sizing.most_batch_bytes)
        sizing.fit(splits)
        tasks = balanced([[split] for split in splits], sizing.task_count(log.size_bytes), lambda each: each.size_bytes)
    else:
        tasks = [[whole(log, segment) for segment in log.segments]]
    pieces = [[LogPiece(number, tuple(task))] for number, task in enumerate(tasks) if task]
    job = FoldJob(**sizing.of_keys(0), directory=str(log.directory), hash_key=b"", fold=question)
    found = sorted(executor.run("scan", job, pieces, fold_piece), key=lambda each: each.number)
    damage = next((each for each in found if each.damage is not None), None)
    states = [each.state for each in found if damage is None or each.number <= damage.number]
    state = states[0] if len(states) == 1 else reduce(_join_of(question), states, question.zero())
    problem = damage and damage.damage
    return question.finish(state, problem), problem


def _join_of(question: Fold[State, Any]) -> Callable[[State, State], State]:
    assert isinstance(question, JoinableFold)
    return question.join
