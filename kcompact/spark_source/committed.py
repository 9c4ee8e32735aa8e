"""What a consumer with `isolation.level=read_committed` receives: where its view begins and ends, what was aborted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from kcompact.errors import CorruptDataError, storage_errors
from kcompact.format.limits import batch_memory_bytes
from kcompact.log.directory import LogDir, partition_of
from kcompact.log.files import files_in
from kcompact.log.transactions import PackedTable, PackedTables, readable_transactions
from kcompact.log.unchanged_reading import read_unchanged
from kcompact.plan.walk import Planner
from kcompact.questions.keys.latest import stable_splits
from kcompact.questions.keys.state import LogState
from kcompact.spark_source.tasks import LogPart, ReadTask

_WHOLE = 1 << 62
"""No segment has more bytes, so none is cut."""


def committed_parts(task: ReadTask, directories: Sequence[Path], task_bytes: int) -> Iterator[LogPart]:
    """Yield the parts of the logs up to the last stable offsets. Their splits name the aborted batches.

    Reads all headers. Raises CorruptDataError if damage is not to be passed over, RefusedError, LogChangedError,
    StorageError.
    """
    planner = Planner(directories, task.options.plan_options(task.now_ms))
    for directory in directories:
        partition = partition_of(directory)
        with storage_errors(directory):
            log_dir, damage = planner.log_dirs.despite_damage(directory)
            if damage is not None and task.options.fails_on_damage:
                raise damage
            state = read_unchanged(files_in(directory), log_dir, partial(_stable_state, task, planner, directory))
            split_bytes = task_bytes if task.options.fails_on_damage else _WHOLE
            splits = state.splits(split_bytes, batch_memory_bytes(task.memory_bytes), on_other_machines=True)
            stable = list(stable_splits(splits, state.stable_offset))
        yield from (LogPart(split, partition, state.plan.log.log_start_offset) for split in stable)


def _stable_state(task: ReadTask, planner: Planner, directory: Path, log_dir: LogDir) -> LogState:
    plan, damage = planner.plan_despite_damage(directory, log_dir)
    if damage is not None and task.options.fails_on_damage:
        raise damage
    state = LogState.of(plan)
    try:
        state.learn(state.transactional_batches())
    except CorruptDataError as problem:
        if task.options.fails_on_damage:
            raise
        # A marker may be in the damage. A transaction without one counts as open.
        state.problem = problem
        state.learn(PackedTables([PackedTable.of(readable_transactions(state.files()))]))
    return state
