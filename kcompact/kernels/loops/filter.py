"""Decides what each batch is after a cleaning: the same bytes, a new batch with fewer records, or no records."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.columns import (
    ACTION,
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL_BIT,
    COPIED,
    DECIDED,
    DELETE_HORIZON_BIT,
    DISCARDABLE,
    EMPTIED,
    ENCODED,
    EXPIRED,
    FLAGS,
    HEADER_BYTES,
    HELD_TOMBSTONES,
    INVALID_MESSAGES,
    KEPT_LATEST,
    LAST_OFFSET,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP,
    MESSAGES_WRITTEN,
    MIN_RECORD_BYTES,
    NEW_ATTRIBUTES,
    NEW_BASE_TIMESTAMP,
    NEW_MAX_TIMESTAMP,
    OUT_END,
    OUT_START,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORDS_COUNT,
    ROW,
    SECTION_END,
    SECTION_START,
    SUPERSEDED,
    TRANSACTIONAL_BIT,
    UNKNOWN,
)
from kcompact.kernels.loops.checksum import crc32c
from kcompact.kernels.loops.memory import copy_bytes, loop, store_be16, store_be32, store_be64
from kcompact.kernels.loops.records import read_record, read_varint

if TYPE_CHECKING:
    from kcompact.kernels.arrays import Bytes, Table


@loop
def _write_varint(out, position, value):
    """Write the shortest zigzag encoding of a 64-bit value, at most 10 bytes; return the position after it."""
    zigzag = np.uint64(value << 1) ^ np.uint64(value >> 63)
    while zigzag > np.uint64(0x7F):
        out[position] = np.uint8(zigzag & np.uint64(0x7F) | np.uint64(0x80))
        zigzag >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(zigzag)
    return position + 1


@loop
def _varint_bytes(value):
    """Return the size of the shortest zigzag encoding of a 64-bit value."""
    zigzag = np.uint64(value << 1) ^ np.uint64(value >> 63)
    count = 1
    while zigzag > np.uint64(0x7F):
        zigzag >>= np.uint64(7)
        count += 1
    return count


@loop
def _plain_field(buffer, position, end, is_text):
    """Return the end of a field that Kafka's writer would write as the same bytes, -1 for any other field.

    The length must be encoded in as few bytes as possible, and be -1 for null. With `is_text`, for the key of a record
    header, all bytes must be ASCII, because Kafka replaces invalid UTF-8.
    """
    length, start = read_varint(buffer, position, end)
    if start < 0 or length < -1 or start - position != _varint_bytes(length) or length > end - start:
        return np.int64(-1)
    if is_text:
        for i in range(start, start + length):
            if buffer[i] >= 0x80:
                return np.int64(-1)
    return start + max(length, 0)


@loop
def _is_plain(buffer, position, end):
    """Return whether key, value and headers of a record, the bytes [position, end), can be copied unchanged."""
    position = _plain_field(buffer, position, end, False)
    if position < 0:
        return False
    position = _plain_field(buffer, position, end, False)
    if position < 0:
        return False
    if end - position == 1:
        return buffer[position] == 0
    count, start = read_varint(buffer, position, end)
    if start < 0 or count < 0 or count > end - start or start - position != _varint_bytes(count):
        return False
    position = start
    for _ in range(count):
        position = _plain_field(buffer, position, end, True)
        if position < 0:
            return False
        position = _plain_field(buffer, position, end, False)
        if position < 0:
            return False
    return position == end


@loop
def _keep_records(row, section, survivors, upper_bound_offset, expires_ms, held_back_from_offset, scratch, outcome):
    """Fill `scratch` with the kept records of a batch, and the counts in its `outcome`.

    Returns (number of kept records, whether a tombstone is kept, lowest and greatest timestamp of the kept records).
    The first number is -1 for a malformed record.
    Definition: `clean.rules.record_fate`.
    """
    attributes = row[ATTRIBUTES]
    is_control = attributes & CONTROL_BIT != 0
    is_append_time = attributes & LOG_APPEND_TIME_BIT != 0
    is_expired = attributes & DELETE_HORIZON_BIT != 0 and row[BASE_TIMESTAMP] <= expires_ms
    is_held_back = row[LAST_OFFSET] >= held_back_from_offset
    kept = kept_latest = invalid = superseded = expired = held_tombstones = np.int64(0)
    has_tombstone = False
    lowest = np.int64(0x7FFFFFFFFFFFFFFF)
    greatest = np.int64(-0x8000000000000000)
    position, section_end = row[SECTION_START], row[SECTION_END]
    for index in range(row[RECORDS_COUNT]):
        position, timestamp_delta, offset_delta, fields_start, key_start, _, value_start, _ = read_record(
            section, position, section_end, False
        )
        if position < 0:
            return np.int64(-1), has_tombstone, lowest, greatest
        bit = row[ROW] + index
        is_latest = survivors[bit >> 3] >> np.uint8(bit & 7) & 1 != 0
        is_kept = False
        if is_control or row[BASE_OFFSET] + offset_delta >= upper_bound_offset:
            is_kept = True
        elif key_start < 0:
            invalid += 1
        elif not is_latest:
            superseded += 1
        elif value_start < 0 and is_expired and not is_held_back:
            expired += 1
        else:
            is_kept = True
            held_tombstones += value_start < 0 and is_expired
        if is_kept:
            kept_latest += is_latest
            has_tombstone = has_tombstone or value_start < 0
            timestamp = row[MAX_TIMESTAMP] if is_append_time else row[BASE_TIMESTAMP] + timestamp_delta
            scratch[kept, 0] = fields_start
            scratch[kept, 1] = position
            scratch[kept, 2] = timestamp
            scratch[kept, 3] = offset_delta
            lowest = min(lowest, timestamp)
            greatest = max(greatest, timestamp)
            kept += 1
    outcome[MESSAGES_WRITTEN] = kept
    outcome[INVALID_MESSAGES] = invalid
    outcome[SUPERSEDED] = superseded
    outcome[EXPIRED] = expired
    outcome[KEPT_LATEST] = kept_latest
    outcome[HELD_TOMBSTONES] = held_tombstones
    return kept, has_tombstone, lowest, greatest


@loop
def _encode_records(out, position, section, scratch, kept, base_timestamp):
    """Write the records that `scratch` lists to `out`; return their end, or -1 where Kafka would write other bytes.

    A row of `scratch`: start and end of key, value and headers in the section, timestamp, offset delta.
    """
    for i in range(kept):
        fields_start, fields_end = scratch[i, 0], scratch[i, 1]
        if not _is_plain(section, fields_start, fields_end):
            return np.int64(-1)
        timestamp_delta = scratch[i, 2] - base_timestamp
        offset_delta = scratch[i, 3]
        fields_bytes = fields_end - fields_start
        record_bytes = 1 + _varint_bytes(timestamp_delta) + _varint_bytes(offset_delta) + fields_bytes
        position = _write_varint(out, position, record_bytes)
        out[position] = 0  # Attributes.
        position = _write_varint(out, position + 1, timestamp_delta)
        position = _write_varint(out, position, offset_delta)
        copy_bytes(out, position, section, fields_start, fields_bytes)
        position += fields_bytes
    return position


@loop
def write_header(out, start, end, buffer, row, kept, base_timestamp, max_timestamp, attributes):
    """Write the header of the batch [start, end) of `out`, whose records are already there: the old one, updated."""
    copy_bytes(out, start, buffer, row[POSITION], HEADER_BYTES)
    store_be32(out, start + 8, end - start - 12)
    store_be16(out, start + 21, attributes)
    store_be64(out, start + 27, base_timestamp)
    store_be64(out, start + 35, max_timestamp)
    store_be32(out, start + 57, kept)
    store_be32(out, start + 17, np.int64(crc32c(out, start + 21, end)))


@loop
def filter_batches(
    buffer: Bytes,
    inflated: Bytes,
    table: Table,
    first: int,
    end: int,
    survivors: Bytes,
    upper_bound_offset: int,
    expires_ms: int,
    held_back_from_offset: int,
    new_horizon_ms: int,
    scratch: Table,
    out: Bytes,
    out_position: int,
    outcomes: Table,
) -> int:
    """table i64[m, 18], survivors u8[records / 8], scratch i64[>= records of a batch, 4] -> the new end of `out`.

    Decides about the batches [first, end) without the flag DECIDED and fills their rows of outcomes i64[m, 12].
    Batches that are encoded again are written to `out`, from `out_position` on: the whole batch, or only its records if
    the batch is compressed.
    No tombstone expires in a batch that ends at or above `held_back_from_offset`, MAX_OFFSET for none.
    `new_horizon_ms` is the horizon that tombstones get, -1 for none. `out` must have space for a header of each batch
    and for its records, with RECORD_GROWTH_BYTES more for each record. Definition: `clean.filter.clean_batch`.
    """
    for number in range(first, end):
        row = table[number]
        if row[FLAGS] & DECIDED:
            continue
        outcome = outcomes[number]
        outcome[:] = 0
        count = row[RECORDS_COUNT]
        attributes = row[ATTRIBUTES]
        is_control = attributes & CONTROL_BIT != 0
        has_horizon = attributes & DELETE_HORIZON_BIT != 0
        is_discardable = row[FLAGS] & DISCARDABLE != 0
        if (has_horizon and row[BASE_TIMESTAMP] < 0) or (count == 0 if is_control else is_discardable):
            outcome[ACTION] = UNKNOWN
            continue
        section = inflated if attributes & CODEC_MASK else buffer
        if count > (row[SECTION_END] - row[SECTION_START]) // MIN_RECORD_BYTES or count > scratch.shape[0]:
            outcome[ACTION] = UNKNOWN
            continue
        kept, has_tombstone, lowest, greatest = _keep_records(
            row, section, survivors, upper_bound_offset, expires_ms, held_back_from_offset, scratch, outcome
        )
        if kept < 0:
            outcome[ACTION] = UNKNOWN
            continue
        if is_control and has_tombstone:
            outcome[ACTION] = UNKNOWN
            continue
        if kept == 0:
            outcome[ACTION] = EMPTIED
            continue
        # A discardable batch with records to decide about is a marker: other ones have their fate.
        needs_horizon = (has_tombstone or is_discardable) and not has_horizon
        if kept == count and not needs_horizon:
            outcome[ACTION] = COPIED
            continue
        has_producer = row[PRODUCER_ID] != -1
        if (
            lowest < -1
            or (attributes & TRANSACTIONAL_BIT and not has_producer)
            or (has_producer and (row[PRODUCER_EPOCH] == -1 or (row[BASE_SEQUENCE] < 0 and not is_control)))
        ):
            outcome[ACTION] = UNKNOWN  # Kafka's writer refuses such a batch.
            continue
        horizon = row[BASE_TIMESTAMP] if has_horizon else new_horizon_ms if needs_horizon else np.int64(-1)
        base_timestamp = scratch[0, 2] if horizon < 0 else horizon
        is_compressed = attributes & CODEC_MASK != 0
        start = out_position
        records_start = start if is_compressed else start + HEADER_BYTES
        batch_end = _encode_records(out, records_start, section, scratch, kept, base_timestamp)
        if batch_end < 0:
            outcome[ACTION] = UNKNOWN
            continue
        new_attributes = attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
        if horizon >= 0:
            new_attributes |= DELETE_HORIZON_BIT
        max_timestamp = row[MAX_TIMESTAMP] if attributes & LOG_APPEND_TIME_BIT else greatest
        outcome[ACTION] = ENCODED
        outcome[OUT_START] = start
        outcome[OUT_END] = batch_end
        outcome[NEW_BASE_TIMESTAMP] = base_timestamp
        outcome[NEW_MAX_TIMESTAMP] = max_timestamp
        outcome[NEW_ATTRIBUTES] = new_attributes
        if not is_compressed:
            write_header(out, start, batch_end, buffer, row, kept, base_timestamp, max_timestamp, new_attributes)
        out_position = batch_end
    return out_position


@loop
def join_pieces(buffer: Bytes, out: Bytes, pieces: Table, joined: Bytes) -> int:
    """pieces i64[n, 3] -> joined u8, and (the bytes written).

    A piece is whether it lies in `out`, not in `buffer`, its start and its end. Stops before a piece for which `joined`
    has no room. Definition: `b"".join`.
    """
    position = np.int64(0)
    for number in range(pieces.shape[0]):
        start = pieces[number, 1]
        size = pieces[number, 2] - start
        if size > joined.shape[0] - position:
            break
        copy_bytes(joined, position, out if pieces[number, 0] else buffer, start, size)
        position += size
    return position
