"""Reads one record of a batch; kernels that read all records of a run of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.columns import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_BIT,
    DAMAGED,
    DONE,
    EXCLUDED_FROM_MAP,
    FLAGS,
    FULL,
    HEADERS_COUNT,
    HEADERS_START,
    KEY_SIZE,
    KEY_START,
    LAST_OFFSET,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP,
    MIN_RECORD_BYTES,
    RECORD_BATCH,
    RECORD_OFFSET,
    RECORD_TIMESTAMP,
    RECORDS_COUNT,
    ROW,
    SECTION_END,
    SECTION_START,
    VALUE_SIZE,
    VALUE_START,
)
from kcompact.kernels.loops.memory import loop
from kcompact.kernels.loops.siphash import siphash128

if TYPE_CHECKING:
    import numpy.typing as npt

    from kcompact.kernels.arrays import Bytes, Table


@loop
def read_varint(buffer, position, end):
    """Return (value, position after it) of a zigzag varint of at most 5 bytes; position -1 where there is none."""
    if position >= end:
        return np.int64(0), np.int64(-1)
    byte = np.int64(buffer[position])
    if byte < 0x80:  # The usual case.
        return byte >> 1 ^ -(byte & 1), position + 1
    value = byte & 0x7F
    shift = 7
    while shift < 35:
        position += 1
        if position >= end:
            return np.int64(0), np.int64(-1)
        byte = np.int64(buffer[position])
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFF  # The last byte may carry more bits than the type has; Java drops them.
            return value >> 1 ^ -(value & 1), position + 1
        shift += 7
    return np.int64(0), np.int64(-1)


@loop
def read_varlong(buffer, position, end):
    """Return (value, position after it) of a zigzag varint of at most 10 bytes; position -1 where there is none."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while shift < 70:
        if position >= end:
            return np.int64(0), np.int64(-1)
        byte = np.uint64(buffer[position])
        value |= (byte & np.uint64(0x7F)) << shift
        position += 1
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@loop
def read_field(buffer, position, end):
    """Return (start, end) of a field of bytes; start -1 for null, end -1 where it does not fit before `end`."""
    length, position = read_varint(buffer, position, end)
    if position < 0 or length > end - position:
        return np.int64(-1), np.int64(-1)
    if length < 0:
        return np.int64(-1), position
    return position, position + length


@loop
def _headers_end(buffer, position, end):
    """Return the position after the headers of a record, -1 for a malformed length or count."""
    count, position = read_varint(buffer, position, end)
    if position < 0 or count < 0 or count > end - position:
        return np.int64(-1)
    for _ in range(count):
        start, position = read_field(buffer, position, end)
        if position < 0 or start < 0:
            return np.int64(-1)
        _, position = read_field(buffer, position, end)
        if position < 0:
            return np.int64(-1)
    return position


@loop
def read_record(section, position, section_end, checks_headers):
    """Return (end, timestamp delta, offset delta, fields start, key start, key end, value start, headers start).

    The record starts at `position` of a section of records that ends at `section_end`. Key, value and headers are the
    bytes from `fields start` to `end`. `end` is -1 for a malformed length or count; `key start` and `value start` are
    -1 for null. `checks_headers` is a constant of the caller: the filter does not check the record headers, because
    the scan of the same bytes has checked them. The caller checks the order of the offsets.
    Definition: `format.batch.read_records`.
    """
    zero = np.int64(0)
    bad = np.int64(-1), zero, zero, zero, zero, zero, zero, zero
    length, position = read_varint(section, position, section_end)
    if position < 0 or length < 0 or length > section_end - position:
        return bad
    end = position + length
    timestamp_delta, position = read_varlong(section, position + 1, section_end)  # 1: the attributes, unused.
    if position < 0:
        return bad
    offset_delta, position = read_varint(section, position, section_end)
    if position < 0:
        return bad
    fields_start = position
    key_start, key_end = read_field(section, position, end)
    if key_end < 0:
        return bad
    value_start, position = read_field(section, key_end, end)
    if position < 0:
        return bad
    has_headers = end - position != 1 or section[position] != 0
    if checks_headers and has_headers and _headers_end(section, position, end) != end:
        return bad
    return end, timestamp_delta, offset_delta, fields_start, key_start, key_end, value_start, position


