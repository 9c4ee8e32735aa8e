"""The output of a round with `output`: what it is a copy of, and whether it is finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kcompact.cleaner.options import CleanOptions
from kcompact.cleaner.outcome import Copied, PartitionOutcome
from kcompact.config.metadata_log import METADATA_DIRECTORY
from kcompact.errors import CleaningAbortedError, KcompactError, RefusedError, UnfinishedCopyError
from kcompact.plan.discovery import canonical
from kcompact.plan.options import PlanOptions
from kcompact.swap.copy import Output


def output_of(
    paths: Sequence[Path], directories: Sequence[Path], plan_options: PlanOptions, options: CleanOptions
) -> Output | None:
    """Return the checked output of a round, None without one. Nothing is written yet.

    A single log directory is copied completely. Partition directories, and the partitions of chosen topics, are copied
    without the files that make a log directory. Raises RefusedError, LogDirLockedError, StorageError.
    """
    if options.output is None or not directories:
        return None
    output = Path(options.output)
    parents = {directory.parent for directory in directories}
    named = [canonical(path) for path in paths]
    log_dirs = [directory for directory in named if directory in parents and directory not in directories]
    if log_dirs and not plan_options.topics:
        if len(paths) > 1:
            raise RefusedError(
                path=output,
                problem=f"cannot become a copy of {len(paths)} paths: a log directory is copied alone",
                hint="Run the command once for each log directory, each with its own --output.",
            )
        return Output(output, log_dir=log_dirs[0])
    return Output(output, [directory for directory in directories if directory.name != METADATA_DIRECTORY])


def require_space_for_copies(output: Output, outcomes: Sequence[PartitionOutcome]) -> None:
    """Raise NotEnoughSpaceError if the copies of all partitions may not fit the file system of the output."""
    planned = [outcome.directory for outcome in outcomes if outcome.plan is not None and outcome.error is None]
    output.require_space([directory for directory in planned if output.takes(directory)])


def finish(output: Output, partitions: Sequence[PartitionOutcome], check: Callable[[], None]) -> Copied:
    """Complete the output, and return what was copied with the error if it is unfinished."""
    error: KcompactError | None = None
    try:
        report = output.finish(check)
    except KcompactError as problem:
        report, error = output.report(), problem
    is_stopped = error is None or isinstance(error, CleaningAbortedError)
    if is_stopped and report.is_new and report.finished and not report.is_finished:
        failures = [outcome.error for outcome in partitions if outcome.error is not None]
        is_interrupted = all(isinstance(failure, CleaningAbortedError) for failure in failures)
        error = UnfinishedCopyError(path=output.path, missing=report.missing, is_interrupted=is_interrupted)
    return Copied(report=report, error=error)
