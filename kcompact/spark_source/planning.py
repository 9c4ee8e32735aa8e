"""Divides the logs of a query among tasks. Runs once for a query, on Spark's driver, and reads little.

A log file is cut by the planner of the cleaning's splits. Where damage is to be passed over it is not cut: after damage
the next batch is looked for, and that may lead past the end of a split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from kcompact.errors import KcompactError, storage_errors
from kcompact.format.limits import batch_memory_bytes
from kcompact.format.names import MAX_OFFSET, Suffix
from kcompact.host.machine import available_cores, clock_ms, default_memory_bytes
from kcompact.log.directory import LogDir, PerLogDir, is_running, partition_of, read_log, read_log_dir
from kcompact.log.files import files_in, log_bytes
from kcompact.log.unchanged_reading import read_unchanged
from kcompact.questions.record_filter import RecordFilter
from kcompact.spark_source.options import SourceOptions, View
from kcompact.spark_source.tasks import LogPart, ReadTask
from kcompact.stages.job import Split
from kcompact.stages.splits import balanced, cut

TASK_BYTES = 64 << 20
"""A task reads about so many bytes, fewer if there would be fewer tasks than processors."""
LEAST_TASK_BYTES = 1 << 20
"""Less is not worth a task of its own: Spark needs some milliseconds for each."""


def read_tasks(options: SourceOptions, bounds: RecordFilter, directories: Sequence[Path]) -> list[ReadTask]:
    """Return the tasks that read some partitions, in order; none if no record can be within the bounds.

    Raises RefusedError, StorageError, CorruptDataError, LogChangedError.
    """
    memory_bytes = options.memory_bytes or default_memory_bytes() // available_cores()
    task = ReadTask(options=options, bounds=bounds, now_ms=clock_ms(), memory_bytes=memory_bytes)
    if not directories or bounds.contradiction():
        return []
    sizes = {directory: log_bytes([directory]) for directory in directories}
    count = _task_count(options, sum(sizes.values()))
    if options.view is View.LATEST:
        for directory in directories:
            partition_of(directory)
        tasks = balanced([[directory] for directory in directories], count, sizes.__getitem__)
        return [replace(task, directories=tuple(each)) for each in tasks]
    task_bytes = max(LEAST_TASK_BYTES, sum(sizes.values()) // count)
    if options.view is View.COMMITTED:
        from kcompact.spark_source.committed import committed_parts  # It loads what plans a cleaning.

        parts = committed_parts(task, directories, task_bytes)
    else:
        parts = _all_parts(task, directories, task_bytes)
    wanted = [[part] for part in parts if part.split.size_bytes and not _is_outside(part, bounds)]
    return [
        replace(task, parts=tuple(each)) for each in balanced(wanted, count, lambda part: part.split.size_bytes) if each
    ]


def _task_count(options: SourceOptions, size_bytes: int) -> int:
    by_size = min(available_cores(), -(-size_bytes // LEAST_TASK_BYTES))
    return max(1, options.min_partitions or by_size, -(-size_bytes // TASK_BYTES))


def _is_outside(part: LogPart, bounds: RecordFilter) -> bool:
    first_offset = max(bounds.first_offset, part.start_offset)
    is_after = bounds.end_offset is not None and part.split.base_offset >= bounds.end_offset
    return is_after or part.split.end_offset <= first_offset


# All records


def _all_parts(task: ReadTask, directories: Sequence[Path], task_bytes: int) -> Iterator[LogPart]:
    running = PerLogDir(is_running)
    for directory in directories:
        partition = partition_of(directory)
        with storage_errors(directory):
            if running.of(directory):
                read = partial(_segments, task, directory, task_bytes, is_growing=True)
                splits = read_unchanged(files_in(directory), read_log_dir(directory.parent), read)
            else:
                splits = _segments(task, directory, task_bytes, None, is_growing=False)
        yield from (LogPart(split, partition) for split in splits)


def _segments(
    task: ReadTask, directory: Path, task_bytes: int, log_dir: LogDir | None, *, is_growing: bool
) -> list[Split]:
    """Return the log files of a partition, large ones cut. The active one of a running broker ends at a whole batch."""
    files = files_in(directory)
    identities = [files.identity(name) for name in files.names() if name[:1].isdigit() and name.endswith(Suffix.LOG)]
    starts = [int(identity.name.partition(".")[0]) for identity in identities]
    splits = [
        Split(
            log=files.file(identity.name),
            start_position=0,
            end_position=identity.size_bytes,
            base_offset=start,
            end_offset=end,
            identity=identity.elsewhere(),
        )
        for identity, start, end in zip(identities, starts, [*starts, MAX_OFFSET][1:], strict=True)
    ]
    is_large = task.options.fails_on_damage and any(split.size_bytes > task_bytes for split in splits)
    if splits and not is_growing and not is_large:
        return splits
    log = read_log(directory, log_dir=log_dir or LogDir(path=directory.parent))
    if is_growing:
        active = replace(splits[-1], end_position=log.active_segment.size_bytes, identity=None)
        splits = [*splits[:-1], active]
    cuts: dict[int, list[Split]] = {}
    for segment in log.segments if is_large else ():
        with suppress(KcompactError):
            cuts[segment.base_offset] = cut(
                log, segment, task_bytes, batch_memory_bytes(task.memory_bytes), end_offset=log.end_of(segment)
            )
    return [piece for split in splits for piece in _pieces(split, cuts.get(split.base_offset, []))]


def _pieces(whole: Split, pieces: Sequence[Split]) -> list[Split]:
    """Return the pieces of a log file, or the file as a whole if they do not make up the file."""
    if not pieces or pieces[-1].end_position != whole.end_position:
        return [whole]
    last = replace(pieces[-1], end_offset=whole.end_offset)
    return [replace(piece, identity=whole.identity) for piece in (*pieces[:-1], last)]
