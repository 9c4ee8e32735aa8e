"""Cleans the partitions in order; on Spark, small ones side by side.

A small log is a single task, so the cleaning mostly waits for Spark and for the disk. Several small logs are cleaned in
the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import replace

import click

from kcompact.clean.executor import Executor, Progress
from kcompact.cleaner import partition as cleaner
from kcompact.cli.commands.engines import Engine
from kcompact.cli.commands.request import Request
from kcompact.cli.entries import Entry
from kcompact.cli.failures import unexpected
from kcompact.cli.locks import Locks
from kcompact.cli.output.progress import ProgressBar
from kcompact.cli.signals import StopRequest
from kcompact.errors import KcompactError

SMALL_BYTES = 64 << 20
"""A log with fewer bytes to clean is small."""
SIDE_BY_SIDE = 4
"""The number of small logs that are cleaned at the same time."""


def clean_each(
    entries: Sequence[Entry], request: Request, engine: Engine, locks: Locks, progress: ProgressBar, stop: StopRequest
) -> Iterator[Entry]:
    """Clean the eligible partitions and yield every entry with its result, in order.

    The entry of a partition has its failure, and the others are still cleaned; after a request to stop they all fail.
    """
    stop.is_deferred = True
    command = click.get_current_context(silent=True)
    with ExitStack() as stack:
        try:
            executor = stack.enter_context(engine.executors(entries))
        except KcompactError as problem:
            yield from (replace(entry, error=problem) if entry.is_eligible else entry for entry in entries)
            return

        def cleaned(entry: Entry) -> Entry:
            partition_progress = progress.of(entry.directory)
            try:
                # Each thread has its own current context of click.
                with nullcontext() if command is None else command.scope(cleanup=False):
                    return _cleaned(entry, executor(partition_progress), partition_progress, request, locks)
            finally:
                partition_progress.end()

        for run in _runs(entries, request):
            if len(run) == 1:
                yield cleaned(run[0])
                continue
            # The threads take the entries in order, and Spark (FIFO) prefers the tasks of the oldest job.
            with ThreadPoolExecutor(min(len(run), SIDE_BY_SIDE), "kcompact-partition") as pool:
                yield from pool.map(cleaned, run)


def _runs(entries: Sequence[Entry], request: Request) -> Iterator[list[Entry]]:
    """Cut the entries into runs, in order: neighbours that are all small, and each large one alone."""
    run: list[Entry] = []
    for entry in entries:
        if run and not (_is_small(entry, request) and _is_small(run[-1], request)):
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


def _is_small(entry: Entry, request: Request) -> bool:
    if request.engine != "spark" or request.options.max_bytes_per_second is not None:
        return False  # The limit on bytes per second holds for one cleaning.
    return entry.plan is None or sum(segment.size_bytes for segment in entry.plan.segments) < SMALL_BYTES


def _cleaned(entry: Entry, executor: Executor, progress: Progress, request: Request, locks: Locks) -> Entry:
    """Clean one partition and return its entry with the result or the error."""
    if entry.plan is None or entry.error is not None or entry.result is not None:
        return entry
    try:
        progress.check()
        lock = locks.of(entry.directory)
        result = cleaner.clean_partition(entry.plan, executor, lock=lock, options=request.options, progress=progress)
        return replace(entry, result=result)
    except KcompactError as problem:
        return replace(entry, error=problem)
    except Exception as fault:
        return replace(entry, error=unexpected(fault))
