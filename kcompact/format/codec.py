"""gzip, snappy, lz4 and zstd as Kafka frames them; the only importer of those libraries.

A library does the compression, this module only the framing around it: which header, which block size, what
may follow the end. `compress` writes what Kafka's writers write. `decompress` takes what Kafka's readers
take and is bounded: it counts what comes out, never believes a size that the bytes declare, and answers
hostile bytes with `CorruptBatchError` and nothing else.

What follows the end of a stream is the codec's affair in Kafka (`DefaultRecordBatch.ensureNoneRemaining`
only asks the stream for one more byte), and here too:

    gzip    another member if a member's header follows, else ignored
    snappy  one to three bytes are ignored, more must be a block or a repeated header
    lz4     ignored
    zstd    must be another frame

The libraries are imported when first used: reading headers must not pay for four of them.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from kcompact.errors import CorruptBatchError

if TYPE_CHECKING:
    import zstandard

MAX_INFLATED_BYTES = 256 * 1024 * 1024
"""The most a batch may inflate to, unless the caller says otherwise."""


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes. Rule: CompressionType."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, data: bytes | memoryview, *, magic: int = 2) -> bytes:
    """Return a section of records as Kafka 4.3.1's writer stores it, at the level its cleaner uses.

    `magic` is that of the batch: the header checksum of lz4 is another one in magic 0.
    Rule: Compression.wrapForOutput of each codec; default levels.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _gzip(data)
        case Codec.SNAPPY:
            return _xerial(data)
        case Codec.LZ4:
            return _lz4_frame(data, magic=magic)
        case Codec.ZSTD:
            return _zstd(data)


def decompress(
    codec: Codec,
    data: bytes | memoryview,
    *,
    file: str,
    position: int | None = None,
    max_bytes: int = MAX_INFLATED_BYTES,
    magic: int = 2,
) -> bytes:
    """Return a section of records inflated, everything up to the end of its stream.

    `file` and `position` only name the batch in errors. Raises `CorruptBatchError` when the bytes are not a
    stream that Kafka reads, or when more than `max_bytes` come out. `magic` 0 leaves lz4's header checksum
    unverified, as Kafka does. Rule: Compression.wrapForInput of each codec.
    """
    output = _Output(max_bytes)
    source = memoryview(data)
    try:
        match codec:
            case Codec.NONE:
                output.add(bytes(source))
            case Codec.GZIP:
                _gunzip(source, output)
            case Codec.SNAPPY:
                _unsnappy(source, output)
            case Codec.LZ4:
                _unlz4(source, output, verify_header=magic > 0)
            case Codec.ZSTD:
                _unzstd(source, output)
    except _DamagedError as error:
        problem = f"cannot inflate the {codec.name.lower()} section: {error}"
        raise CorruptBatchError(file=file, position=position, problem=problem) from error.__cause__
    return output.joined()


P = ParamSpec("P")
T = TypeVar("T")
_TOO_SHORT = "the stream ended prematurely"


class _DamagedError(Exception):
    """What is wrong with a stream; `decompress` says where."""


