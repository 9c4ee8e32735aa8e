"""The records of many small batches of `__consumer_offsets` at once, by numpy: the records of each key, and the newest.

Most batches of this topic have one record or a few. The first records of all batches are decoded together, then all
second ones, and so on. Only the keys become Python objects. Batches that are compressed, that belong to a transaction,
that are large or unusual are left to the definition, `groups.GroupCounter.add`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kcompact.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    CODEC_MASK,
    CONTROL_BIT,
    LAST_OFFSET,
    RECORDS_COUNT,
    SECTION_END,
    SECTION_START,
    SIZE,
    TRANSACTIONAL_BIT,
    Bytes,
    Column,
    Table,
)

Mask = npt.NDArray[np.bool_]

MOST_RECORDS = 64
"""A batch with more records is left to the definition, which takes less time for each record of a large batch."""
RECORD_OVERHEAD_BYTES = 7
"""What a record has beside its key and its value, if its lengths and differences are small."""
_MAX_VARINT_BYTES = 5
_MAX_VARLONG_BYTES = 10


class KeyRecords(NamedTuple):
    """Records with one key, none of them in a transaction."""

    records: int
    tombstones: int
    size_bytes: int
    """The bytes of the batches that these records take."""
    newest_offset: int
    newest_bytes: int
    newest_value: bytes | None
    tombstone_offset: int
    """The offset of the newest tombstone, -1 if there is none."""


class _Records(NamedTuple):
    """Columns with a row for each record. `batch` is the row of its batch in the table."""

    batch: Column
    offset: Column
    key_start: Column
    key_end: Column
    value_start: Column
    value_bytes: Column
    """Negative for null."""
    weight_end: Column
    """The weights of the batch's records up to this one: their keys, their values and the overhead."""


def summarize(buffer: Bytes, table: Table) -> tuple[dict[bytes, KeyRecords], npt.NDArray[np.intp]]:
    """Return the records by key, and the rows of the batches that the definition must read, ascending."""
    attributes, count = table[:, ATTRIBUTES], table[:, RECORDS_COUNT]
    usual = (attributes & (CODEC_MASK | CONTROL_BIT | TRANSACTIONAL_BIT) == 0) & (count > 0) & (count <= MOST_RECORDS)
    records = _decode(buffer, table, usual)
    return _by_key(buffer, table, records), np.flatnonzero(~usual)


def _decode(buffer: Bytes, table: Table, usual: Mask) -> _Records:
    """Return the records of the usual batches. A batch that turns out to be unusual is cleared in `usual`."""
    batch = np.flatnonzero(usual)
    position = table[:, SECTION_START].copy()
    offset = table[:, BASE_OFFSET] - 1
    weight = np.zeros(len(table), np.int64)
    found = []
    for number in range(int(table[batch, RECORDS_COUNT].max(initial=0))):
        batch = batch[usual[batch] & (table[batch, RECORDS_COUNT] > number)]
        one, is_usual = _decode_one(buffer, table, batch, position)
        is_usual &= (one.offset > offset[batch]) & (one.offset <= table[batch, LAST_OFFSET])
        usual[batch[~is_usual]] = False
        offset[batch] = one.offset
        weight[batch] += one.weight_end
        found.append(one._replace(weight_end=weight[batch]))
    usual &= position == table[:, SECTION_END]
    if not found:
        return _Records(*(np.empty(0, np.int64) for _ in _Records._fields))
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    kept = usual[columns[0]]
    return _Records(*(column[kept] for column in columns))


