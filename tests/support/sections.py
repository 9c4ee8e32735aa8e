"""Compressed sections of all forms, sound and damaged, from a `random.Random`."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Callable

import lz4.block
import lz4.frame
import snappy
import zstandard

from kcompact.format.codec import Codec, compress

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]


def content(chance: random.Random, most_bytes: int = 150_000) -> bytes:
    """Return bytes that compress well, a little, or not at all; seldom many."""
    size = chance.choice([0, 1, chance.randrange(100), chance.randrange(5_000), chance.randrange(most_bytes)])
    match chance.randrange(4):
        case 0:
            return chance.randbytes(size)
        case 1:
            piece = chance.randbytes(chance.randrange(1, 40))
            return (piece * (size // len(piece) + 1))[:size]
        case 2:
            words = [chance.randbytes(chance.randrange(1, 12)) for _ in range(20)]
            return b"".join(chance.choice(words) for _ in range(size // 6))[:size]
    return chance.randbytes(size // 2) + bytes(size - size // 2)


KINDS = ("random", "text", "repeated", "records", "runs")
_SIZES = (0, 1, 2, 4, 13, *range(14, 19), 63, 255, 256, 257, 1023, 4095, 4096, 4097, 8191, 8192, 16_383, 16_384, 16_385)
_SIZES_OF_BLOCKS = (32_767, 32_768, 32_769, 65_535, 65_536, 65_537, 98_304, 131_073, 200_000)


def contents_of(kind: str) -> list[bytes]:
    """Return 40 contents that compress alike: of sizes around those of tables and blocks of codecs, and of others."""
    chance = random.Random(kind)
    sizes = (*_SIZES, *_SIZES_OF_BLOCKS, *(chance.randrange(40_000) for _ in range(8)))
    return [_content_of(kind, chance, size) for size in sizes]


def _content_of(kind: str, chance: random.Random, size: int) -> bytes:
    """Return `size` bytes, which are cut from pieces."""
    words = [bytes(chance.choices(b"etaoinshrdlu", k=chance.randrange(1, 9))) for _ in range(300)]
    piece = chance.randbytes(chance.randrange(1, 300))
    found = bytearray()
    while len(found) < size:
        match kind:
            case "random":
                found += chance.randbytes(size)
            case "text":
                found += chance.choice(words) + b" "
            case "repeated":
                found += piece
            case "records":
                key = b"user-%06d" % chance.randrange(100_000)
                found += b"\x70\0%b\x02\x14%b\x40" % (len(found).to_bytes(4), key) + chance.randbytes(32) + b"\0"
            case "runs":
                found += bytes((chance.randrange(4),)) * chance.choice([1, 3, 4, 11, 12, 60, 64, 65, 67, 68, 69, 3_000])
    return bytes(found[:size])


def _lz4_frame(data: bytes, chance: random.Random) -> bytes:
    options = [
        {},
        {"store_size": True},
        {"block_checksum": True},
        {"content_checksum": True},
        {"block_linked": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX256KB, "content_checksum": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX1MB, "block_checksum": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX4MB},
    ]
    frame: bytes = lz4.frame.compress(data, **{"store_size": False, "block_linked": False, **chance.choice(options)})
    return frame


def _lz4_blocks(data: bytes, chance: random.Random) -> bytes:
    """Return a frame with Kafka's header and blocks of any length, empty ones included."""
    blocks, position = [bytes.fromhex("04224d18604082")], 0
    while position < len(data):
        piece = data[position : position + chance.choice([1, 100, 65_536])]
        position += len(piece)
        packed = lz4.block.compress(piece, store_size=False)
        is_stored = chance.random() < 0.5 or len(packed) > 65_536
        block = piece if is_stored else packed
        blocks.append(struct.pack("<I", len(block) | is_stored << 31) + block)
    return b"".join([*blocks, *chance.choice([[], [bytes(4)], [bytes(4), b"tail"], [b"\1\0\0\0\0"]])])


