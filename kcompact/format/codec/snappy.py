"""snappy in the xerial framing of snappy-java: a header of 16 bytes, then blocks behind their compressed length.

One to three bytes behind the last block are ignored. Four or more must be a block or a repeated header. A section
without the xerial header is a single raw block. Rules: SnappyOutputStream, SnappyInputStream of snappy-java.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from kcompact.format.codec.stream import DamagedStreamError, InflatedBytes, call_library, take

_MAGIC = bytes.fromhex("82534e4150505900")
_HEADER = _MAGIC + struct.pack(">ii", 1, 1)  # version, lowest version that can read it
_BLOCK_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
_MAGIC_AS_LENGTH = int.from_bytes(_MAGIC[:4], "big", signed=True)
_MAX_RATIO = 22
"""Upper bound of inflated bytes per compressed byte: a snappy element of 3 bytes copies at most 64."""
_MAX_LENGTH_BYTES = 5


def compress(data: bytes | memoryview) -> bytes:
    """Return `data` in xerial framing, in blocks of 32 KiB."""
    import snappy

    parts = [_HEADER]
    for start in range(0, len(data), _BLOCK_BYTES):
        block = snappy.compress(bytes(data[start : start + _BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def decompress(source: memoryview, output: InflatedBytes) -> None:
    """Inflate xerial blocks, or one raw block, into `output`. Raises DamagedStreamError."""
    if len(source) < len(_HEADER) or source[: len(_MAGIC)] != _MAGIC:
        _inflate_block(source, output)
        return
    for block in _xerial_blocks(source):
        _inflate_block(block, output)


def _xerial_blocks(source: memoryview) -> Iterator[memoryview]:
    """Yield the raw blocks. The version in the first header is not checked. Rule: SnappyInputStream.hasNextChunk."""
    position = len(_HEADER)
    while len(source) - position >= _BLOCK_LENGTH.size:
        (length,) = _BLOCK_LENGTH.unpack_from(source, position)
        if length == _MAGIC_AS_LENGTH:
            _verify_repeated_header(take(source, position, len(_HEADER)))
            position += len(_HEADER)
            continue
        if length < 0:
            raise DamagedStreamError(f"a block declares {length} bytes")
        yield take(source, position + _BLOCK_LENGTH.size, length)
        position += _BLOCK_LENGTH.size + length


def _verify_repeated_header(header: memoryview) -> None:
    if header[: len(_MAGIC)] != _MAGIC:
        raise DamagedStreamError("a repeated header is damaged")
    if int.from_bytes(header[8:12], "big", signed=True) < 1:
        raise DamagedStreamError("a repeated header has an unknown version")


def _inflate_block(block: memoryview, output: InflatedBytes) -> None:
    import snappy

    declared = _declared_bytes(block)
    # The library allocates the declared size at once, so the size must be possible and within the cap.
    if declared > _MAX_RATIO * len(block):
        raise DamagedStreamError(f"a block of {len(block)} bytes declares {declared:,} inflated bytes")
    if declared > output.remaining_bytes:
        output.raise_too_long()
    if declared == 0 and len(block) > 1:
        raise DamagedStreamError("an empty block has elements")
    piece = bytes(call_library(snappy.uncompress, bytes(block))) if declared else b""
    if len(piece) != declared:
        raise DamagedStreamError(f"a block declares {declared:,} inflated bytes and has {len(piece):,}")
    output.add(piece)


def _declared_bytes(block: memoryview) -> int:
    """Return the inflated size that a raw block begins with: a varint of at most 5 bytes."""
    declared = 0
    for index, byte in enumerate(block[:_MAX_LENGTH_BYTES]):
        declared |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return declared
    raise DamagedStreamError("a block declares no length")
