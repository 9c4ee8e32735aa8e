"""`records --latest`: which records of a partition are the latest of their keys."""

from __future__ import annotations

from pathlib import Path

from kcompact.clean.executor import Progress
from kcompact.engine.in_process import InProcess
from kcompact.errors import storage_errors
from kcompact.keys.latest import LatestRecords, latest_records
from kcompact.log.directory import LogDir
from kcompact.log.settled import read_settled
from kcompact.plan.options import PlanOptions
from kcompact.plan.partition import plan_despite_damage
from kcompact.plan.walk import LogDirs


def read_latest(
    directory: Path, options: PlanOptions, *, memory_bytes: int | None, progress: Progress
) -> LatestRecords:
    """Return the latest record of each key of a partition. All of its log is read.

    Raises CorruptDataError if the log is damaged, RefusedError, StorageError, LogChangedError.
    """
    config = options.configs_of([directory])[directory].config

    def read(log_dir: LogDir) -> LatestRecords:
        plan, damage = plan_despite_damage(directory, config, options, log_dir=log_dir)
        if damage is not None:
            raise damage
        return latest_records(plan, InProcess(progress=progress), memory_bytes=memory_bytes)

    try:
        with storage_errors(directory):
            return read_settled(directory, LogDirs().of(directory), read, watches=False)
    finally:
        progress.end()