def _zstd_frame(data: bytes, chance: random.Random) -> bytes:
    level, has_checksum, has_size = chance.choice([-5, 1, 3, 19]), chance.random() < 0.5, chance.random() < 0.5
    compressor = zstandard.ZstdCompressor(level, write_checksum=has_checksum, write_content_size=has_size)
    return compressor.compress(data)


def _zstd_odd_frame(data: bytes, chance: random.Random) -> bytes:
    """Return a frame with another window, with the id of a dictionary, or behind a skippable frame."""
    frame = bytearray(zstandard.ZstdCompressor(write_content_size=False).compress(data))
    match chance.randrange(3):
        case 0:
            frame[5] = chance.choice([0x00, 0x80, 0x87, 0x88, 0x89, 0x90, 0xFF])
        case 1:
            frame[4] |= 1
            frame[6:6] = bytes((chance.choice([0, 0, 7]),))
        case 2:
            frame[:0] = bytes.fromhex("532a4d1803000000") + b"abc"
    return bytes(frame)


def _gzip_member(data: bytes, chance: random.Random) -> bytes:
    """Return a member with a checksum of its header, extra bytes, a name and a comment, or some of these."""
    flags = chance.randrange(32)
    extra, text = struct.pack("<H", 3) + b"abc", b"name\0"
    header = bytes((0x1F, 0x8B, 8, flags, *chance.randbytes(6)))
    header += extra * (flags >> 2 & 1) + text * (flags >> 3 & 1) + text * (flags >> 4 & 1)
    header += struct.pack("<H", zlib.crc32(header) & 0xFFFF) * (flags >> 1 & 1)
    return header + gzip.compress(data)[10:]


def _zstd_stream(data: bytes, chance: random.Random) -> bytes:
    """Return what Kafka's writer makes: it flushes before it closes the frame."""
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    flushed = stream.compress(data) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    return flushed + stream.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)


def _snappy_blocks(data: bytes, chance: random.Random) -> bytes:
    """Return xerial blocks of any length, or one raw block."""
    if chance.random() < 0.4:
        return bytes(snappy.compress(data))
    start = bytes.fromhex("82534e41505059000000000100000001")
    parts, position = [start], 0
    while position < len(data):
        piece = data[position : position + chance.choice([1, 1_000, 32_768, 70_000])]
        position += len(piece)
        block = snappy.compress(piece)
        parts += [struct.pack(">i", len(block)), block]
        if chance.random() < 0.1:
            parts.append(start)
    return b"".join([*parts, chance.choice([b"", b"\1", b"\1\2\3"])])


FORMS: dict[Codec, tuple[Callable[[bytes, random.Random], bytes], ...]] = {
    Codec.GZIP: (lambda data, chance: gzip.compress(data, chance.choice([1, 6, 9])), _gzip_member),
    Codec.SNAPPY: (_snappy_blocks,),
    Codec.LZ4: (_lz4_frame, _lz4_blocks),
    Codec.ZSTD: (_zstd_frame, _zstd_odd_frame, _zstd_stream),
}


def section(codec: Codec, chance: random.Random) -> bytes:
    """Return a sound section: often as Kafka writes it, else in another form, of one stream or several."""
    data = b""
    for _ in range(chance.choice([1, 1, 1, 2])):
        inflated = content(chance)
        data += compress(codec, inflated) if chance.random() < 0.6 else chance.choice(FORMS[codec])(inflated, chance)
    return data


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return a section with up to three changes: cut off, cut out, put in, or another byte."""
    changed = bytearray(data)
    for _ in range(chance.choice([0, 0, 1, 2, 3])):
        # The headers are at the start, so half of the changes are there.
        at = chance.randrange(min(len(changed), chance.choice([24, len(changed)])) + 1)
        match chance.randrange(6):
            case 0:
                del changed[at:]
            case 1:
                del changed[at : at + chance.randrange(1, 9)]
            case 2:
                changed[at:at] = chance.randbytes(chance.randrange(1, 9))
            case _ if at < len(changed):
                changed[at] = chance.choice([0, 0x7F, 0x80, 0xFF, changed[at] ^ 1 << chance.randrange(8)])
    return bytes(changed)
