"""gzip, snappy, lz4 and zstd as Kafka frames them. Only this folder imports the compression libraries.

A library compresses and inflates; one file per codec does the framing around it: header, block size, trailer, and
which bytes may follow the end. The four share one module:

    stream  the inflated bytes with their cap, and the error of a damaged stream

`compress` writes what Kafka's writers write. `decompress` accepts what Kafka's readers accept. It counts the inflated
bytes and never trusts a size that the input declares, so hostile input raises `CorruptBatchError` or
`BatchTooLargeError` and nothing else.

Kafka leaves the bytes behind the end of a stream to the codec (`DefaultRecordBatch.ensureNoneRemaining` only asks the
stream for one more byte):

    gzip    another member if a member's header follows, else ignored
    snappy  one to three bytes are ignored, more must be a block or a repeated header
    lz4     ignored
    zstd    must be another frame

The kernels inflate and compress whole runs of batches, with the same libraries (`kernels.libraries`). What is not in
the usual form, or damaged, they leave to `decompress`.

The libraries are imported at first use, so commands that read only headers do not load them.
"""

from __future__ import annotations

from contextlib import suppress
from enum import IntEnum
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kcompact.errors import BatchTooLargeError, CorruptBatchError
from kcompact.format.codec import gzip, lz4, snappy, zstd
from kcompact.format.codec.stream import DamagedStreamError, InflatedBytes, TooLongError
from kcompact.format.limits import DEFAULT_MEMORY_BYTES, most_batch_bytes

Sizes = TypeVar("Sizes", int, "npt.NDArray[np.int64]")


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes. Rule: CompressionType."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


SLOW = (Codec.GZIP, Codec.ZSTD)
"""The codecs that take several times as long to compress records as the rest of rewriting them does."""


def compress(codec: Codec, data: bytes | memoryview, *, magic: int = 2) -> bytes:
    """Return a section of records as Kafka's writer stores it, at the level its cleaner uses.

    `magic` is the format version of the batch: in magic 0, lz4 has another header checksum.
    Rule: Compression.wrapForOutput of each codec, at its default level.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return gzip.compress(data)
        case Codec.SNAPPY:
            return snappy.compress(data)
        case Codec.LZ4:
            return lz4.compress(data, magic=magic)
        case Codec.ZSTD:
            return zstd.compress(data)


def most_compressed_bytes(size_bytes: Sizes) -> Sizes:
    """Return the most bytes that `compress` makes of `size_bytes` bytes, with any codec; of each element of an array.

    snappy grows most: 32 bytes and a sixth for each block of 32 KiB, and the block's length. zlib grows by an eighth
    and a 64th at most, lz4 and zstd by a few bytes for each block.
    """
    return size_bytes + size_bytes // 6 + size_bytes // 900 + 128


def decompress(
    codec: Codec,
    data: bytes | memoryview,
    *,
    file: str,
    position: int | None = None,
    max_bytes: int = most_batch_bytes(DEFAULT_MEMORY_BYTES),
    magic: int = 2,
) -> bytes:
    """Return a section of records inflated, up to the end of its stream.

    `file` and `position` name the batch in the error. Raises `CorruptBatchError` when the bytes are not a stream that
    Kafka reads, `BatchTooLargeError` when they inflate to more than `max_bytes`. `magic` 0 leaves lz4's header checksum
    unverified, as Kafka does. Rule: Compression.wrapForInput of each codec.
    """
    output = InflatedBytes(max_bytes)
    source = memoryview(data)
    try:
        _inflate(codec, source, output, magic=magic)
    except DamagedStreamError as error:
        problem = f"cannot inflate the {codec.name.lower()} section: {error}"
        raise CorruptBatchError(file=file, position=position, problem=problem) from error.__cause__
    except TooLongError as error:
        problem = f"a {codec.name.lower()} section of {len(source):,} bytes {error}"
        raise BatchTooLargeError(
            file=file, position=position, offset=None, problem=problem, needed_bytes=None
        ) from None
    return output.joined()


def decompress_until_damage(codec: Codec, data: bytes | memoryview, *, max_bytes: int, magic: int = 2) -> bytes:
    """Return what a section inflates to before the bytes that are no stream, and before `max_bytes` are exceeded.

    A stream whose bytes are wrong can inflate to wrong bytes first.
    """
    output = InflatedBytes(max_bytes)
    with suppress(DamagedStreamError, TooLongError):
        _inflate(codec, memoryview(data), output, magic=magic, until_damage=True)
    return output.joined()


def stream_end(codec: Codec, data: bytes | memoryview, *, max_bytes: int) -> int:
    """Return where the stream of a section ends that `decompress` inflates. Kafka's reader ignores what follows.

    Raises CorruptBatchError and BatchTooLargeError for a section that does not inflate.
    """
    source = memoryview(data)
    try:
        match codec:
            case Codec.GZIP:
                return gzip.decompress(source, InflatedBytes(max_bytes))
            case Codec.SNAPPY:
                return snappy.stream_end(source)
            case Codec.LZ4:
                return lz4.stream_end(source)
            case _:  # Everything is a record, or a frame.
                return len(source)
    except (DamagedStreamError, TooLongError) as error:
        raise CorruptBatchError(file="", position=None, problem=str(error)) from error


def _inflate(
    codec: Codec, source: memoryview, output: InflatedBytes, *, magic: int, until_damage: bool = False
) -> None:
    """Inflate a section into `output`. Raises DamagedStreamError, TooLongError."""
    match codec:
        case Codec.NONE:
            output.add(bytes(source))
        case Codec.GZIP:
            gzip.decompress(source, output)
        case Codec.SNAPPY:
            snappy.decompress(source, output)
        case Codec.LZ4:
            lz4.decompress(source, output, verify_header=magic > 0 and not until_damage)
        case Codec.ZSTD:
            zstd.decompress(source, output, checks_frames=not until_damage)
