"""gzip: a header of 10 bytes, deflate data, and a trailer with CRC-32 and length. Source: RFC 1952, GZIPInputStream.

A stream is one member or several. The bytes after a member are another member if a valid member header follows,
else the reader ignores them.
"""

from __future__ import annotations

import struct
import zlib

from kcompact.format.codec.stream import TOO_SHORT, DamagedStreamError, InflatedBytes, call_library, take

LEVEL = 6
"""The default of `compression.gzip.level`."""

# No flags, no modification time; operating system "unknown", as the JDK writes since release 16.
_HEADER = bytes.fromhex("1f8b08 00 00000000 00 ff")
_MAGIC_BYTES = 3
_TRAILER = struct.Struct("<II")
_FLAG_HCRC, _FLAG_EXTRA, _FLAG_NAME, _FLAG_COMMENT = 0x02, 0x04, 0x08, 0x10
_IGNORED_TAIL_BYTES = 18
"""GZIPInputStream.readTrailer ignores a tail that is no longer than a header and a trailer."""
_INPUT_SLICE_BYTES = 16 * 1024


def compress(data: bytes | memoryview) -> bytes:
    """Return one gzip member with `data`."""
    deflater = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflater.compress(data) + deflater.flush()
    return _HEADER + body + _TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)


def decompress(source: memoryview, output: InflatedBytes) -> int:
    """Inflate all members into `output`. Return where the last one ends; what follows is ignored.

    Raises DamagedStreamError. Rule: GZIPInputStream.readTrailer.
    """
    data = bytes(source)
    position = _inflate_member(data, _header_end(data, 0), output)
    while len(data) - position > _IGNORED_TAIL_BYTES:
        try:
            body = _header_end(data, position)
        except DamagedStreamError:
            return position
        position = _inflate_member(data, body, output)
    return position


def _header_end(data: bytes, start: int) -> int:
    """Return where a member's header ends. Reserved flags are ignored. Rule: GZIPInputStream.readHeader."""
    view = memoryview(data)
    fixed = take(view, start, len(_HEADER))
    if fixed[:_MAGIC_BYTES] != _HEADER[:_MAGIC_BYTES]:
        raise DamagedStreamError("no gzip header")
    flags, end = fixed[3], start + len(_HEADER)
    if flags & _FLAG_EXTRA:
        end += 2 + int.from_bytes(take(view, end, 2), "little")
    for flag in (_FLAG_NAME, _FLAG_COMMENT):
        if flags & flag:
            end = data.find(b"\0", end) + 1
            if end == 0:
                raise DamagedStreamError(TOO_SHORT)
    if flags & _FLAG_HCRC:
        if int.from_bytes(take(view, end, 2), "little") != zlib.crc32(view[start:end]) & 0xFFFF:
            raise DamagedStreamError("the checksum of the gzip header is wrong")
        end += 2
    return end


def _inflate_member(data: bytes, start: int, output: InflatedBytes) -> int:
    """Inflate the member whose header ends at `start`. Return where its trailer ends.

    The input is passed in small slices, because the library copies the input that it has not used: with a single
    large input, each of thousands of small members would copy all bytes behind it.
    """
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    position, checksum, length = start, 0, 0
    while not inflater.eof:
        source = inflater.unconsumed_tail
        if not source:
            source = data[position : position + _INPUT_SLICE_BYTES]
            position += len(source)
        piece = call_library(inflater.decompress, source, output.next_piece_bytes())
        if not source and not piece and not inflater.eof:
            raise DamagedStreamError(TOO_SHORT)
        output.add(piece)
        checksum, length = zlib.crc32(piece, checksum), length + len(piece)
    end = position - len(inflater.unused_data)
    trailer = take(memoryview(data), end, _TRAILER.size)
    if _TRAILER.unpack(trailer) != (checksum, length & 0xFFFFFFFF):
        raise DamagedStreamError("the gzip trailer does not match")
    return end + _TRAILER.size
