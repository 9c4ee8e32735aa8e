"""Checksums of what leaves the memory of a process: blocks in files, values that Spark carries between processes.

CRC-32C detects every altered byte, and all changes within 32 adjacent bits. In this process the
checksum of a block is kept apart from the block, so a file that takes the place of another is detected too. The blocks
of Spark's shuffle carry theirs inside: one in the place of another is found by the counts (`clean.accounting`).
"""

from __future__ import annotations

import errno
import pickle
import struct
from pathlib import Path
from typing import Any, NamedTuple

from kcompact.errors import KcompactError, ScratchDamagedError, ScratchSpaceError, storage_error
from kcompact.format.checksum import crc32c

_SEAL = struct.Struct(">QI")


class Seal(NamedTuple):
    """The size and the CRC-32C of some bytes."""

    size_bytes: int
    crc32c: int

    @classmethod
    def of(cls, data: bytes | memoryview) -> Seal:
        """Return the seal of `data`."""
        return cls(len(data), crc32c(data))

    def checked(self, data: bytes, *, source: str) -> bytes:
        """Return `data`, read from `source`. Raises ScratchDamagedError if it differs from what was sealed."""
        if len(data) != self.size_bytes:
            raise ScratchDamagedError(
                source=source, problem=f"{self.size_bytes:,} bytes were written, {len(data):,} were read"
            )
        if Seal.of(data) != self:
            raise ScratchDamagedError(source=source, problem="the bytes read differ from the bytes written")
        return data


def sealed(value: object) -> bytes:
    """Return a value as bytes, behind their seal."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return _SEAL.pack(*Seal.of(data)) + data


def opened(data: bytes, *, source: str) -> Any:
    """Return the value that `sealed` was called with. Raises ScratchDamagedError if the bytes have changed since."""
    if len(data) <= _SEAL.size:
        raise ScratchDamagedError(source=source, problem=f"only {len(data)} bytes were read")
    seal = Seal(*_SEAL.unpack_from(data))
    return pickle.loads(seal.checked(data[_SEAL.size :], source=source))


def scratch_error(path: str | Path, problem: OSError) -> KcompactError:
    """Return the error to raise when a scratch file cannot be written or read."""
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return ScratchSpaceError(path=path, why=problem.strerror or "")
    return storage_error(Path(path), problem)
