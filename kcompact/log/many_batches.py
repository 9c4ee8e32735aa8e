"""The batches of a `.log` file, verified: as runs by the kernels, and one by one by the definition what is unusual."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from kcompact import kernels
from kcompact.format.batch import Batch
from kcompact.log.batch_runs import UnconfirmedError, VerifiedRun, verified_runs
from kcompact.log.segment_reader import verified_batches


def runs_and_batches(
    path: Path,
    *,
    base_offset: int,
    end_offset: int,
    end_position: int,
    start_position: int = 0,
) -> Iterator[VerifiedRun | Batch]:
    """Yield the batches between two positions, with the checks of `verified_batches`, and `holds_large` as False.

    The kernels yield runs of at least one batch each. Without kernels, and from the first batch that is damaged, of
    magic 0 or 1, or larger than the window, batches come one by one from the definition.
    Raises CorruptBatchError, RefusedError, StorageError.
    """
    position, next_offset, epoch = start_position, base_offset, -1
    if kernels.in_use():
        with contextlib.suppress(UnconfirmedError):
            for run in verified_runs(
                path,
                base_offset=base_offset,
                end_offset=end_offset,
                start_position=start_position,
                end_position=end_position,
                memory_bytes=0,
            ):
                if run.count:
                    yield run
                    position, next_offset, epoch = run.end_position, run.next_offset, run.epoch
    yield from verified_batches(
        path,
        base_offset=next_offset,
        end_offset=end_offset,
        start_position=position,
        end_position=end_position,
        epoch=epoch,
        holds_large=False,
    )
