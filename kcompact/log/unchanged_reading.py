"""Readings of a partition that a running broker changes: each result is of one moment, or there is none.

A broker appends to the active segment, rolls it, replaces cleaned segments and deletes old ones. Appending does no harm
(`growing`). After any other change between the beginning and the end of a reading, the partition is read again, with
the checkpoints of that time, at most `REPEATS` times. Without a broker there is one reading, and nothing is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from kcompact.errors import CorruptDataError, KcompactError, LogChangedError, RefusedError, StorageError
from kcompact.log.directory import LogDir, PartitionLog, read_log_dir, segment_states
from kcompact.log.files import FileIdentity, Files

REPEATS = 3
_PAUSES_S = (0.05, 0.2, 1.0)
"""Before each repetition: the renames of a swap take milliseconds, and a second more on a busy disk."""

Result = TypeVar("Result")


def read_unchanged(files: Files, log_dir: LogDir, read: Callable[[LogDir], Result], *, watches: bool = True) -> Result:
    """Return what `read` returns for a partition, given the checkpoints of its log directory.

    Beside a running broker `read` is called again if a segment was rolled, replaced or deleted during the call. Without
    `watches` it is called again only after an error that says so: for a reading that does not need all segments.
    Raises LogChangedError if this happened in every call, and what `read` raises.
    """
    if not log_dir.is_running:
        return read(log_dir)
    pauses = iter(_PAUSES_S)
    while True:
        try:
            return _read_once(files, log_dir, read, watches=watches)
        except (LogChangedError, StorageError, FileNotFoundError) as problem:
            if isinstance(problem, StorageError) and not isinstance(problem.problem, FileNotFoundError):
                raise  # No file was replaced, and none is gone.
            pause_s = next(pauses, None)
            if pause_s is None:
                raise LogChangedError(
                    path=getattr(problem, "path", files.directory),
                    problem=f"a running broker changed the partition during each of {REPEATS + 1} readings",
                    hint="kcompact changes nothing. Run the command again when the broker writes, cleans or deletes "
                    "less.",
                ) from problem
        time.sleep(pause_s)
        log_dir = read_log_dir(log_dir.path)


def _read_once(files: Files, log_dir: LogDir, read: Callable[[LogDir], Result], *, watches: bool) -> Result:
    if not watches or not log_dir.is_running:
        return read(log_dir)
    before = segment_states(files)
    try:
        result = read(log_dir)
    except (CorruptDataError, RefusedError) as problem:
        # What looks like damage may be half of the old state and half of the new one.
        _require_same(files, before, problem)
        raise
    _require_same(files, before, None)
    return result


def _require_same(files: Files, before: dict[str, FileIdentity | int], cause: KcompactError | None) -> None:
    now = segment_states(files)
    if now != before:
        name = min(name for name in {*before, *now} if before.get(name) != now.get(name))
        path = files.directory / name
        raise LogChangedError(path=path, problem="was changed while the partition was read") from cause


@contextmanager
def damage_only_if_unchanged(log: PartitionLog) -> Iterator[None]:
    """Raise LogChangedError in place of an error about data in the block if a segment but the last one has changed."""
    try:
        yield
    except (CorruptDataError, RefusedError) as problem:
        if log.log_dir.is_running:
            now = segment_states(log.files)
            for file in (file for segment in log.segments[:-1] for file in segment.files):
                if now.get(file.name) != file:
                    raise LogChangedError(
                        path=log.directory / file.name, problem="was changed while the partition was read"
                    ) from problem
        raise
