"""The recovery of many partitions: each up to its checkpoint, then the checkpoints and the rest in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from kcompact.cleaner.ending import most_together
from kcompact.errors import KcompactError, storage_errors
from kcompact.swap.recovery_end import Recovery, RecoveryReport, end_recoveries

Recovered = dict[Path, RecoveryReport | KcompactError]
"""What recovery did with each partition directory, or the error that stopped it."""


def recover_each(
    directories: Iterable[Path],
    begin: Callable[[Path], Recovery | RecoveryReport | None],
    *,
    uninterrupted: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Recovered:
    """Recover partitions and return what was done with each. `begin` calls `begin_recovery`, or returns None.

    The end of a group is a block of `uninterrupted()`. After an interrupt the next recovery ends what has not ended.
    """
    recovered: Recovered = {}
    waiting: dict[Path, Recovery] = {}
    most = most_together()

    def end() -> None:
        with uninterrupted():
            group = dict(waiting)
            waiting.clear()
            recovered.update(zip(group, end_recoveries(list(group.values())), strict=True))

    try:
        for directory in directories:
            try:
                with storage_errors(directory):
                    begun = begin(directory)
            except KcompactError as problem:
                recovered[directory] = problem
                continue
            if isinstance(begun, Recovery):
                waiting[directory] = begun
            elif begun is not None:
                recovered[directory] = begun
            if len(waiting) >= most:
                end()
        end()
    finally:
        for each in waiting.values():
            with suppress(KcompactError, OSError), each.directory:
                pass
    return recovered