class _Output:
    """The inflated pieces, and a refusal to hold more than the cap."""

    def __init__(self, max_bytes: int) -> None:
        self._pieces: list[bytes] = []
        self.max_bytes = max_bytes
        self.room = max_bytes

    def add(self, piece: bytes) -> None:
        self.room -= len(piece)
        if self.room < 0:
            self.refuse()
        self._pieces.append(piece)

    def refuse(self) -> None:
        raise _DamagedError(f"it inflates to more than {self.max_bytes:,} bytes")

    def joined(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


def _library(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a library call returns; any exception of its own means damaged bytes."""
    try:
        return call(*args, **kwargs)
    except Exception as error:  # each library has its own classes, and they differ between releases
        raise _DamagedError(str(error) or type(error).__name__) from error


def _take(source: memoryview, start: int, count: int) -> memoryview:
    """Return the next `count` bytes. Raises when there are fewer."""
    taken = source[start : start + count]
    if len(taken) < count:
        raise _DamagedError(_TOO_SHORT)
    return taken


# --- gzip ---

_GZIP_HEADER = bytes.fromhex(
    "1f8b08 00 00000000 00 ff"
)  # no flags, no time, operating system unknown (JDK 16 and later)
_GZIP_TRAILER = struct.Struct("<II")
_GZIP_LEVEL = 6
_GZIP_HCRC, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 0x02, 0x04, 0x08, 0x10
_GZIP_IGNORED_BYTES = 18
"""A tail no longer than a header and a trailer is not looked at (GZIPInputStream.readTrailer)."""
_PIECE_BYTES = 1024 * 1024
_SLICE_BYTES = 16 * 1024


def _gzip(data: bytes | memoryview) -> bytes:
    deflater = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflater.compress(data) + deflater.flush()
    return _GZIP_HEADER + body + _GZIP_TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _gunzip(source: memoryview, output: _Output) -> None:
    data = bytes(source)
    position = _inflate_member(data, _gzip_header_end(data, 0), output)
    while len(data) - position > _GZIP_IGNORED_BYTES:
        try:
            body = _gzip_header_end(data, position)
        except _DamagedError:
            return
        position = _inflate_member(data, body, output)


def _gzip_header_end(data: bytes, start: int) -> int:
    """Return where a member's header ends. Reserved flags are ignored. Rule: GZIPInputStream.readHeader."""
    view = memoryview(data)
    fixed = _take(view, start, 10)
    if fixed[:3] != _GZIP_HEADER[:3]:
        raise _DamagedError("no gzip header")
    flags, end = fixed[3], start + 10
    if flags & _GZIP_EXTRA:
        end += 2 + int.from_bytes(_take(view, end, 2), "little")
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            end = data.find(b"\0", end) + 1
            if end == 0:
                raise _DamagedError(_TOO_SHORT)
    if flags & _GZIP_HCRC:
        if int.from_bytes(_take(view, end, 2), "little") != zlib.crc32(view[start:end]) & 0xFFFF:
            raise _DamagedError("the checksum of the gzip header is wrong")
        end += 2
    return end


def _inflate_member(data: bytes, start: int, output: _Output) -> int:
    """Inflate the member whose header ends at `start`; return where its trailer ends.

    The input goes in by small slices: the library copies what it has not used, and thousands of small
    members must not each copy the whole rest.
    """
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    position, checksum, length = start, 0, 0
    while not inflater.eof:
        given = inflater.unconsumed_tail
        if not given:
            given = data[position : position + _SLICE_BYTES]
            position += len(given)
        room = min(_PIECE_BYTES, output.room + 1)
        piece = _library(inflater.decompress, given, room)
        if not given and not piece and not inflater.eof:
            raise _DamagedError(_TOO_SHORT)
        output.add(piece)
        checksum, length = zlib.crc32(piece, checksum), length + len(piece)
    end = position - len(inflater.unused_data)
    trailer = _take(memoryview(data), end, _GZIP_TRAILER.size)
    if _GZIP_TRAILER.unpack(trailer) != (checksum, length & 0xFFFFFFFF):
        raise _DamagedError("the gzip trailer does not match")
    return end + _GZIP_TRAILER.size


# --- snappy ---

_XERIAL_MAGIC = bytes.fromhex("82534e4150505900")
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest version that can read it
_XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_MAGIC_HEAD = int.from_bytes(_XERIAL_MAGIC[:4], "big", signed=True)
_BLOCK_LENGTH = struct.Struct(">i")
_SNAPPY_MAX_RATIO = 22  # the best that a snappy element does is 64 bytes out of 3


def _xerial(data: bytes | memoryview) -> bytes:
    import snappy

    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = snappy.compress(bytes(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(source: memoryview, output: _Output) -> None:
    if len(source) < len(_XERIAL_HEADER) or source[:8] != _XERIAL_MAGIC:
        _unsnappy_block(source, output)
        return
    for block in _xerial_blocks(source):
        _unsnappy_block(block, output)


def _xerial_blocks(source: memoryview) -> Iterator[memoryview]:
    """Yield the raw blocks. The first header's version is not looked at.

    Rule: SnappyInputStream.hasNextChunk of snappy-java.
    """
    position = len(_XERIAL_HEADER)
    while len(source) - position >= _BLOCK_LENGTH.size:
        (length,) = _BLOCK_LENGTH.unpack_from(source, position)
        if length == _XERIAL_MAGIC_HEAD:
            header = _take(source, position, len(_XERIAL_HEADER))
            if header[:8] != _XERIAL_MAGIC:
                raise _DamagedError("a repeated header is damaged")
            if int.from_bytes(header[8:12], "big", signed=True) < 1:
                raise _DamagedError("a repeated header has an unknown version")
            position += len(_XERIAL_HEADER)
            continue
        if length < 0:
            raise _DamagedError(f"a block declares {length} bytes")
        yield _take(source, position + _BLOCK_LENGTH.size, length)
        position += _BLOCK_LENGTH.size + length


def _unsnappy_block(block: memoryview, output: _Output) -> None:
    import snappy

    declared = _snappy_declared_bytes(block)
    # The library allocates what the block declares, so what it declares must be possible, and wanted.
    if declared > _SNAPPY_MAX_RATIO * len(block):
        raise _DamagedError(f"a block of {len(block)} bytes declares {declared:,}")
    if declared > output.room:
        output.refuse()
    if declared == 0 and len(block) > 1:
        raise _DamagedError("an empty block has elements")
    piece = bytes(_library(snappy.uncompress, bytes(block))) if declared else b""
    if len(piece) != declared:
        raise _DamagedError(f"a block declares {declared:,} bytes and holds {len(piece):,}")
    output.add(piece)


def _snappy_declared_bytes(block: memoryview) -> int:
    declared = 0
    for index, byte in enumerate(block[:5]):
        declared |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return declared
    raise _DamagedError("a block declares no length")


# --- lz4 ---

_LZ4_MAGIC = bytes.fromhex("04224d18")
_LZ4_STORED = 0x80000000
_LZ4_HEADER_CHECKSUM_POSITION = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lz4Header:
    length: int
    max_block_bytes: int
    block_size_byte: int
    has_block_checksums: bool
    has_content_checksum: bool


_LZ4_USUAL_START = _LZ4_MAGIC + bytes.fromhex("60 40 82")
"""How Kafka's writer begins a frame: blocks of 64 KiB that do not depend on each other, no checksums, no size."""
_LZ4_USUAL_HEADER = _Lz4Header(
    length=len(_LZ4_USUAL_START),
    max_block_bytes=1 << 16,
    block_size_byte=0x40,
    has_block_checksums=False,
    has_content_checksum=False,
)


def _lz4_frame(data: bytes | memoryview, *, magic: int) -> bytes:
    import lz4.frame

    frame: bytes = lz4.frame.compress(
        bytes(data),
        compression_level=0,  # the fast compressor: that is what Kafka's "level 9" selects
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    if magic > 0:
        return frame
    # Clients of magic 0 took the checksum over the magic number too (KAFKA-3160).
    checksum = _header_checksum(frame[:_LZ4_HEADER_CHECKSUM_POSITION])
    return frame[:_LZ4_HEADER_CHECKSUM_POSITION] + checksum + frame[_LZ4_HEADER_CHECKSUM_POSITION + 1 :]


def _unlz4(source: memoryview, output: _Output, *, verify_header: bool) -> None:
    """Rule: Lz4BlockInputStream. An empty block ends the stream there, as an end mark does."""
    import lz4.block

    header = _lz4_header(source, verify=verify_header)
    position = header.length
    while True:
        word = int.from_bytes(_take(source, position, 4), "little")
        length, is_stored = word & ~_LZ4_STORED, bool(word & _LZ4_STORED)
        if length == 0:
            _take(source, position + 4, 4 if header.has_content_checksum else 0)
            return
        if length > header.max_block_bytes:
            raise _DamagedError(f"a block of {length:,} bytes is longer than the frame allows")
        block = _take(source, position + 4, length)
        position += 4 + length
        if header.has_block_checksums:
            _verify_lz4_block(header, source[position - 4 - length : position], _take(source, position, 4))
            position += 4
        if is_stored:
            piece = bytes(block)
        else:
            piece = _library(lz4.block.decompress, block, uncompressed_size=header.max_block_bytes)
        if not piece:
            return
        output.add(piece)


def _lz4_header(source: memoryview, *, verify: bool) -> _Lz4Header:
    if source[: len(_LZ4_USUAL_START)] == _LZ4_USUAL_START:
        return _LZ4_USUAL_HEADER
    if _take(source, 0, 6)[:4] != _LZ4_MAGIC:
        raise _DamagedError("no lz4 magic number")
    flags, block_size_byte = source[4], source[5]
    if flags >> 6 != 1:
        raise _DamagedError(f"lz4 frame version {flags >> 6}")
    if not flags & 0x20:
        raise _DamagedError("its blocks depend on each other")
    if flags & 0x03 or block_size_byte & 0x8F:
        raise _DamagedError("reserved bits of the lz4 frame header are set")
    if block_size_byte >> 4 < 4:
        raise _DamagedError(f"block size {block_size_byte >> 4}")
    descriptor_end = 6 + (8 if flags & 0x08 else 0)  # the content size is skipped: it is never believed
    stored = _take(source, descriptor_end, 1)
    if verify and stored != _header_checksum(bytes(source[4:descriptor_end])):
        raise _DamagedError("the checksum of the lz4 frame header is wrong")
    return _Lz4Header(
        length=descriptor_end + 1,
        max_block_bytes=1 << (2 * (block_size_byte >> 4) + 8),
        block_size_byte=block_size_byte,
        has_block_checksums=bool(flags & 0x10),
        has_content_checksum=bool(flags & 0x04),
    )


def _verify_lz4_block(header: _Lz4Header, block: memoryview, checksum: memoryview) -> None:
    """Let the library check one block, in a frame of its own that has block checksums and nothing else."""
    import lz4.frame

    descriptor = bytes((0x70, header.block_size_byte))
    frame = _LZ4_MAGIC + descriptor + _header_checksum(descriptor) + bytes(block) + bytes(checksum) + bytes(4)
    _library(lz4.frame.decompress, frame)


def _header_checksum(descriptor: bytes) -> bytes:
    """Return the one byte that lz4 keeps of the xxHash-32 of a frame descriptor."""
    return bytes((_xxh32_short(descriptor) >> 8 & 0xFF,))


_XXH_PRIME_2, _XXH_PRIME_3, _XXH_PRIME_4, _XXH_PRIME_5 = 2246822519, 3266489917, 668265263, 374761393
_XXH_PRIME_1 = 2654435761


def _xxh32_short(data: bytes) -> int:
    """Return xxHash-32 with seed 0 of fewer than 16 bytes, which is all that a frame descriptor has."""
    assert len(data) < 16
    mask = 0xFFFFFFFF
    value = (_XXH_PRIME_5 + len(data)) & mask
    words_end = len(data) // 4 * 4
    for start in range(0, words_end, 4):
        value = (value + int.from_bytes(data[start : start + 4], "little") * _XXH_PRIME_3) & mask
        value = (value << 17 | value >> 15) & mask
        value = value * _XXH_PRIME_4 & mask
    for byte in data[words_end:]:
        value = (value + byte * _XXH_PRIME_5) & mask
        value = (value << 11 | value >> 21) & mask
        value = value * _XXH_PRIME_1 & mask
    value = (value ^ value >> 15) * _XXH_PRIME_2 & mask
    value = (value ^ value >> 13) * _XXH_PRIME_3 & mask
    return value ^ value >> 16


# --- zstd ---

_ZSTD_LEVEL = 3
_ZSTD_MAX_WINDOW_BYTES = 1 << 27  # the library's own limit, and so Kafka's
_ZSTD_MAGIC = bytes.fromhex("28b52ffd")
_ZSTD_SKIPPABLE_TAIL = bytes.fromhex("2a4d18")
_ZSTD_LIKELY_BYTES = 1 << 17
_of_thread = threading.local()
_ZSTD_RLE_BLOCK, _ZSTD_RESERVED_BLOCK = 1, 3


def _zstd(data: bytes | memoryview) -> bytes:
    import zstandard

    stream = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=False, write_content_size=False).compressobj()
    # Kafka's buffered writer flushes before it closes: the last block of a frame is therefore an empty one.
    return (
        stream.compress(data)
        + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        + stream.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)
    )


def _unzstd(source: memoryview, output: _Output) -> None:
    import zstandard

    # The library's bounded reader does not tell a stream that ends from one that breaks off: look first.
    position = _zstd_frame_end(source, 0) if source else 0
    decompressor = _zstd_decompressor()
    if position == len(source) > 0:
        # Nearly always one frame, of a batch that is not large.
        likely_bytes = min(output.room, max(_ZSTD_LIKELY_BYTES, 8 * len(source)))
        with contextlib.suppress(zstandard.ZstdError):
            # What the frame declares would be allocated at once.
            if zstandard.frame_content_size(source) <= likely_bytes:
                output.add(decompressor.decompress(source, max_output_size=likely_bytes))
                return
    while position < len(source):
        position = _zstd_frame_end(source, position)
    reader = decompressor.stream_reader(bytes(source), read_across_frames=True)
    while piece := _library(reader.read, min(_PIECE_BYTES, output.room + 1)):
        output.add(piece)


def _zstd_decompressor() -> zstandard.ZstdDecompressor:
    """Return this thread's own: making one takes as long as inflating a small batch."""
    import zstandard

    if not hasattr(_of_thread, "decompressor"):
        _of_thread.decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
    found: zstandard.ZstdDecompressor = _of_thread.decompressor
    return found


def _zstd_frame_end(source: memoryview, start: int) -> int:
    """Return where the frame that begins at `start` ends, by its block headers. Rule: RFC 8878, 3.1."""
    magic = _take(source, start, 4)
    if magic[0] & 0xF0 == 0x50 and bytes(magic[1:]) == _ZSTD_SKIPPABLE_TAIL:
        length = int.from_bytes(_take(source, start + 4, 4), "little")
        _take(source, start + 8, length)
        return start + 8 + length
    if magic != _ZSTD_MAGIC:
        raise _DamagedError("no zstd frame")
    descriptor = _take(source, start + 4, 1)[0]
    is_single_segment = bool(descriptor & 0x20)
    content_size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    dictionary_id_bytes = (0, 1, 2, 4)[descriptor & 0x03]
    position = start + 5 + (not is_single_segment) + dictionary_id_bytes + content_size_bytes
    is_last = False
    while not is_last:
        header = int.from_bytes(_take(source, position, 3), "little")
        is_last, block_type, length = bool(header & 1), header >> 1 & 3, header >> 3
        if block_type == _ZSTD_RESERVED_BLOCK:
            raise _DamagedError("a zstd block of a reserved type")
        stored = 1 if block_type == _ZSTD_RLE_BLOCK else length
        _take(source, position + 3, stored)
        position += 3 + stored
    checksum_bytes = 4 if descriptor & 0x04 else 0
    _take(source, position, checksum_bytes)
    return position + checksum_bytes
