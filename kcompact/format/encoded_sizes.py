"""The encoded size of each record of a batch, in the uncompressed section."""

from __future__ import annotations

from kcompact.format import legacy
from kcompact.format.batch import HEADER_BYTES, Batch, legacy_entries, read_varint
from kcompact.format.codec import Codec, decompress
from kcompact.format.limits import DEFAULT_MEMORY_BYTES, most_inflated_bytes


def record_sizes(batch: Batch, *, file: str, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> list[int]:
    """Return the bytes of each record of a batch that `batch.read_records` has read.

    They begin with the length of the record, or in a batch of magic 0 or 1 with the offset of the message.
    """
    header = batch.header
    if header.magic < 2:
        return legacy.sizes_of(legacy_entries(batch, file=file, memory_bytes=memory_bytes))
    section = bytes(batch.data[HEADER_BYTES:])
    if header.codec_id and header.records_count:
        max_bytes = most_inflated_bytes(len(section), memory_bytes)
        section = decompress(Codec(header.codec_id), section, max_bytes=max_bytes, file=file, position=batch.position)
    sizes, position = [], 0
    for _ in range(header.records_count):
        length, start = read_varint(section, position)
        sizes.append(start + length - position)
        position = start + length
    return sizes
