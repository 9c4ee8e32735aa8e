"""The batches of one `.log` file between two positions.

`batches` yields whole batches, one by one. `verified_runs` and `verified_batches` also check checksums, offsets and
leader epochs. The kernels read runs. From a batch on that they do not confirm (it is damaged, of magic 0 or 1, has
unknown attributes, or is larger than the window) the definition, `verified_batches`, reads some, or raises the detailed
error; then the kernels go on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from kcompact import kernels
from kcompact.errors import CorruptBatchError, KcompactError
from kcompact.format.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    Batch,
    Header,
    computed_crc_of,
    read_header,
    require_crc,
    require_inside,
    verify_crc,
)
from kcompact.format.limits import DEFAULT_MEMORY_BYTES, most_batch_bytes, require_size
from kcompact.kernels import Bytes, Table
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import HeaderTable, new_table
from kcompact.log.files import FileIdentity, LogFile, OpenFile, pieces_of

WINDOW_BYTES = 8 << 20
_FIRST_WINDOW_BYTES = 64 << 10
"""Who looks at the first batches only, reads no more. Each window is twice as large as the one before."""
_DEFINED_BATCHES = 1024
_DEFINED_BYTES = 8 << 20
"""After so many batches, or bytes of them, that the definition has read, the kernels try again."""


def batches(
    file: LogFile | str | os.PathLike[str],
    *,
    start_position: int = 0,
    end_position: int | None = None,
    window_bytes: int = WINDOW_BYTES,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    holds_large: bool = True,
    identity: FileIdentity | None = None,
) -> Iterator[Batch]:
    """Yield the batches of a log file from `start_position` to `end_position`, the end of the file by default.

    Reads windows of at most `window_bytes`; a batch that is larger is read whole if `require_readable` allows it. Each
    batch keeps its bytes, so it stays valid after the next one is yielded. Without `holds_large`, a batch of magic 2
    that is larger than the window has only the bytes of its header; its checksum was verified piece by piece.
    With `identity` the file must be that one.
    Raises CorruptBatchError where the bytes are not one batch after another, RefusedError, LogChangedError,
    StorageError.
    """
    file = file if isinstance(file, LogFile) else LogFile.at(file)
    with file.open(identity=identity) as opened:
        end = opened.size_bytes if end_position is None else end_position
        position, read_bytes = start_position, min(_FIRST_WINDOW_BYTES, window_bytes)
        while position < end:
            wanted = min(read_bytes, end - position)
            data = memoryview(opened.read(wanted, position))
            if not data:
                raise CorruptBatchError(
                    file=str(file), position=position, problem=f"the file ends {end - position} bytes too early"
                )
            left_bytes = end - position if len(data) == wanted else len(data)
            start, incomplete = 0, None
            while start < len(data) and not (len(data) - start < HEADER_BYTES and len(data) < left_bytes):
                header = read_header(data[start : start + HEADER_BYTES], file=str(file), position=position + start)
                require_inside(header, left_bytes - start, file=str(file), position=position + start)
                if start + header.size_bytes > len(data):
                    incomplete = header
                    break
                yield Batch(position + start, header, data[start : start + header.size_bytes])
                start += header.size_bytes
            position += start
            read_bytes = min(2 * read_bytes, window_bytes)
            if start or incomplete is None:
                continue
            if incomplete.size_bytes <= window_bytes:
                read_bytes = max(read_bytes, incomplete.size_bytes)
            elif not holds_large and incomplete.magic == 2:
                pieces = pieces_of(opened, position, position + incomplete.size_bytes)
                computed = computed_crc_of(pieces, magic=incomplete.magic)
                require_crc(computed, incomplete, file=str(file), position=position)
                yield Batch(position, incomplete, data[:HEADER_BYTES])
                position += incomplete.size_bytes
            else:
                require_readable(opened, incomplete, position, file=file, memory_bytes=memory_bytes)
                read_bytes = incomplete.size_bytes


def batch_at(
    file: LogFile, position: int, *, end_position: int | None = None, memory_bytes: int = DEFAULT_MEMORY_BYTES
) -> Batch:
    """Return the batch at a position before the end, with a right checksum. Raises as `batches` and `verify_crc`."""
    batch = next(batches(file, start_position=position, end_position=end_position, memory_bytes=memory_bytes))
    verify_crc(batch, file=str(file))
    return batch


def require_readable(opened: OpenFile, header: Header, position: int, *, file: LogFile, memory_bytes: int) -> None:
    """Raise an error for a batch that may not be read whole: CorruptBatchError, BatchTooLargeError, StorageError.

    A batch that has more bytes than its file has on the disk is mostly a hole, which reads as zeros. It is damaged
    unless its checksum is right: a file system may compress, and a copy may leave out long runs of zeros. The
    checksum is computed without holding the batch.
    """
    size_bytes = header.size_bytes
    if size_bytes > max(opened.stored_bytes, WINDOW_BYTES):
        pieces = pieces_of(opened, position, position + size_bytes)
        if computed_crc_of(pieces, magic=header.magic) != header.crc:
            raise CorruptBatchError(
                file=str(file),
                position=position,
                offset=header.base_offset,
                problem=f"a batch of {size_bytes:,} bytes with a wrong checksum, in a file that has only "
                f"{opened.stored_bytes:,} bytes on the disk: the rest reads as zeros",
            )
    require_size(size_bytes, memory_bytes, file=str(file), position=position, offset=header.base_offset)


def verified_batches(
    file: LogFile,
    *,
    base_offset: int,
    end_offset: int,
    start_position: int = 0,
    end_position: int | None = None,
    epoch: int = -1,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    holds_large: bool = True,
    identity: FileIdentity | None = None,
) -> Iterator[Batch]:
    """Yield the batches of a segment after checking each one.

    Checked: the checksum; offsets rise and are in [`base_offset`, `end_offset`); leader epochs do not decrease from
    `epoch` on (-1 is unknown). Base offset and leader epoch are outside the checksum, and a broker checks neither.
    `holds_large` as for `batches`.
    Raises CorruptBatchError, RefusedError, StorageError.
    """
    previous_offset = base_offset - 1
    unverified_batches = batches(
        file,
        start_position=start_position,
        end_position=end_position,
        memory_bytes=memory_bytes,
        holds_large=holds_large,
        identity=identity,
    )
    for batch in unverified_batches:
        header = batch.header
        problem = ""
        if header.base_offset <= previous_offset:
            problem = f"base offset {header.base_offset} after offset {previous_offset}"
        elif header.last_offset >= end_offset:
            problem = f"last offset {header.last_offset}, but the next segment starts at {end_offset}"
        elif -1 < header.partition_leader_epoch < epoch:
            problem = f"leader epoch {header.partition_leader_epoch} after epoch {epoch}"
        if problem:
            raise CorruptBatchError(file=str(file), position=batch.position, offset=header.base_offset, problem=problem)
        if len(batch.data) == header.size_bytes:  # Of any other, `batches` has verified the checksum.
            verify_crc(batch, file=str(file))
        previous_offset, epoch = header.last_offset, max(epoch, header.partition_leader_epoch)
        yield batch


# Runs of batches


class UnconfirmedError(Exception):
    """The kernels cannot confirm a batch. It is damaged, has magic 0 or 1, or needs a warning."""


class VerifiedRun(NamedTuple):
    """Consecutive batches that were verified, at least one, valid until the next run.

    `buffer` u8[n] begins with the first of them, at `start_position` of the file. The rows of `table` i64[n, COLUMNS]
    are the batches, with positions that count from there. `epoch` is the greatest leader epoch so far. A batch that is
    larger than the window may be a run for itself, and have only the bytes of its header; no kernel may read its
    records.
    """

    buffer: Bytes
    table: Table
    start_position: int
    epoch: int

    @property
    def records(self) -> int:
        """The number of records by the headers."""
        return int(self.table[-1, c.ROW] + self.table[-1, c.RECORDS_COUNT]) if len(self.table) else 0

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return int(self.table[-1, c.LAST_OFFSET]) + 1

    @property
    def end_position(self) -> int:
        """The position in the file after the last batch."""
        return self.start_position + int(self.table[-1, c.POSITION] + self.table[-1, c.SIZE])

    def batch(self, row: int, file: LogFile) -> Batch:
        """Return the batch of a row."""
        start, size_bytes = self.table[row, [c.POSITION, c.SIZE]].tolist()
        data = self.buffer.data[start : start + size_bytes]
        position = self.start_position + start
        return Batch(position, read_header(data[:HEADER_BYTES], file=str(file), position=position), data)


def verified_runs(
    file: LogFile,
    *,
    base_offset: int,
    end_offset: int,
    start_position: int = 0,
    end_position: int,
) -> Iterator[VerifiedRun]:
    """Yield the batches between two positions, with the checks of `verified_batches`, and `holds_large` as False.

    Raises CorruptBatchError, RefusedError, StorageError.
    """
    position, next_offset, epoch = start_position, base_offset, -1
    while position < end_position:
        with suppress(UnconfirmedError):
            for run in confirmed_runs(
                file,
                base_offset=next_offset,
                end_offset=end_offset,
                start_position=position,
                end_position=end_position,
                epoch=epoch,
                memory_bytes=0,
            ):
                yield run
                position, next_offset, epoch = run.end_position, run.next_offset, run.epoch
            return
        for run in _defined_part(file, next_offset, end_offset, position, end_position, epoch):
            yield run
            position, next_offset, epoch = run.end_position, run.next_offset, run.epoch


def _defined_part(
    file: LogFile, base_offset: int, end_offset: int, position: int, end_position: int, epoch: int
) -> Iterator[VerifiedRun]:
    """Yield some batches, read by the definition, and raise the error if one is damaged."""
    run_batches: list[Batch] = []
    try:
        for batch in verified_batches(
            file,
            base_offset=base_offset,
            end_offset=end_offset,
            start_position=position,
            end_position=end_position,
            epoch=epoch,
            holds_large=False,
        ):
            is_held = len(batch.data) == batch.header.size_bytes
            if run_batches and not is_held:
                yield _run_of(run_batches, epoch)
                run_batches = []
            run_batches.append(batch)
            end = batch.position + batch.header.size_bytes
            if not is_held or len(run_batches) == _DEFINED_BATCHES or end - position >= _DEFINED_BYTES:
                break
    except KcompactError:
        if run_batches:
            yield _run_of(run_batches, epoch)
        raise
    if run_batches:
        yield _run_of(run_batches, epoch)


def _run_of(run_batches: list[Batch], epoch: int) -> VerifiedRun:
    """Return batches as a run. `epoch` is the greatest leader epoch before them."""
    start, headers = run_batches[0].position, HeaderTable()
    for each in run_batches:
        headers.append(each.position - start, each.header)
    buffer, table = np.frombuffer(b"".join(each.data for each in run_batches), np.uint8), headers.table()
    return VerifiedRun(buffer, table, start, max(epoch, int(table[:, c.EPOCH].max())))


def confirmed_runs(
    file: LogFile,
    *,
    base_offset: int,
    end_offset: int,
    start_position: int = 0,
    end_position: int | None = None,
    epoch: int = -1,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[VerifiedRun]:
    """Yield what the kernels confirm of the batches between two positions, up to the first batch that they do not.

    At most `memory_bytes`, or the window, are held for a batch. Raises UnconfirmedError, RefusedError, StorageError.
    """
    position, next_offset = start_position, base_offset
    most_bytes = max(WINDOW_BYTES, most_batch_bytes(memory_bytes))
    with file.open() as opened:
        end = opened.size_bytes if end_position is None else end_position
        window = np.empty(min(_FIRST_WINDOW_BYTES, WINDOW_BYTES, max(0, end - position)), np.uint8)
        table = new_table(len(window))
        while position < end:
            data = window[: min(len(window), end - position)]
            if opened.read_into(data.data, position) < len(data):
                raise UnconfirmedError
            window_position, code = position, c.FULL
            while code == c.FULL:
                rest = data[position - window_position :]
                count, _, epoch, code = kernels.parse_batches(rest, len(rest), next_offset, end_offset, epoch, table)
                if count:
                    run = VerifiedRun(rest, table[:count], position, epoch)
                    yield run
                    position, next_offset = run.end_position, run.next_offset
            needed_bytes = 0
            if position == window_position:
                needed_bytes = _bytes_of_first(data, min(end - position, most_bytes))
            next_bytes = max(needed_bytes, min(2 * len(window), WINDOW_BYTES))
            if len(window) < next_bytes and position < end:
                window = np.empty(min(next_bytes, end - position), np.uint8)
                table = new_table(len(window))


def _bytes_of_first(data: Bytes, most_bytes: int) -> int:
    """Return the size of the batch at the start of `data`, which is too small for the batch.

    Raises UnconfirmedError if the batch has more than `most_bytes`, or is no batch.
    """
    batch_bytes = int.from_bytes(data[8:12].tobytes(), "big", signed=True) + LOG_OVERHEAD_BYTES
    if not len(data) < batch_bytes <= most_bytes:
        raise UnconfirmedError
    return batch_bytes
