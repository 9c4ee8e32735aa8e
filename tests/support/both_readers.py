"""Reads the same bytes by the readable definitions and by the kernels, in a form that can be compared.

The kernels read arrays that end directly before a page without access: a read beyond the bytes ends the process.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from kcompact import kernels
from kcompact.errors import CorruptBatchError, KcompactError
from kcompact.format.batch import Batch, Record, java_string, parse_batches, read_records, verify_crc
from kcompact.format.codec import Codec, decompress
from kcompact.format.names import MAX_OFFSET
from kcompact.kernels import (
    ATTRIBUTES,
    CODEC_MASK,
    COLUMNS,
    DAMAGED,
    DONE,
    HEADER_BYTES,
    LEGACY,
    MIN_RECORD_BYTES,
    RECORDS_COUNT,
    SECTION_END,
    SECTION_START,
    Bytes,
    Table,
)
from kcompact.log import batch_headers
from tests.support.guarded_kernels import Guarded

K0, K1 = 0x0706050403020100, 0x0F0E0D0C0B0A0908
_PAGES = 2_000


class Readers:
    """The guarded arrays, made once for a process."""

    def __init__(self) -> None:
        self._bytes, self._inflated, self._table, self._found, *self._keys = (Guarded(_PAGES) for _ in range(7))
        self._empty = self._inflated.array(np.uint8, 0)

    def by_kernels(self, data: bytes) -> Read | None:
        """Return what the kernels read, None where they leave the bytes to the definitions."""
        buffer = self._bytes.put(data)
        table = self._table.array(np.int64, len(data) // HEADER_BYTES + 1, COLUMNS)
        count, _, _, code = kernels.parse_batches(buffer, len(data), 0, MAX_OFFSET, -1, table)
        if code != DONE:
            assert code in (DAMAGED, LEGACY), code
            return None
        table = table[:count]
        headers = [batch_headers.header_of(row) for row in table.tolist()]
        inflated = self._inflate(data, table)
        if inflated is None:
            return None
        most = np.minimum(
            (table[:, SECTION_END] - table[:, SECTION_START]) // MIN_RECORD_BYTES, table[:, RECORDS_COUNT]
        )
        found = self._found.array(np.int64, count, 3)
        done, records, code = kernels.verify_records(buffer, inflated, table, 0, count, found)
        keys = [
            guarded.array(kind, int(most.sum()))
            for guarded, kind in zip(self._keys, (np.uint64, np.uint64, np.int64), strict=True)
        ]
        entries, unkeyed, tombstones, control, _, scan_code = kernels.scan_records(
            buffer, inflated, table, 0, count, 0, 0, K0, K1, *keys
        )
        assert (code == DONE) == (scan_code == DONE), f"verify_records {code}, scan_records {scan_code}"
        if code != DONE:
            return None
        assert (done, records) == (count, int(table[:, RECORDS_COUNT].sum()))
        hashes = [
            low.tobytes() + high.tobytes() for high, low in zip(keys[0][:entries], keys[1][:entries], strict=True)
        ]
        return Read(
            [tuple(header) for header in headers],
            found.tolist(),
            hashes,
            (unkeyed, tombstones, control),
        )

    def _inflate(self, data: bytes, table: Table) -> Bytes | None:
        """Inflate the compressed sections to the end of a guarded array; None where one does not inflate."""
        sections: list[bytes] = []
        filled = 0
        for row in table:
            codec = int(row[ATTRIBUTES]) & CODEC_MASK
            if codec and row[RECORDS_COUNT]:
                try:
                    section = decompress(Codec(codec), data[row[SECTION_START] : row[SECTION_END]], file="", position=0)
                except CorruptBatchError:
                    return None
                sections.append(section)
                row[SECTION_START], filled = filled, filled + len(section)
                row[SECTION_END] = filled
        return self._inflated.put(b"".join(sections)) if filled else self._empty

    def by_definition(self, data: bytes) -> Read:
        """Return the same from the definitions. Raises KcompactError."""
        headers, found, hashes = [], [], []
        unkeyed = tombstones = control = 0
        for batch, records in definition(data):
            header = batch.header
            headers.append(tuple(header))
            greatest = header.max_timestamp
            if records and not header.is_log_append_time:
                greatest = max(record.timestamp for record in records)
            nulls = [
                sum(one.value is None and one.key is not None for one in records),
                sum(one.key is None for one in records),
            ]
            found.append([*nulls, greatest])
            if header.is_control:
                control += len(records)
            else:
                unkeyed += sum(one.key is None for one in records)
                tombstones += sum(one.key is not None and one.value is None for one in records)
                hashes += [self._hash(one.key) for one in records if one.key is not None]
        return Read(headers, found, hashes, (unkeyed, tombstones, control))

    def _hash(self, key: bytes) -> bytes:
        return kernels.siphash128(self._found.put(key), 0, len(key), K0, K1)


class Read(NamedTuple):
    """The headers; of each batch tombstones, null keys and greatest timestamp; hashes of the keys.

    `counts` are the records without a key, the tombstones with one, and the control records.
    """

    headers: list[tuple[int, ...]]
    found: list[list[int]]
    hashes: list[bytes]
    counts: tuple[int, int, int]


def definition(data: bytes) -> list[tuple[Batch, list[Record]]]:
    """Return the batches and records of a segment's bytes as a cleaning reads them. Raises KcompactError.

    The checks between batches are those of `segment_reader.verified_batches`, which reads a file.
    """
    found = []
    previous, epoch = -1, -1
    for batch in parse_batches(data, file=""):
        header = batch.header
        if not previous < header.base_offset <= header.last_offset < MAX_OFFSET:
            raise KcompactError("offsets do not rise")
        if -1 < header.partition_leader_epoch < epoch:
            raise KcompactError("leader epoch falls")
        verify_crc(batch, file="")
        records = read_records(batch, file="")
        previous, epoch = header.last_offset, max(epoch, header.partition_leader_epoch)
        found.append((batch, records))
    return found


def encoded(record: Record) -> bytes:
    """Return a record in the form of which the Java side makes a digest. Kafka reads the name of a header as text."""
    parts = [struct.pack(">qq", record.offset, record.timestamp), _sized(record.key), _sized(record.value)]
    parts.append(struct.pack(">i", len(record.headers)))
    for name, content in record.headers:
        parts += (_sized(java_string(name).encode()), _sized(content))
    return b"".join(parts)


def _sized(field: bytes | None) -> bytes:
    return struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
