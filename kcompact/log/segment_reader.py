"""The batches of one `.log` file between two positions.

`batches` reads whole batches, `headers` only the headers. `verified_batches` also checks checksums, offsets and leader
epochs; a cleaning reads its input with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kcompact.errors import CorruptBatchError
from kcompact.format.batch import HEADER_BYTES, Batch, Header, parse_batches, read_header, verify_crc
from kcompact.log.files import open_regular, read_at

WINDOW_BYTES = 8 << 20


def batches(
    path: str | os.PathLike[str],
    *,
    start_position: int = 0,
    end_position: int | None = None,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[Batch]:
    """Yield the batches of a log file from `start_position` to `end_position`, the end of the file by default.

    Reads windows of `window_bytes`; a batch that is larger is read whole. Each batch keeps its bytes, so it stays valid
    after the next one is yielded. Raises CorruptBatchError where the bytes are not one batch after another,
    RefusedError, StorageError.
    """
    path = Path(path)
    with open_regular(path) as descriptor:
        end = os.fstat(descriptor).st_size if end_position is None else end_position
        position = start_position
        read_bytes = window_bytes
        while position < end:
            data = read_at(descriptor, min(read_bytes, end - position), position, path=path)
            if not data:
                raise CorruptBatchError(
                    file=str(path), position=position, problem=f"the file ends {end - position} bytes too early"
                )
            is_last = position + len(data) >= end or len(data) < min(read_bytes, end - position)
            complete = len(data) if is_last else _complete_bytes(data, file=str(path), position=position)
            if complete == 0:
                read_bytes = _size_of_first(data)  # The batch is larger than the window.
                continue
            yield from parse_batches(memoryview(data)[:complete], file=str(path), position=position)
            position += complete
            read_bytes = window_bytes
        if position > end:
            raise CorruptBatchError(
                file=str(path), position=position, problem=f"no batch ends at the expected position {end}"
            )


def _complete_bytes(data: bytes, *, file: str, position: int) -> int:
    """Return the total size of the complete batches at the start of `data`."""
    end = 0
    while len(data) - end >= HEADER_BYTES:
        header = read_header(memoryview(data)[end : end + HEADER_BYTES], file=file, position=position + end)
        if end + header.size_bytes > len(data):
            break
        end += header.size_bytes
    return end


def _size_of_first(data: bytes) -> int:
    """Return the size of the first batch: its length field plus the 12 bytes up to the end of that field."""
    return int.from_bytes(data[8:12], "big") + 12


def headers(path: Path, *, start_position: int = 0, end_position: int | None = None) -> Iterator[tuple[int, Header]]:
    """Yield the position and the header of each batch; the records are not read.

    Raises CorruptBatchError, RefusedError, StorageError.
    """
    with open_regular(path) as descriptor:
        end = os.fstat(descriptor).st_size if end_position is None else end_position
        position = start_position
        while position < end:
            prefix = read_at(descriptor, min(HEADER_BYTES, end - position), position, path=path)
            header = read_header(prefix, file=str(path), position=position)
            if position + header.size_bytes > end:
                raise CorruptBatchError(
                    file=str(path),
                    position=position,
                    offset=header.base_offset,
                    problem=f"a batch of {header.size_bytes} bytes, but only {end - position} are left in the file",
                )
            yield position, header
            position += header.size_bytes


def verified_batches(
    path: Path,
    *,
    base_offset: int,
    end_offset: int,
    start_position: int = 0,
    end_position: int | None = None,
    epoch: int = -1,
) -> Iterator[Batch]:
    """Yield the batches of a segment after checking each one.

    Checked: the checksum; offsets rise and are in [`base_offset`, `end_offset`); leader epochs do not decrease from
    `epoch` on (-1 is unknown). Base offset and leader epoch are outside the checksum, and a broker checks neither.
    Raises CorruptBatchError, RefusedError, StorageError.
    """
    previous_offset = base_offset - 1
    for batch in batches(path, start_position=start_position, end_position=end_position):
        header = batch.header
        problem = ""
        if header.base_offset <= previous_offset:
            problem = f"base offset {header.base_offset} after offset {previous_offset}"
        elif header.last_offset >= end_offset:
            problem = f"last offset {header.last_offset}, but the next segment starts at {end_offset}"
        elif -1 < header.partition_leader_epoch < epoch:
            problem = f"leader epoch {header.partition_leader_epoch} after epoch {epoch}"
        if problem:
            raise CorruptBatchError(file=str(path), position=batch.position, offset=header.base_offset, problem=problem)
        verify_crc(batch, file=str(path))
        previous_offset, epoch = header.last_offset, max(epoch, header.partition_leader_epoch)
        yield batch
