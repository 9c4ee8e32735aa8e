"""zstd: frames of RFC 8878. A stream is any number of frames, skippable ones included, and nothing else may follow."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from kcompact.format.codec.stream import DamagedStreamError, InflatedBytes, call_library, take

if TYPE_CHECKING:
    import zstandard

LEVEL = 3
"""The default of `compression.zstd.level`."""

_MAX_WINDOW_BYTES = 1 << 27  # the default limit of the zstd library, which Kafka's reader keeps
_MAGIC = bytes.fromhex("28b52ffd")
_SKIPPABLE_MAGIC_TAIL = bytes.fromhex("2a4d18")
_RLE_BLOCK, _RESERVED_BLOCK = 1, 3
_SINGLE_CALL_BYTES = 1 << 17
"""Frames that inflate to this many bytes or fewer are inflated in a single call."""

_thread_local = threading.local()


def compress(data: bytes | memoryview) -> bytes:
    """Return one frame without content size and checksum.

    Kafka's buffered writer flushes before it closes the frame, so the last block of a frame is an empty one.
    """
    import zstandard

    stream = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False, write_content_size=False).compressobj()
    return (
        stream.compress(data)
        + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        + stream.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)
    )


def decompress(source: memoryview, output: InflatedBytes, *, checks_frames: bool = True) -> None:
    """Inflate all frames into `output`. Raises DamagedStreamError.

    Frame boundaries are checked first, because the library's bounded reader does not distinguish the end of the input
    from an incomplete frame. Without `checks_frames` an incomplete frame is inflated as far as it goes.
    """
    position = _frame_end(source, 0) if source and checks_frames else 0
    if position == len(source) > 0 and _inflate_small_frame(source, output):
        return
    while position < len(source) and checks_frames:
        position = _frame_end(source, position)
    reader = _decompressor().stream_reader(bytes(source), read_across_frames=True)
    while piece := call_library(reader.read, output.next_piece_bytes()):
        output.add(piece)


def _inflate_small_frame(source: memoryview, output: InflatedBytes) -> bool:
    """Inflate a single frame in one call, the usual case. Return False when it is large or damaged."""
    import zstandard

    most_bytes = min(output.remaining_bytes, max(_SINGLE_CALL_BYTES, 8 * len(source)))
    with contextlib.suppress(zstandard.ZstdError):
        # The library allocates the content size that the frame declares at once.
        if zstandard.frame_content_size(source) <= most_bytes:
            output.add(_decompressor().decompress(source, max_output_size=most_bytes))
            return True
    return False


def _decompressor() -> zstandard.ZstdDecompressor:
    """Return the decompressor of this thread. Creating one takes as long as inflating a small batch."""
    import zstandard

    if not hasattr(_thread_local, "decompressor"):
        _thread_local.decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
    decompressor: zstandard.ZstdDecompressor = _thread_local.decompressor
    return decompressor


def _frame_end(source: memoryview, start: int) -> int:
    """Return where the frame at `start` ends, from its block headers. Source: RFC 8878, section 3.1."""
    magic = take(source, start, 4)
    if magic[0] & 0xF0 == 0x50 and bytes(magic[1:]) == _SKIPPABLE_MAGIC_TAIL:
        length = int.from_bytes(take(source, start + 4, 4), "little")
        take(source, start + 8, length)
        return start + 8 + length
    if magic != _MAGIC:
        raise DamagedStreamError("no zstd frame")
    descriptor = take(source, start + 4, 1)[0]
    is_single_segment = bool(descriptor & 0x20)
    content_size_bytes = (1 if is_single_segment else 0, 2, 4, 8)[descriptor >> 6]
    dictionary_id_bytes = (0, 1, 2, 4)[descriptor & 0x03]
    position = start + 5 + (not is_single_segment) + dictionary_id_bytes + content_size_bytes
    is_last = False
    while not is_last:
        header = int.from_bytes(take(source, position, 3), "little")
        is_last, block_type, length = bool(header & 1), header >> 1 & 3, header >> 3
        if block_type == _RESERVED_BLOCK:
            raise DamagedStreamError("a zstd block of a reserved type")
        stored = 1 if block_type == _RLE_BLOCK else length
        take(source, position + 3, stored)
        position += 3 + stored
    checksum_bytes = 4 if descriptor & 0x04 else 0
    take(source, position, checksum_bytes)
    return position + checksum_bytes
