"""The recovery of many partitions: each up to its checkpoint, then the checkpoints and the rest in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from kcompact.cleaner.journal import Journal
from kcompact.cleaner.round_end import EndingGroups
from kcompact.errors import KcompactError, storage_errors
from kcompact.swap.recovery.end import Recovery, RecoveryReport, end_recoveries

Recovered = dict[Path, RecoveryReport | KcompactError]
"""What recovery did with each partition directory, or the error that stopped it."""


def recover_each(
    directories: Iterable[Path],
    begin: Callable[[Path], Recovery | RecoveryReport | None],
    *,
    journal: Journal | None = None,
    uninterrupted: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Recovered:
    """Recover partitions and return what was done with each. `begin` calls `begin_recovery`, or returns None.

    The end of a group is a block of `uninterrupted()`. The journal gets a line about each partition that was changed.
    """
    recovered: Recovered = {}

    def keep(reports: Recovered) -> None:
        recovered.update(reports if journal is None else journal.recovered(reports))

    def end(group: Sequence[Recovery]) -> None:
        with uninterrupted():
            keep(dict(zip((each.directory.path for each in group), end_recoveries(group), strict=True)))

    with EndingGroups(end) as groups:
        for directory in directories:
            try:
                with storage_errors(directory):
                    begun = begin(directory)
            except KcompactError as problem:
                recovered[directory] = problem
                continue
            if isinstance(begun, Recovery):
                groups.add(begun)
            elif begun is not None:
                keep({directory: begun})
    return recovered