@loop
def scan_records(
    buffer: Bytes,
    inflated: Bytes,
    table: Table,
    first: int,
    end: int,
    first_dirty_offset: int,
    record_ref: int,
    k0: int,
    k1: int,
    hash_high: npt.NDArray[np.uint64],
    hash_low: npt.NDArray[np.uint64],
    record_refs: npt.NDArray[np.int64],
) -> tuple[int, int, int, int, int, int]:
    """table i64[m, 18], outputs [>= records] -> (keyed, unkeyed, tombstones, control, bytes of record headers, code).

    Reads and checks every record of the batches [first, end). For each record with a key in a data batch, outputs its
    SipHash-1-3-128 and its reference, `record_ref + (row << 1 | in_map)`. Unkeyed records and keyed tombstones are
    counted, because a cleaning can drop or rewrite them even if no newer record supersedes them. The bytes of record
    headers bound how much a rewritten batch can grow. Definition: `format.batch.read_records`.
    """
    entries = unkeyed = tombstones = control = header_bytes = 0
    for number in range(first, end):
        row = table[number]
        count = row[RECORDS_COUNT]
        if count == 0:
            continue  # Kafka ignores the bytes after the header of an empty batch too.
        attributes = row[ATTRIBUTES]
        section = inflated if attributes & CODEC_MASK else buffer
        position, section_end = row[SECTION_START], row[SECTION_END]
        if count > (section_end - position) // MIN_RECORD_BYTES:
            return entries, unkeyed, tombstones, control, header_bytes, DAMAGED
        is_control = attributes & CONTROL_BIT != 0
        previous = np.int64(-1)
        span = row[LAST_OFFSET] - row[BASE_OFFSET]
        is_excluded_from_map = row[FLAGS] & EXCLUDED_FROM_MAP != 0
        for index in range(count):
            position, _, offset_delta, _, key_start, key_end, value_start, headers_start = read_record(
                section, position, section_end, True
            )
            if position < 0 or offset_delta <= previous or offset_delta > span:
                return entries, unkeyed, tombstones, control, header_bytes, DAMAGED
            previous = offset_delta
            header_bytes += position - headers_start - 1
            if is_control:
                control += 1  # The key of a marker is not a record key (KAFKA-14055).
                continue
            if key_start < 0:
                unkeyed += 1
                continue
            tombstones += value_start < 0
            low, high = siphash128(section, key_start, key_end, k0, k1, 1, 3)
            in_map = row[BASE_OFFSET] + offset_delta >= first_dirty_offset and not is_excluded_from_map
            hash_low[entries], hash_high[entries] = low, high
            record_refs[entries] = record_ref + ((row[ROW] + index) << 1 | np.int64(in_map))
            entries += 1
        if position != section_end:
            return entries, unkeyed, tombstones, control, header_bytes, DAMAGED
    return entries, unkeyed, tombstones, control, header_bytes, DONE


