"""snappy in the xerial framing of snappy-java: a header of 16 bytes, then blocks behind their compressed length.

One to three bytes behind the last block are ignored. Four or more must be a block or a repeated header. A section
without the xerial header is a single raw block. Rules: SnappyOutputStream, SnappyInputStream of snappy-java.

The library only inflates: it compresses to other bytes than the libsnappy of Kafka's snappy-java.
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
_HASH_FACTOR = 0x1E35A7BD
_HASH_SHIFT = 18
_LEAST_SLOTS, _MOST_SLOTS = 1 << 8, 1 << 14
_MARGIN_BYTES = 15


def compress(data: bytes | memoryview) -> bytes:
    """Return `data` in xerial framing, in blocks of 32 KiB."""
    parts = [_HEADER]
    for start in range(0, len(data), _BLOCK_BYTES):
        block = _raw_block(bytes(data[start : start + _BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _raw_block(data: bytes) -> bytes:
    """Return a block of at most 64 KiB as libsnappy 1.1.10 writes it: its length, then literals and copies.

    A table has the last position of four bytes, by their hash. The longer nothing repeats, the fewer positions are
    tried. No copy begins in the last 15 bytes, because libsnappy loads whole words. Rule: internal::CompressFragment.
    """
    slots = _LEAST_SLOTS
    while slots < min(len(data), _MOST_SLOTS):
        slots *= 2
    table = [0] * slots
    out = _varint(len(data))
    literal, position, last = 0, 1, len(data) - _MARGIN_BYTES
    skip = 32
    while position + (skip >> 5) <= last:
        earlier = _earlier(data, position, table)
        if data[earlier : earlier + 4] != data[position : position + 4]:
            position += skip >> 5
            skip += skip >> 5
            continue
        out += _literal(data[literal:position])
        while data[earlier : earlier + 4] == data[position : position + 4]:
            length = _match_length(data, earlier, position)
            out += _copies(position - earlier, length)
            position += length
            if position >= last:
                return bytes(out + _literal(data[position:]))
            _earlier(data, position - 1, table)
            earlier = _earlier(data, position, table)
        literal, position, skip = position, position + 1, 32
    return bytes(out + _literal(data[literal:]))


def _varint(value: int) -> bytearray:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return out


def _earlier(data: bytes, position: int, table: list[int]) -> int:
    """Return the last position of the four bytes, or of others with their hash, and set it to `position`.

    The shift fits a table of 16,384 slots and stays the same for a smaller one. Rule: TableEntry.
    """
    word = int.from_bytes(data[position : position + 4], "little")
    slot = (word * _HASH_FACTOR & 0xFFFFFFFF) >> _HASH_SHIFT & (len(table) - 1)
    earlier, table[slot] = table[slot], position
    return earlier


def _match_length(data: bytes, earlier: int, later: int) -> int:
    length = 0
    while later + length + 256 <= len(data) and (
        data[earlier + length : earlier + length + 256] == data[later + length : later + length + 256]
    ):
        length += 256
    while later + length < len(data) and data[earlier + length] == data[later + length]:
        length += 1
    return length


def _literal(content: bytes) -> bytes:
    """Return the element with these bytes, nothing for none. Rule: EmitLiteral."""
    last = len(content) - 1
    if last < 60:
        return bytes((last << 2,)) + content if content else b""
    return (bytes((60 << 2, last)) if last < 1 << 8 else struct.pack("<BH", 61 << 2, last)) + content


def _copies(distance: int, length: int) -> bytes:
    """Return the elements that copy `length` bytes, 4 or more, from `distance` before. Rule: EmitCopy."""
    out = bytearray()
    while length:
        # What is left must not be shorter than 4 bytes.
        step = min(length, 64) if length <= 64 or length >= 68 else 60
        if step < 12 and distance < 2048:
            out += bytes((distance >> 8 << 5 | (step - 4) << 2 | 1, distance & 0xFF))
        else:
            out += struct.pack("<BH", (step - 1) << 2 | 2, distance)
        length -= step
    return bytes(out)


def decompress(source: memoryview, output: InflatedBytes) -> None:
    """Inflate xerial blocks, or one raw block, into `output`. Raises DamagedStreamError."""
    if len(source) < len(_HEADER) or source[: len(_MAGIC)] != _MAGIC:
        _inflate_block(source, output)
        return
    for block, _ in _xerial_blocks(source):
        _inflate_block(block, output)


def stream_end(source: memoryview) -> int:
    """Return where the last block ends. Raises DamagedStreamError."""
    if len(source) < len(_HEADER) or source[: len(_MAGIC)] != _MAGIC:
        return len(source)
    return max((end for _, end in _xerial_blocks(source)), default=len(_HEADER))


def _xerial_blocks(source: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Yield the raw blocks, and where each ends. The version in the first header is not checked.

    Rule: SnappyInputStream.hasNextChunk.
    """
    position = len(_HEADER)
    while len(source) - position >= _BLOCK_LENGTH.size:
        (length,) = _BLOCK_LENGTH.unpack_from(source, position)
        if length == _MAGIC_AS_LENGTH:
            _verify_repeated_header(take(source, position, len(_HEADER)))
            position += len(_HEADER)
            continue
        if length < 0:
            raise DamagedStreamError(f"a block declares {length} bytes")
        block = take(source, position + _BLOCK_LENGTH.size, length)
        position += _BLOCK_LENGTH.size + length
        yield block, position


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
