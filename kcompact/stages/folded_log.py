"""A question over all records of a log, answered by the workers of an executor: pieces of the log, joined in order."""

from __future__ import annotations

from contextlib import suppress
from functools import reduce
from typing import Any, NamedTuple

from kcompact.errors import BatchTooLargeError, KcompactError
from kcompact.host.throttle import Pace
from kcompact.log.directory import PartitionLog
from kcompact.stages.executor import Executor
from kcompact.stages.fold import Fold, Found, JoinableFold, folded
from kcompact.stages.job import ScanJob, Split
from kcompact.stages.sizing import Sizing
from kcompact.stages.splits import balanced, cut_despite_damage, whole
from kcompact.values import dataclass


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


def fold_piece(job: FoldJob, piece: LogPiece, pace: Pace) -> FoldedPiece:
    """Return the state of a piece. Raises StorageError."""
    parts = ((split.log, split.start_position, split.end_position) for split in piece.splits)
    return FoldedPiece(piece.number, *folded(job.fold, parts, job.memory_bytes, pace.done))


def fold_log(
    question: Fold[Any, Found], log: PartitionLog, executor: Executor, *, memory_bytes: int | None = None
) -> tuple[Found, KcompactError | None]:
    """Return the answer about a log, and the damage that ended the reading. Changes nothing.

    `memory_bytes` is for all workers together. Raises StorageError, EngineError, and what the fold raises.
    """
    sizing = Sizing(executor, memory_bytes, [(log.file(each.log_name), each.size_bytes) for each in log.segments])
    if not isinstance(question, JoinableFold):
        sizing.workers = 1
    while True:
        pieces = _pieces(log, sizing)
        job = FoldJob(**sizing.of_keys(0), directory=str(log.directory), hash_key=b"", fold=question)
        folded_pieces = sorted(executor.run("scan", job, pieces, fold_piece), key=lambda each: each.number)
        damaged = next((each for each in folded_pieces if each.damage is not None), None)
        is_too_large = damaged is not None and isinstance(damaged.damage, BatchTooLargeError)
        if not (is_too_large and sizing.has_more_alone()):
            break  # Else there is more memory for a batch if only one is read at a time.
    damage = damaged and damaged.damage
    states = [each.state for each in folded_pieces if damaged is None or each.number <= damaged.number]
    if isinstance(question, JoinableFold):
        return question.finish(reduce(question.join, states, question.zero()), damage), damage
    return question.finish(states[0] if states else question.zero(), damage), damage


def _pieces(log: PartitionLog, sizing: Sizing) -> list[list[LogPiece]]:
    """Return a piece for each task. For one worker, and where a batch is too large for it too, nothing is cut."""
    wholes = [whole(log, segment) for segment in log.segments]
    tasks = [wholes]
    if sizing.workers > 1:
        with suppress(BatchTooLargeError):
            splits = cut_despite_damage(log, sizing.split_bytes, sizing.most_batch_bytes)
            sizing.fit(splits)
            count = sizing.task_count(log.size_bytes)
            tasks = balanced([[split] for split in splits], count, lambda split: split.size_bytes)
    return [[LogPiece(number, tuple(task))] for number, task in enumerate(tasks) if task]