@loop
def verify_records(
    buffer: Bytes, inflated: Bytes, table: Table, first: int, end: int, sums: Table
) -> tuple[int, int, int]:
    """table i64[m, 18], sums i64[m, 3] -> (batches done, records, code).

    Reads and checks every record of the batches [first, end) and stops at the first malformed batch. A row of `sums`
    holds the number of tombstones, which have a key, the number of records without a key, and the greatest timestamp of
    the records; for an empty batch, the maximum timestamp of its header. Definition: `format.batch.read_records`.
    """
    records = 0
    for number in range(first, end):
        row = table[number]
        count = row[RECORDS_COUNT]
        attributes = row[ATTRIBUTES]
        section = inflated if attributes & CODEC_MASK else buffer
        position, section_end = row[SECTION_START], row[SECTION_END]
        sums[number, 0] = sums[number, 1] = 0
        sums[number, 2] = row[MAX_TIMESTAMP]
        if count == 0:
            continue
        if count > (section_end - position) // MIN_RECORD_BYTES:
            return number, records, DAMAGED
        previous = np.int64(-1)
        span = row[LAST_OFFSET] - row[BASE_OFFSET]
        is_append_time = attributes & LOG_APPEND_TIME_BIT != 0
        greatest = np.int64(-0x8000000000000000)
        for _ in range(count):
            position, timestamp_delta, offset_delta, _, key_start, _, value_start, _ = read_record(
                section, position, section_end, True
            )
            if position < 0 or offset_delta <= previous or offset_delta > span:
                return number, records, DAMAGED
            previous = offset_delta
            sums[number, 0] += value_start < 0 <= key_start
            sums[number, 1] += key_start < 0
            greatest = max(greatest, row[BASE_TIMESTAMP] + timestamp_delta)
        if position != section_end:
            return number, records, DAMAGED
        if not is_append_time:
            sums[number, 2] = greatest
        records += count
    return end, records, DONE


@loop
def record_columns(
    buffer: Bytes, inflated: Bytes, table: Table, first: int, end: int, inflated_start: int, columns: Table
) -> tuple[int, int, int]:
    """table i64[m, 18], columns i64[9, n] -> (batches done, records, code).

    Reads and checks every record of the batches [first, end) and stops at the first malformed batch, or at the first
    whose records do not fit the columns (FULL). Positions in inflated sections are counted from `inflated_start`.
    Definition: `format.batch.read_records`.
    """
    records = 0
    for number in range(first, end):
        row = table[number]
        count = row[RECORDS_COUNT]
        if count == 0:
            continue
        is_compressed = row[ATTRIBUTES] & CODEC_MASK != 0
        section = inflated if is_compressed else buffer
        shift = inflated_start if is_compressed else 0
        position, section_end = row[SECTION_START], row[SECTION_END]
        if count > (section_end - position) // MIN_RECORD_BYTES:
            return number, records, DAMAGED
        if count > columns.shape[1] - records:
            return number, records, FULL
        previous = np.int64(-1)
        span = row[LAST_OFFSET] - row[BASE_OFFSET]
        is_append_time = row[ATTRIBUTES] & LOG_APPEND_TIME_BIT != 0
        for index in range(records, records + count):
            position, timestamp_delta, offset_delta, _, key_start, key_end, value_start, headers = read_record(
                section, position, section_end, True
            )
            if position < 0 or offset_delta <= previous or offset_delta > span:
                return number, records, DAMAGED
            previous = offset_delta
            # The value ends where the headers begin. As unsigned numbers, because Java's sum may overflow.
            timestamp = np.int64(np.uint64(row[BASE_TIMESTAMP]) + np.uint64(timestamp_delta))
            header_count, headers_start = read_varint(section, headers, position)
            columns[RECORD_BATCH, index] = number
            columns[RECORD_OFFSET, index] = row[BASE_OFFSET] + offset_delta
            columns[RECORD_TIMESTAMP, index] = row[MAX_TIMESTAMP] if is_append_time else timestamp
            columns[KEY_START, index] = 0 if key_start < 0 else key_start + shift
            columns[KEY_SIZE, index] = -1 if key_start < 0 else key_end - key_start
            columns[VALUE_START, index] = 0 if value_start < 0 else value_start + shift
            columns[VALUE_SIZE, index] = -1 if value_start < 0 else headers - value_start
            columns[HEADERS_START, index] = headers_start + shift
            columns[HEADERS_COUNT, index] = header_count
        if position != section_end:
            return number, records, DAMAGED
        records += count
    return end, records, DONE
