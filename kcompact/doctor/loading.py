"""What a broker does with bytes that are no batch when it loads a log: of the last segment, or of a `.log.swap`.

It looks for the end of the log from the last index entry on. A batch size that is too small ends the whole broker. A
batch that is longer than the file only ends the log: the broker appends after its bytes, and no consumer gets past
them. Rules: `LogSegment.readNextOffset`, `FileLogInputStream.nextBatch`, `LogLoader.load`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from kcompact.doctor.findings import Finding, Kind
from kcompact.format.names import Suffix, Temporary
from kcompact.log.directory import PartitionLog
from kcompact.log.files import open_regular, read_at

UP_TO_MAGIC_BYTES = 17
OVERHEAD_BYTES = 12
"""Offset and size of a batch, before everything that the size counts."""
LEAST_RECORD_BYTES = 14


def broken_end(file: Path, position: int) -> Finding | None:
    """Return what a broker does with the bytes from a position of a last segment on; None if it finds batches there.

    Raises RefusedError, StorageError.
    """
    with open_regular(file) as descriptor:
        end = os.fstat(descriptor).st_size
        while position < end:
            prefix = read_at(descriptor, min(UP_TO_MAGIC_BYTES, end - position), position, path=file)
            size = struct.unpack_from(">i", prefix, 8)[0] if len(prefix) >= OVERHEAD_BYTES else LEAST_RECORD_BYTES
            # A broker does not look at the last bytes, if they are too few for a header.
            if size < LEAST_RECORD_BYTES and position < end - UP_TO_MAGIC_BYTES:
                return _unloadable(file, position, size)
            if size < LEAST_RECORD_BYTES or len(prefix) < UP_TO_MAGIC_BYTES or position + OVERHEAD_BYTES + size > end:
                problem = f"{end - position:,} bytes at the end are no whole batch: a broker appends after them, and "
                problem += "consumers do not get past them"
                return Finding(kind=Kind.TORN_END, directory=file.parent, file=file, position=position, problem=problem)
            position += OVERHEAD_BYTES + size
    return None


def swap_findings(log: PartitionLog) -> Iterator[Finding]:
    """Yield the `.log.swap` files that a broker fails to load. Raises RefusedError, StorageError."""
    for name in log.leftovers:
        if name.endswith(f"{Suffix.LOG}{Temporary.SWAP}"):
            found = broken_end(log.directory / name, 0)
            if found is not None and found.kind is Kind.UNLOADABLE_SEGMENT:
                yield found


def _unloadable(file: Path, position: int, size: int) -> Finding:
    least = f"smaller than minimum record overhead ({LEAST_RECORD_BYTES})"
    return Finding(
        kind=Kind.UNLOADABLE_SEGMENT,
        directory=file.parent,
        file=file,
        position=position,
        problem=f"a batch of {size} bytes: a broker cannot find the end of the log, and ends",
        broker_says=f"Found record size {size} {least} in file {file}",
    )
