"""Reads what one task of a query is to read, and yields it as batches of Arrow. Runs in Spark's Python workers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kcompact.format.limits import batch_memory_bytes
from kcompact.kernels import columns as c
from kcompact.log.offset_index import position_near
from kcompact.log.past_damage import LeftOutParts, Unreadable
from kcompact.log.records import RecordRun, record_parts
from kcompact.questions.record_filter import RecordFilter
from kcompact.spark_source.columns import RunSegment, batch_rows, record_batches
from kcompact.spark_source.damage import Damage, damage_row
from kcompact.spark_source.options import View
from kcompact.spark_source.tasks import LogPart, ReadTask

if TYPE_CHECKING:
    from kcompact.format.names import TopicPartition
    from kcompact.kernels import Mask
    from kcompact.questions.keys.latest import LatestRecords, LatestSplit
    from kcompact.stages.job import Split

_LOGGER = logging.getLogger("kcompact")


def rows_of(task: ReadTask) -> Iterator[Any]:
    """Yield the rows of a task as `pyarrow.RecordBatch`.

    Damage is an error, or is left out and logged. Raises CorruptDataError, BatchTooLargeError, LogChangedError,
    RefusedError, StorageError.
    """
    for part in task.parts:
        yield from _rows_of_part(task, part)
    if task.directories:
        from kcompact.spark_source.latest import latest_of_each  # It loads the stages of a cleaning.

        for latest, partition in latest_of_each(task):
            yield from _latest_rows(task, latest, partition)


def _rows_of_part(task: ReadTask, part: LogPart) -> Iterator[Any]:
    split, bounds, names = part.split, task.bounds, task.options.columns
    position = split.start_position
    if not position and split.base_offset < bounds.first_offset:
        position = position_near(split.log, bounds.first_offset)
    place = RunSegment(part.partition, split.log.base_offset)
    with split.log.open(identity=split.identity):
        parts = _until(bounds, _parts(task, split, position))
        if task.options.view is View.DAMAGE:
            damaged = (each for each in parts if isinstance(each, Unreadable))
            yield from (damage_row(Damage(each, place), names) for each in damaged)
            return
        for run in _readable(task, parts):
            mask = _within(bounds, run)
            if task.options.view is View.COMMITTED:
                mask = _both(mask, _committed(part, run))
            if task.options.view is View.BATCHES:
                yield from batch_rows(run, _batches(run, mask), place, names)
            else:
                yield from record_batches(run, mask, place, names)


def _parts(task: ReadTask, split: Split | LatestSplit, position: int) -> Iterator[RecordRun | Unreadable]:
    """Yield the records of a split from a position on, and what cannot be read."""
    return record_parts(
        split.log,
        offsets=range(split.base_offset, split.end_offset),
        start_position=position,
        end_position=split.end_position,
        memory_bytes=batch_memory_bytes(task.memory_bytes),
    )


def _readable(task: ReadTask, parts: Iterable[RecordRun | Unreadable]) -> Iterator[RecordRun]:
    """Yield the records of a log. Raises the error of the first damage, or logs all of it."""
    left_out = LeftOutParts()
    for part in parts:
        if isinstance(part, RecordRun):
            yield part
        elif task.options.fails_on_damage:
            raise part.problem
        else:
            left_out.add(part)
    if (error := left_out.error()) is not None:
        _LOGGER.warning("%s", error)


def _until(bounds: RecordFilter, parts: Iterable[RecordRun | Unreadable]) -> Iterator[RecordRun | Unreadable]:
    """Yield the parts of a log up to the records at which the bounds end."""
    for part in parts:
        yield part
        if bounds.end_offset is not None and isinstance(part, RecordRun) and part.last_offset + 1 >= bounds.end_offset:
            return


def _within(bounds: RecordFilter, run: RecordRun) -> Mask | None:
    """Return which records of a run are within the bounds, None if all are."""
    if bounds == RecordFilter():
        return None
    mask = bounds.mask_of(run)
    return None if mask.all() else mask


def _both(first: Mask | None, second: Mask | None) -> Mask | None:
    if first is None or second is None:
        return second if first is None else first
    both: Mask = first & second
    return both


def _committed(part: LogPart, run: RecordRun) -> Mask | None:
    """Return which records of a run a consumer of committed records receives, None if all. It gets no markers."""
    is_left_out = run.table[:, c.ATTRIBUTES] & c.CONTROL_BIT != 0
    is_left_out |= np.isin(run.table[:, c.BASE_OFFSET], part.split.excluded_from_map)
    if not is_left_out.any() and (part.start_offset <= part.split.base_offset or not len(run)):
        return None
    mask: Mask = ~is_left_out[run.batch] & (run.offset >= part.start_offset)
    return mask


def _batches(run: RecordRun, mask: Mask | None) -> Mask:
    """Return the batches of a run that have a record of the mask; all without a mask, also those without records."""
    chosen = np.ones(len(run.table), bool)
    if mask is not None:
        chosen[:] = False
        chosen[run.batch[mask]] = True
    return chosen


def _latest_rows(task: ReadTask, latest: LatestRecords, partition: TopicPartition) -> Iterator[Any]:
    """Yield the latest record of each key of a partition."""
    for split in latest.splits:
        place, row = RunSegment(partition, split.log.base_offset), 0
        for run in _readable(task, _parts(task, split, split.start_position)):
            mask = _both(latest.mask(split, run, row), _within(task.bounds, run))
            row += len(run)
            yield from record_batches(run, mask, place, task.options.columns)
