"""A segment whose batches and records were checked: what it contains, and where its batches are, for the index checks.

`verify.verify_segment` is the readable definition of `verified_by_kernels`. Where the kernels cannot confirm a batch it
returns None, and the definition reads the segment and describes the problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kcompact import kernels
from kcompact.errors import KcompactError
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.host.machine import available_cores
from kcompact.kernels import columns as c
from kcompact.log.files import LogFile
from kcompact.log.inflate import Buffers, inflated_runs
from kcompact.log.markers import are_control, read_marker
from kcompact.log.offset_index import OffsetPositions
from kcompact.log.segment_reader import UnconfirmedError, VerifiedRun, confirmed_runs
from kcompact.questions.contents import SegmentContents, contents_of_table
from kcompact.questions.verify.findings import FileFinding
from kcompact.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentToVerify:
    """A log file to verify. Its offsets lie in [base_offset, end_offset).

    `end_offset` is None in the active segment: no segment follows. `memory_bytes` is what may be held for a batch.
    With `end_position` a running broker appends to the file, and only so many bytes are read.
    """

    log: LogFile
    base_offset: int
    end_offset: int | None
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    end_position: int | None = None

    @property
    def is_active(self) -> bool:
        return self.end_offset is None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedSegment:
    """What the batches of a segment contain, and what is wrong with them.

    `first_leader_epoch` is that of the first batch with a leader epoch; -1 if no batch has one.
    """

    contents: SegmentContents
    offset_positions: OffsetPositions
    first_leader_epoch: int = -1
    largest_leader_epoch: int = -1
    findings: tuple[FileFinding, ...] = ()


# By the kernels


def verified_by_kernels(file: SegmentToVerify) -> VerifiedSegment | None:
    """Return what a segment contains if nothing is wrong with it, else None. Batches of magic 0 and 1 give None too.

    Reads every byte and checks what `verify.verify_segment` checks, except the leader epochs against other segments.
    """
    contents = SegmentContents(base_offset=file.base_offset, tombstones=0, null_keys=0)
    offset_positions = OffsetPositions()
    first_epoch = last_epoch = -1
    try:
        for run, tombstones, null_keys in _verified_runs(file):
            table = run.table
            counted = contents_of_table(table, file.base_offset, start_position=run.start_position)
            contents += replace(counted, tombstones=tombstones, null_keys=null_keys)
            offset_positions.extend(table, run.start_position)
            epochs = table[table[:, c.EPOCH] >= 0, c.EPOCH]
            if len(epochs):
                first_epoch = int(epochs[0]) if first_epoch < 0 else first_epoch
                last_epoch = int(epochs[-1])
    except (KcompactError, UnconfirmedError):
        return None
    return VerifiedSegment(
        contents=contents,
        offset_positions=offset_positions,
        first_leader_epoch=first_epoch,
        largest_leader_epoch=last_epoch,  # The kernels confirm that epochs do not fall.
    )


def _verified_runs(file: SegmentToVerify) -> Iterator[tuple[VerifiedRun, int, int]]:
    """Yield the batches of a file, run by run, with their tombstones and their records without a key.

    Raises UnconfirmedError, KcompactError.
    """
    memory_bytes = file.memory_bytes // available_cores()
    buffers = Buffers(memory_bytes)
    end_offset = c.MAX_OFFSET if file.end_offset is None else file.end_offset
    for run in confirmed_runs(file.log, base_offset=file.base_offset, end_offset=end_offset, memory_bytes=memory_bytes):
        yield (run, *_checked_records(run, buffers, file.log))


def _checked_records(run: VerifiedRun, buffers: Buffers, file: LogFile) -> tuple[int, int]:
    """Return the tombstones and the records without a key in some batches. Control records are not counted.

    Raises UnconfirmedError if a record cannot be read, or if the max timestamp of a batch is not that of its records;
    CorruptDataError for a marker or compressed data.
    """
    buffer, table, position = run.buffer, run.table, run.start_position
    is_control = are_control(table)
    for number in np.flatnonzero(is_control).tolist():
        read_marker(run.batch(number, file), file=str(file))
    batch_facts = np.empty((len(table), 3), np.int64)
    for first, end, inflated in inflated_runs(buffer, table, buffers, file=str(file), start_position=position):
        _, _, code = kernels.verify_records(buffer, inflated, table, first, end, batch_facts)
        if code != c.DONE:
            raise UnconfirmedError
    if not (batch_facts[:, 2] == table[:, c.MAX_TIMESTAMP]).all():
        raise UnconfirmedError
    return int(batch_facts[~is_control, 0].sum()), int(batch_facts[~is_control, 1].sum())
