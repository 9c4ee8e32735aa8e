"""The batches of one `.log` file, from one position to another.

`batches` reads batches with their records, `headers` only the headers. `verified_batches` also checks checksums,
offsets and leader epochs, so its output can be trusted as input of a cleaning.
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
    path: Path, *, start_position: int = 0, end_position: int | None = None, window_bytes: int = WINDOW_BYTES
) -> Iterator[Batch]:
    """Yield the batches that tile a log file from one position to another, their bytes included.

    A batch stays valid after the next one is asked for. Raises CorruptBatchError where the bytes do not tile.
    """
    with open_regular(path) as descriptor:
        end = os.fstat(descriptor).st_size if end_position is None else end_position
        position = start_position
        want = window_bytes
        while position < end:
            data = read_at(descriptor, min(want, end - position), position, path=path)
            if not data:
                raise CorruptBatchError(
                    file=str(path), position=position, problem=f"the file ends {end - position} bytes before it should"
                )
            is_last = position + len(data) >= end or len(data) < min(want, end - position)
            complete = len(data) if is_last else _complete_bytes(data, file=str(path), position=position)
            if complete == 0:
                want = _size_of_first(data)  # One batch is larger than the window: read it whole.
                continue
            yield from parse_batches(memoryview(data)[:complete], file=str(path), position=position)
            position += complete
            want = window_bytes
        if position > end:
            raise CorruptBatchError(
                file=str(path), position=position, problem=f"no batch ends at position {end}, where one should"
            )


def _complete_bytes(data: bytes, *, file: str, position: int) -> int:
    at = 0
    while len(data) - at >= HEADER_BYTES:
        size = read_header(memoryview(data)[at : at + HEADER_BYTES], file=file, position=position + at).size_bytes
        if at + size > len(data):
            break
        at += size
    return at


def _size_of_first(data: bytes) -> int:
    return int.from_bytes(data[8:12], "big") + 12


def headers(path: Path, *, start_position: int = 0, end_position: int | None = None) -> Iterator[tuple[int, Header]]:
    """Yield position and header of each batch, without reading the records. Raises CorruptBatchError."""
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
    path: Path, *, base_offset: int, end_offset: int, start_position: int = 0, end_position: int | None = None
) -> Iterator[Batch]:
    """Yield the batches of a segment, each one checked, so that nothing doubtful is taken for data.

    Besides the checksum: offsets rise, lie in [base_offset, end_offset), and leader epochs do not fall. Those lie
    outside the checksum, and a broker looks at neither. Raises CorruptBatchError.
    """
    previous_offset, epoch = base_offset - 1, -1
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