def _decode_one(buffer: Bytes, table: Table, batch: Column, position: Column) -> tuple[_Records, Mask]:
    """Return the next record of each of the batches, and whether it is usual. `position` goes on to the next ones."""
    end = table[batch, SECTION_END]
    length, at, is_usual = _varints(buffer, position[batch], end, _MAX_VARINT_BYTES)
    record_end = at + length
    is_usual &= (length > 0) & (record_end <= end)
    record_end = np.where(is_usual, record_end, end)
    _, at, fits = _varints(buffer, at + 1, record_end, _MAX_VARLONG_BYTES)  # After the attributes.
    is_usual &= fits
    delta, at, fits = _varints(buffer, at, record_end, _MAX_VARINT_BYTES)
    is_usual &= fits
    key_bytes, key_start, fits = _varints(buffer, at, record_end, _MAX_VARINT_BYTES)
    is_usual &= fits & (key_bytes >= 0) & (key_bytes < record_end - key_start)
    key_end = np.where(is_usual, key_start + key_bytes, key_start)
    value_bytes, value_start, fits = _varints(buffer, key_end, record_end, _MAX_VARINT_BYTES)
    is_usual &= fits
    # The coordinator writes no headers: their number, 0, is the last byte.
    headers = value_start + np.maximum(value_bytes, 0)
    is_usual &= headers == record_end - 1
    is_usual &= buffer[np.where(is_usual, headers, 0)] == 0
    position[batch] = record_end
    weight = key_end - key_start + np.maximum(value_bytes, 0) + RECORD_OVERHEAD_BYTES
    offset = table[batch, BASE_OFFSET] + delta
    return _Records(batch, offset, key_start, key_end, value_start, value_bytes, weight), is_usual


def _varints(buffer: Bytes, start: Column, end: Column, most_bytes: int) -> tuple[Column, Column, Mask]:
    """Return the zigzag varints that begin at `start`, the positions after them, and whether they lie before `end`."""
    value, position = np.zeros(len(start), np.uint64), start.copy()
    unfinished = np.arange(len(start))
    for number in range(most_bytes):
        unfinished = unfinished[position[unfinished] < end[unfinished]]
        byte = buffer[position[unfinished]]
        value[unfinished] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * number)
        position[unfinished] += 1
        unfinished = unfinished[byte >= 0x80]
        if not len(unfinished):
            break
    fits = position > start
    fits[fits] = buffer[position[fits] - 1] < 0x80
    return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64), position, fits


def _by_key(buffer: Bytes, table: Table, records: _Records) -> dict[bytes, KeyRecords]:
    data = buffer[: int(records.value_start.max(initial=0) + records.value_bytes.max(initial=0))].tobytes()
    numbers: dict[bytes, int] = {}
    starts, ends = records.key_start.tolist(), records.key_end.tolist()
    key = np.array(
        [numbers.setdefault(data[start:end], len(numbers)) for start, end in zip(starts, ends, strict=True)], np.int64
    )
    keys, size, is_tombstone = len(numbers), _shares(table, records), records.value_bytes < 0
    sizes, newest, newest_tombstone = np.zeros(keys, np.int64), np.full(keys, -1), np.full(keys, -1)
    np.add.at(sizes, key, size)
    np.maximum.at(newest, key, records.offset)
    np.maximum.at(newest_tombstone, key[is_tombstone], records.offset[is_tombstone])
    row = np.empty(keys, np.int64)
    is_newest = records.offset == newest[key]
    row[key[is_newest]] = np.flatnonzero(is_newest)
    start, length = records.value_start[row].tolist(), records.value_bytes[row].tolist()
    columns = (
        np.bincount(key, minlength=keys).tolist(),
        np.bincount(key[is_tombstone], minlength=keys).tolist(),
        sizes.tolist(),
        newest.tolist(),
        size[row].tolist(),
        [None if count < 0 else data[at : at + count] for at, count in zip(start, length, strict=True)],
        newest_tombstone.tolist(),
    )
    return {name: KeyRecords(*counts) for name, *counts in zip(numbers, *columns, strict=True)}


def _shares(table: Table, records: _Records) -> Column:
    """Return the bytes of each record's batch that it takes. Definition: `groups.shares`."""
    weight = records.key_end - records.key_start + np.maximum(records.value_bytes, 0) + RECORD_OVERHEAD_BYTES
    total = np.zeros(len(table), np.int64)
    np.maximum.at(total, records.batch, records.weight_end)
    size, total_of_batch = table[records.batch, SIZE], total[records.batch]
    found: Column = size * records.weight_end // total_of_batch - size * (records.weight_end - weight) // total_of_batch
    return found
