"""The batches of one `.log` file between two positions.

`batches` reads whole batches, `headers` only the headers. `verified_batches` also checks checksums, offsets and leader
epochs; a cleaning reads its input with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice

from kcompact.errors import CorruptBatchError, KcompactError
from kcompact.format.batch import (
    HEADER_BYTES,
    Batch,
    Header,
    computed_crc_of,
    parse_batches,
    read_header,
    require_crc,
    require_inside,
    verify_crc,
)
from kcompact.format.limits import DEFAULT_MEMORY_BYTES, require_size
from kcompact.log.files import FileIdentity, LogFile, OpenFile, pieces_of

WINDOW_BYTES = 8 << 20


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

    Reads windows of `window_bytes`; a batch that is larger is read whole if `require_readable` allows it. Each batch
    keeps its bytes, so it stays valid after the next one is yielded. Without `holds_large`, a batch of magic 2 that is
    larger than the window has only the bytes of its header; its checksum was verified piece by piece.
    With `identity` the file must be that one.
    Raises CorruptBatchError where the bytes are not one batch after another, RefusedError, LogChangedError,
    StorageError.
    """
    file = file if isinstance(file, LogFile) else LogFile.at(file)
    with file.open(identity=identity) as opened:
        end = opened.size_bytes if end_position is None else end_position
        position = start_position
        read_bytes = window_bytes
        while position < end:
            data = opened.read(min(read_bytes, end - position), position)
            if not data:
                raise CorruptBatchError(
                    file=str(file), position=position, problem=f"the file ends {end - position} bytes too early"
                )
            is_last = position + len(data) >= end or len(data) < min(read_bytes, end - position)
            complete = len(data) if is_last else _complete_bytes(data, file=str(file), position=position)
            if complete == 0:
                header = read_header(data[:HEADER_BYTES], file=str(file), position=position)
                require_inside(header, end - position, file=str(file), position=position)
                if not holds_large and header.magic == 2:
                    pieces = pieces_of(opened, position, position + header.size_bytes)
                    computed = computed_crc_of(pieces, magic=header.magic)
                    require_crc(computed, header, file=str(file), position=position)
                    yield Batch(position, header, memoryview(data)[:HEADER_BYTES])
                    position += header.size_bytes
                    continue
                require_readable(opened, header, position, file=file, memory_bytes=memory_bytes)
                read_bytes = header.size_bytes  # The batch is larger than the window.
                continue
            yield from parse_batches(memoryview(data)[:complete], file=str(file), position=position)
            position += complete
            read_bytes = window_bytes
        if position > end:
            raise CorruptBatchError(
                file=str(file), position=position, problem=f"no batch ends at the expected position {end}"
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


def headers(file: LogFile, *, start_position: int = 0, end_position: int | None = None) -> Iterator[tuple[int, Header]]:
    """Yield the position and the header of each batch; the records are not read.

    Raises CorruptBatchError, RefusedError, StorageError.
    """
    with file.open() as opened:
        end = opened.size_bytes if end_position is None else end_position
        position = start_position
        while position < end:
            prefix = opened.read(min(HEADER_BYTES, end - position), position)
            header = read_header(prefix, file=str(file), position=position)
            require_inside(header, end - position, file=str(file), position=position)
            yield position, header
            position += header.size_bytes


def end_by_headers(file: LogFile, base_offset: int, *, end_position: int | None = None) -> int:
    """Return the end offset of a segment, or of its batches before a position.

    Raises CorruptBatchError, RefusedError, StorageError.
    """
    end_offset = base_offset
    for _, header in headers(file, end_position=end_position):
        end_offset = header.next_offset
    return end_offset


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
    found = batches(
        file,
        start_position=start_position,
        end_position=end_position,
        memory_bytes=memory_bytes,
        holds_large=holds_large,
        identity=identity,
    )
    for batch in found:
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


_SAMPLED_FILES = 64
_SAMPLED_BATCHES = 16


def mean_batch_bytes(files: Iterable[tuple[LogFile, int]]) -> int:
    """Return the mean size of a batch in files with these sizes, judged by the first batches of the newest ones.

    The oldest were cleaned most often, so their batches are not typical. Damage and old formats only make the estimate
    worse, and an unreadable file is not an error here. Returns all bytes where no batch is found.
    """
    known = list(files)
    sampled_bytes = batches = 0
    for file, size_bytes in known[-_SAMPLED_FILES:]:
        try:
            for _, header in islice(headers(file, end_position=size_bytes), _SAMPLED_BATCHES):
                sampled_bytes += header.size_bytes
                batches += 1
        except (KcompactError, OSError):
            continue
    return sampled_bytes // batches if batches else sum(size for _, size in known)
