"""lz4: the part of the LZ4 frame format 1.5.1 that Kafka reads. Rules: Lz4BlockOutputStream, Lz4BlockInputStream.

    magic number | flags | block size | [content size] | header checksum | blocks | 4 zero bytes | [content checksum]

A block is a length (little-endian; the top bit means "stored uncompressed") and its bytes, then a checksum if the
flags say so. All checksums are xxHash-32; the header has only one byte of it. Bytes behind the end are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator

from kcompact.format.codec.stream import DamagedStreamError, InflatedBytes, call_library, take
from kcompact.values import dataclass

_MAGIC = bytes.fromhex("04224d18")
_STORED_BIT = 0x80000000
_HEADER_CHECKSUM_POSITION = 6

_FLAG_INDEPENDENT_BLOCKS, _FLAG_BLOCK_CHECKSUMS, _FLAG_CONTENT_SIZE, _FLAG_CONTENT_CHECKSUM = 0x20, 0x10, 0x08, 0x04
_RESERVED_FLAGS = 0x03
_ONE_LITERAL = 0x10
"""The least token of a block with a byte in it."""
_RESERVED_BLOCK_SIZE_BITS = 0x8F


@dataclass(frozen=True, slots=True, kw_only=True)
class _FrameHeader:
    length: int
    max_block_bytes: int
    has_block_checksums: bool
    has_content_checksum: bool


_KAFKA_START = _MAGIC + bytes.fromhex("60 40 82")
"""The start of each frame of Kafka's writer: independent blocks of 64 KiB, no checksums, no content size."""
_KAFKA_HEADER = _FrameHeader(
    length=len(_KAFKA_START), max_block_bytes=1 << 16, has_block_checksums=False, has_content_checksum=False
)


def compress(data: bytes | memoryview, *, magic: int) -> bytes:
    """Return `data` as a frame of blocks of 64 KiB. `magic` 0 changes the header checksum."""
    import lz4.frame

    frame: bytes = lz4.frame.compress(
        bytes(data),
        compression_level=0,  # the fast compressor, which Kafka's "level 9" also selects
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    if magic > 0:
        return frame
    # Clients of magic 0 include the magic number in the checksum (KAFKA-3160).
    checksum = _header_checksum(frame[:_HEADER_CHECKSUM_POSITION])
    return frame[:_HEADER_CHECKSUM_POSITION] + checksum + frame[_HEADER_CHECKSUM_POSITION + 1 :]


def decompress(source: memoryview, output: InflatedBytes, *, verify_header: bool) -> None:
    """Inflate the blocks of one frame into `output`. Raises DamagedStreamError.

    The frame ends at the end mark, or at the first block that inflates to no bytes. The content checksum must be
    there but is not verified. Rule: Lz4BlockInputStream.readBlock.
    """
    import lz4.block

    header = _read_header(source, verify=verify_header)
    for block, is_stored, _ in _blocks(source, header):
        if is_stored:
            piece = bytes(block)
        else:
            piece = call_library(lz4.block.decompress, block, uncompressed_size=header.max_block_bytes)
        if not piece:
            return
        output.add(piece)


def stream_end(source: memoryview) -> int:
    """Return where the frame ends that `decompress` inflates. Raises DamagedStreamError."""
    header = _read_header(source, verify=False)
    end = header.length
    for block, is_stored, end in _blocks(source, header):
        if len(block) == 1 and not is_stored and block[0] < _ONE_LITERAL:
            return end  # The only block that inflates to no bytes.
    return end + 4 + (4 if header.has_content_checksum else 0)


def _blocks(source: memoryview, header: _FrameHeader) -> Iterator[tuple[memoryview, bool, int]]:
    """Yield each block of a frame, whether it is stored uncompressed, and where it ends. Raises DamagedStreamError."""
    position = header.length
    while True:
        word = int.from_bytes(take(source, position, 4), "little")
        length, is_stored = word & ~_STORED_BIT, bool(word & _STORED_BIT)
        if length == 0:
            take(source, position + 4, 4 if header.has_content_checksum else 0)
            return
        if length > header.max_block_bytes:
            raise DamagedStreamError(f"a block of {length:,} bytes is longer than the frame allows")
        block = take(source, position + 4, length)
        position += 4 + length
        if header.has_block_checksums:
            _verify_block(block, take(source, position, 4))
            position += 4
        yield block, is_stored, position


def _read_header(source: memoryview, *, verify: bool) -> _FrameHeader:
    """Return the frame header. Raises DamagedStreamError. Rule: Lz4BlockInputStream.readHeader."""
    if source[: len(_KAFKA_START)] == _KAFKA_START:
        return _KAFKA_HEADER
    if take(source, 0, _HEADER_CHECKSUM_POSITION)[: len(_MAGIC)] != _MAGIC:
        raise DamagedStreamError("no lz4 magic number")
    flags, block_size_byte = source[4], source[5]
    if flags >> 6 != 1:
        raise DamagedStreamError(f"lz4 frame version {flags >> 6}")
    if not flags & _FLAG_INDEPENDENT_BLOCKS:
        raise DamagedStreamError("its blocks depend on each other, and Kafka reads only independent blocks")
    if flags & _RESERVED_FLAGS or block_size_byte & _RESERVED_BLOCK_SIZE_BITS:
        raise DamagedStreamError("reserved bits of the lz4 frame header are set")
    if block_size_byte >> 4 < 4:
        raise DamagedStreamError(f"unknown block size {block_size_byte >> 4} in the lz4 frame header")
    # The content size is skipped: no declared size is trusted.
    descriptor_end = _HEADER_CHECKSUM_POSITION + (8 if flags & _FLAG_CONTENT_SIZE else 0)
    stored = take(source, descriptor_end, 1)
    if verify and stored != _header_checksum(source[len(_MAGIC) : descriptor_end]):
        raise DamagedStreamError("the checksum of the lz4 frame header is wrong")
    return _FrameHeader(
        length=descriptor_end + 1,
        max_block_bytes=1 << (2 * (block_size_byte >> 4) + 8),
        has_block_checksums=bool(flags & _FLAG_BLOCK_CHECKSUMS),
        has_content_checksum=bool(flags & _FLAG_CONTENT_CHECKSUM),
    )


def _verify_block(block: memoryview, checksum: memoryview) -> None:
    import xxhash

    if xxhash.xxh32_intdigest(block) != int.from_bytes(checksum, "little"):
        raise DamagedStreamError("the checksum of an lz4 block is wrong")


def _header_checksum(descriptor: bytes | memoryview) -> bytes:
    """Return the one byte that lz4 keeps of the xxHash-32 of a frame descriptor."""
    import xxhash

    return bytes((xxhash.xxh32_intdigest(descriptor) >> 8 & 0xFF,))
