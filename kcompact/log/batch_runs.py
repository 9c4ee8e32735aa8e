"""The batches of a log file, read by the kernels, and by the definition where those are unsure or turned off.

`runs_and_batches` verifies them, `runs_and_headers` reads only the headers. The kernels read as far as they can
(`verified_runs`, `header_runs`). From the first batch that they do not confirm on, the definitions do the work, which
are `segment_reader.verified_batches` and `segment_reader.headers`, and raise the detailed error. numpy is only imported
for the arrays of a run: it takes as long to load as a plan of a small log directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kcompact import kernels
from kcompact.format.batch import Batch, Header, read_header
from kcompact.format.limits import DEFAULT_MEMORY_BYTES, most_batch_bytes
from kcompact.kernels import columns as c
from kcompact.log.files import LogFile, OpenFile
from kcompact.log.segment_reader import headers, verified_batches

if TYPE_CHECKING:
    from kcompact.kernels import Bytes, Column, Table

TABLE_ROWS = 16_384
_SCANNED_BYTES = 64 << 10
WINDOW_BYTES = 8 << 20


class UnconfirmedError(Exception):
    """The kernels cannot confirm a batch. It is damaged, has magic 0 or 1, or needs a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRun:
    """Consecutive batches that were verified, valid until the next run.

    `data` u8[n] begins with the first of them, at `start_position` of the file. The first `count` rows of `rows`
    i64[m, COLUMNS] are the batches, with positions that count from there. `epoch` is the greatest leader epoch so far.
    """

    data: memoryview
    rows: memoryview
    count: int
    epoch: int
    start_position: int

    @property
    def buffer(self) -> Bytes:
        """The bytes as an array."""
        import numpy as np

        return np.frombuffer(self.data, np.uint8)

    @property
    def table(self) -> Table:
        """The batches as a table i64[count, COLUMNS]."""
        import numpy as np

        return np.asarray(self.rows)[: self.count]

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return int(self.rows[self.count - 1, c.LAST_OFFSET]) + 1

    @property
    def end_position(self) -> int:
        """The position in the file after the last batch."""
        last = self.count - 1
        return self.start_position + int(self.rows[last, c.POSITION] + self.rows[last, c.SIZE])

    def batch_offset_at(self, offset: int) -> int:
        """Return the base offset of the first batch that ends at or above an offset below `next_offset`."""
        row = int(self.table[:, c.LAST_OFFSET].searchsorted(offset))
        return int(self.rows[row, c.BASE_OFFSET])

    def batch(self, row: Column, file: LogFile) -> Batch:
        """Return the batch of a row."""
        start = int(row[c.POSITION])
        data = self.data[start : start + int(row[c.SIZE])]
        position = self.start_position + start
        return Batch(position, read_header(data, file=str(file), position=position), data)


def runs_and_batches(
    file: LogFile,
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
        with suppress(UnconfirmedError):
            for run in verified_runs(
                file,
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
        file,
        base_offset=next_offset,
        end_offset=end_offset,
        start_position=position,
        end_position=end_position,
        epoch=epoch,
        holds_large=False,
    )


class HeaderRun(NamedTuple):
    """The headers of so many consecutive batches, in the first rows of `rows` i64[m, COLUMNS]."""

    rows: memoryview
    batches: int


def runs_and_headers(file: LogFile, *, end_position: int | None = None) -> Iterator[HeaderRun | tuple[int, Header]]:
    """Yield the headers of a file up to a position, by default its end: runs of the kernels, then those of `headers`.

    Raises CorruptBatchError, RefusedError, StorageError.
    """
    if not kernels.in_use():
        yield from headers(file, end_position=end_position)
        return
    position = 0
    with file.open() as opened:
        end = opened.size_bytes if end_position is None else end_position
        for run in header_runs(opened, 0, end):
            if run.batches:
                last = run.batches - 1
                position = int(run.rows[last, c.POSITION] + run.rows[last, c.SIZE])
                yield run
    if position < end:
        yield from headers(file, start_position=position, end_position=end)


def tables_and_headers(file: LogFile, *, end_position: int) -> Iterator[Table | tuple[int, Header]]:
    """Yield what `runs_and_headers` does, with tables i64[n, COLUMNS] of at least one row in place of the runs."""
    for part in runs_and_headers(file, end_position=end_position):
        if isinstance(part, HeaderRun):
            import numpy as np

            yield np.asarray(part.rows)[: part.batches]
        else:
            yield part


# By the kernels alone


def verified_runs(
    file: LogFile,
    *,
    base_offset: int,
    end_offset: int,
    start_position: int = 0,
    end_position: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[VerifiedRun]:
    """Yield the batches between two positions of a file, with the checks of `segment_reader.verified_batches`.

    At most `memory_bytes` are held for a batch. Raises UnconfirmedError, RefusedError, StorageError.
    """
    position, next_offset, epoch = start_position, base_offset, -1
    with file.open() as opened:
        end = opened.size_bytes if end_position is None else end_position
        # For small files smaller arrays: the kernel clears the memory of large ones two MiB at a time.
        window = memoryview(bytearray(min(WINDOW_BYTES, max(0, end - position))))
        table = _new_table(len(window))
        while position < end:
            data = window[: min(len(window), end - position)]
            if opened.read_into(data, position) < len(data):
                raise UnconfirmedError
            window_position, code = position, c.FULL
            while code == c.FULL:
                rest = data[position - window_position :]
                count, _, epoch, code = kernels.parse_batches(rest, len(rest), next_offset, end_offset, epoch, table)
                run = VerifiedRun(data=rest, rows=table, count=count, epoch=epoch, start_position=position)
                yield run
                if count:
                    position, next_offset = run.end_position, run.next_offset
            if position == window_position:
                window = _window_for_batch(data, min(end - position, most_batch_bytes(memory_bytes)))


def header_runs(opened: OpenFile, position: int, end_position: int) -> Iterator[HeaderRun]:
    """Yield the headers of the batches between two positions of a file.

    Stops without an error at the first malformed batch or batch of format 0 or 1. Raises StorageError.
    """
    scratch, code = memoryview(bytearray(_SCANNED_BYTES)), c.FULL
    while code == c.FULL:
        table = _new_table(end_position - position)
        descriptor = opened.descriptor_of(position, end_position)
        count, position, code = kernels.scan_headers(descriptor, position, end_position, scratch, table)
        yield HeaderRun(table, count)


def _new_table(size_bytes: int) -> memoryview:
    """Return a table for the batches of so many bytes, or for TABLE_ROWS of them."""
    rows = min(TABLE_ROWS, 1 + max(0, size_bytes) // c.HEADER_BYTES)
    return memoryview(bytearray(8 * rows * c.COLUMNS)).cast("q", (rows, c.COLUMNS))


def _window_for_batch(data: memoryview, most_bytes: int) -> memoryview:
    """Return a window that holds the batch at the start of `data`, which is too small for the batch.

    Raises UnconfirmedError if the batch has more than `most_bytes`, or is no batch.
    """
    batch_bytes = int.from_bytes(data[8:12], "big", signed=True) + 12
    if not len(data) < batch_bytes <= most_bytes:
        raise UnconfirmedError
    return memoryview(bytearray(batch_bytes))
