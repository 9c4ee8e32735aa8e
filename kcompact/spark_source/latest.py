"""Finds the latest record of each key, inside a task that reads whole partitions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from kcompact.engine.in_process import InProcess
from kcompact.errors import storage_errors
from kcompact.format.names import TopicPartition
from kcompact.log.directory import LogDir, partition_of
from kcompact.log.files import files_in
from kcompact.log.unchanged_reading import read_unchanged
from kcompact.plan.walk import Planner
from kcompact.questions.keys.latest import LatestRecords, latest_records
from kcompact.spark_source.tasks import ReadTask


def latest_of_each(task: ReadTask) -> Iterator[tuple[LatestRecords, TopicPartition]]:
    """Yield the latest records of each partition of a task.

    Damage is always an error: the latest record of any key may be in it. Raises CorruptDataError, RefusedError,
    LogChangedError, StorageError.
    """
    planner = Planner(task.directories, task.options.plan_options(task.now_ms))
    for directory in task.directories:
        with storage_errors(directory):
            read = partial(_latest, task, planner, directory)
            latest = read_unchanged(files_in(directory), planner.log_dirs.of(directory), read, watches=False)
        yield latest, partition_of(directory)


def _latest(task: ReadTask, planner: Planner, directory: Path, log_dir: LogDir) -> LatestRecords:
    plan, damage = planner.plan_despite_damage(directory, log_dir)
    if damage is not None:
        raise damage
    return latest_records(plan, InProcess(parallelism=1), memory_bytes=task.memory_bytes)
