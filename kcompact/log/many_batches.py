"""The batches of a `.log` file, verified in columns where they are many.

One Python object for each of several hundred thousand small batches takes seconds, and a plan is to be quick.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.format.batch import HEADER_BYTES, Batch
from kcompact.log.segment_reader import verified_batches
from kcompact.log.workload import expected_work

if TYPE_CHECKING:
    from kcompact.log.header_table import VerifiedRun

COLUMN_BATCHES = 8192
"""For so many batches they are read in columns: importing numpy takes as long as reading these."""
COMPILED_BATCHES = 1 << 17
"""For so many batches the kernels are loaded, if they are compiled."""


def runs_and_batches(
    path: Path,
    *,
    base_offset: int,
    end_offset: int,
    end_position: int,
    start_position: int = 0,
    is_verified: bool = False,
) -> Iterator[VerifiedRun | Batch]:
    """Yield the batches between two positions, with the checks of `verified_batches`, and `holds_large` as False.

    A large number comes as runs, of at least one batch each, read by kernels if they are compiled. Few batches, and all
    from the first one that is damaged, of magic 0 or 1, or larger than the window, come one by one from the definition.
    Where this process has read the file before and it `is_verified`, the checksums may be left out.
    Raises CorruptBatchError, RefusedError, StorageError.
    """
    position, next_offset, epoch = start_position, base_offset, -1
    expected_batches = _expected_batches(path, start_position, end_position)
    if expected_batches >= COLUMN_BATCHES:
        from kcompact.log import header_table

        with contextlib.suppress(header_table.UnconfirmedError):
            for run in header_table.verified_runs(
                path,
                base_offset=base_offset,
                end_offset=end_offset,
                start_position=start_position,
                end_position=end_position,
                memory_bytes=0,
                compiled=expected_batches >= COMPILED_BATCHES and _is_compiled(),
                is_verified=is_verified,
            ):
                if len(run.table):
                    yield run
                    position, next_offset, epoch = header_table.end_of_run(run, epoch)
    yield from verified_batches(
        path,
        base_offset=next_offset,
        end_offset=end_offset,
        start_position=position,
        end_position=end_position,
        epoch=epoch,
        holds_large=False,
    )


def _expected_batches(path: Path, start_position: int, end_position: int) -> int:
    size_bytes = end_position - start_position
    if size_bytes < COLUMN_BATCHES * HEADER_BYTES:
        return 0  # Too few, whatever their size.
    return expected_work([(path, end_position)]).batches * size_bytes // end_position


def _is_compiled() -> bool:
    """Return whether the kernels can be used at once. Compiling them takes longer than reading headers in Python."""
    from kcompact import kernels

    return kernels.is_compiled()
