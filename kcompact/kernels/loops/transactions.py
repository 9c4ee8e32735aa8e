"""Finds the transactional and the control batches of a table; follows, judges and decides their transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.columns import (
    ABORT,
    ABORTED_ENTRY,
    ATTRIBUTES,
    BASE_OFFSET,
    CODEC_MASK,
    COMMIT,
    COMMITTED,
    CONTROL_BIT,
    DAMAGED,
    DATA,
    DONE,
    EMPTY_DATA,
    ENDED_AT,
    ENTRY_FIRST_OFFSET,
    ENTRY_LAST_OFFSET,
    ENTRY_PRODUCER_ID,
    FULL,
    HEADER_BYTES,
    IO_ERROR,
    LAST_OFFSET,
    MARKER_FIRST_BATCH,
    MARKER_FIRST_RECORDS,
    MARKER_LAST_STABLE_OFFSET,
    MARKER_OFFSET,
    MARKER_PREVIOUS,
    MARKER_PRODUCER_ID,
    NO_RECORD,
    OBSERVED,
    OPEN_FIRST,
    OPEN_FIRST_RECORDS,
    OPEN_NEXT,
    OPEN_PREVIOUS,
    PRODUCER_ID,
    RECORDS_COUNT,
    SECTION_END,
    SECTION_START,
    SIZE,
    TRANSACTIONAL_BIT,
    TXN_BASE_OFFSET,
    TXN_KIND,
    TXN_LAST_OFFSET,
    TXN_PRODUCER_ID,
    UNREAD,
)
from kcompact.kernels.loops.checksum import crc32c
from kcompact.kernels.loops.headers import hold_header, read_header
from kcompact.kernels.loops.memory import load_be16, load_be32, loop, read_from_file
from kcompact.kernels.loops.records import read_field, read_record

if TYPE_CHECKING:
    from kcompact.kernels.arrays import Bytes, Column, Table


@loop
def marker_kind(buffer, row):
    """Return the kind of the marker in a control batch, NO_RECORD without a record, UNREAD for all that is unusual.

    The usual control batch is not compressed and has one record.
    """
    if row[RECORDS_COUNT] == 0:
        return np.int64(NO_RECORD)
    if row[RECORDS_COUNT] != 1 or row[ATTRIBUTES] & CODEC_MASK:
        return np.int64(UNREAD)
    end, _, offset_delta, _, key_start, key_end, value_start, _ = read_record(
        buffer, row[SECTION_START], row[SECTION_END], True
    )
    if end != row[SECTION_END] or offset_delta < 0 or offset_delta > row[LAST_OFFSET] - row[BASE_OFFSET]:
        return np.int64(UNREAD)
    if key_start < 0 or key_end - key_start < 4:
        return np.int64(UNREAD)
    kind = load_be16(buffer, key_start + 2)
    if kind in (ABORT, COMMIT):
        _, value_end = read_field(buffer, key_end, end)
        if value_start < 0 or value_end - value_start < 6:
            return np.int64(UNREAD)
    return kind


@loop
def _kind_of(buffer, row):
    """Return the kind of a transactional or a control batch."""
    if row[ATTRIBUTES] & CONTROL_BIT:
        return marker_kind(buffer, row)
    return np.int64(DATA if row[RECORDS_COUNT] else EMPTY_DATA)


@loop
def transactional_batches(buffer: Bytes, table: Table, copies: Table) -> int:
    """table i64[m, 18] -> copies i64[n, 4], and (batches, code).

    Copies what decides about transactions from each transactional and each control batch. FULL if `copies` ends before
    the batches. Definition: `log.transactions.of_headers`.
    """
    count = 0
    for number in range(table.shape[0]):
        row = table[number]
        attributes = row[ATTRIBUTES]
        if attributes & (CONTROL_BIT | TRANSACTIONAL_BIT) == 0:
            continue
        if count == copies.shape[0]:
            return count, FULL
        copies[count, TXN_BASE_OFFSET] = row[BASE_OFFSET]
        copies[count, TXN_LAST_OFFSET] = row[LAST_OFFSET]
        copies[count, TXN_PRODUCER_ID] = row[PRODUCER_ID]
        copies[count, TXN_KIND] = _kind_of(buffer, row)
        count += 1
    return count, DONE


@loop
def scan_transactions(
    descriptor: int, start: int, end: int, scratch: Bytes, row: Table, copies: Table
) -> tuple[int, int, int]:
    """scratch u8[>= 61], row i64[1, 18] -> copies i64[n, 4], and (batches copied, position, code).

    The same for the batches of an open file. Of a batch whose records do not matter, only the header is needed; small
    batches are read together, as many as fit `scratch`. Returns FULL if `copies` ends before the batches: the caller
    calls again from the returned position. DAMAGED also for a control batch that is unusual, or does not fit `scratch`.
    Definition: `log.transactions.read_transactions`.
    """
    position, count = start, 0
    window = held = size = 0
    header = row[0]
    while position < end:
        if count == copies.shape[0]:
            return count, position, FULL
        if position + HEADER_BYTES > end:
            return count, position, DAMAGED
        window, held = hold_header(descriptor, scratch, position, end, window, held, size)
        if position + HEADER_BYTES > window + held:
            return count, position, IO_ERROR
        code = read_header(scratch, position - window, header)
        if code != DONE:
            return count, position, code
        size = header[SIZE]
        if size > end - position:
            return count, position, DAMAGED
        attributes = header[ATTRIBUTES]
        if attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
            if attributes & CONTROL_BIT:
                if size > scratch.shape[0]:
                    return count, position, DAMAGED
                if position + size > window + held:
                    window = position
                    held = read_from_file(descriptor, scratch, 0, min(scratch.shape[0], end - position), position)
                    if held < size or read_header(scratch, 0, header) != DONE or header[SIZE] != size:
                        return count, position, IO_ERROR
                at = position - window
                if crc32c(scratch, at + 21, at + size) != np.uint32(load_be32(scratch, at + 17)):
                    return count, position, DAMAGED
            kind = _kind_of(scratch, header)
            if kind == UNREAD:
                return count, position, DAMAGED
            copies[count, TXN_BASE_OFFSET] = header[BASE_OFFSET]
            copies[count, TXN_LAST_OFFSET] = header[LAST_OFFSET]
            copies[count, TXN_PRODUCER_ID] = header[PRODUCER_ID]
            copies[count, TXN_KIND] = kind
            count += 1
        position += size
    return count, position, DONE


@loop
def follow_transactions(batches: Table, producers: Column, start_offset: int, state: Table, markers: Table) -> int:
    """batches i64[n, 4], producers i64[n] -> state i64[p, 5], markers i64[m, 6], and (markers, code).

    `producers` are the numbers of the producers, from 1 on and below p. Batches that end below `start_offset` are
    passed over. Definition: `tests.support.definitions.DefinedTransactions`.
    """
    count, ring = 0, 0
    for number in range(batches.shape[0]):
        offset, kind = batches[number, TXN_BASE_OFFSET], batches[number, TXN_KIND]
        if batches[number, TXN_PRODUCER_ID] < 0 or batches[number, TXN_LAST_OFFSET] < start_offset:
            continue
        producer = producers[number]
        if kind >= EMPTY_DATA:
            if state[producer, OPEN_FIRST] < 0:
                last = state[ring, OPEN_PREVIOUS]
                state[producer, OPEN_FIRST] = offset
                state[producer, OPEN_PREVIOUS], state[producer, OPEN_NEXT] = last, ring
                state[last, OPEN_NEXT], state[ring, OPEN_PREVIOUS] = producer, producer
                state[producer, OPEN_FIRST_RECORDS] = -1
            if kind == DATA and state[producer, OPEN_FIRST_RECORDS] < 0:
                state[producer, OPEN_FIRST_RECORDS] = offset
            continue
        if kind not in (ABORT, COMMIT):
            continue
        first_batch = state[producer, OPEN_FIRST]
        if first_batch >= 0:
            before, after = state[producer, OPEN_PREVIOUS], state[producer, OPEN_NEXT]
            state[before, OPEN_NEXT], state[after, OPEN_PREVIOUS] = after, before
            state[producer, OPEN_FIRST] = -1
        if kind == ABORT:
            if count == markers.shape[0]:
                return count, FULL
            oldest = state[ring, OPEN_NEXT]
            markers[count, MARKER_PRODUCER_ID] = batches[number, TXN_PRODUCER_ID]
            markers[count, MARKER_OFFSET] = offset
            markers[count, MARKER_FIRST_BATCH] = first_batch
            markers[count, MARKER_PREVIOUS] = state[producer, ENDED_AT]
            markers[count, MARKER_LAST_STABLE_OFFSET] = offset + 1 if oldest == ring else state[oldest, OPEN_FIRST]
            markers[count, MARKER_FIRST_RECORDS] = state[producer, OPEN_FIRST_RECORDS] if first_batch >= 0 else -1
            count += 1
        state[producer, ENDED_AT] = offset
    return count, DONE


@loop
def judge_entries(markers: Table, entries: Table, start_offset: int) -> int:
    """markers i64[m, 6], entries i64[n, 4] -> (code).

    DAMAGED if the entries of a `.txnindex` contradict the markers of its segment.
    Definition: `tests.support.definitions.defined_contradictions`.
    """
    number, count = 0, entries.shape[0]
    for each in range(markers.shape[0]):
        while number < count and entries[number, ENTRY_LAST_OFFSET] < start_offset:
            number += 1
        producer_id, offset = markers[each, MARKER_PRODUCER_ID], markers[each, MARKER_OFFSET]
        first_records = markers[each, MARKER_FIRST_RECORDS]
        if number < count and entries[number, ENTRY_LAST_OFFSET] < offset:
            return DAMAGED
        if number < count and entries[number, ENTRY_LAST_OFFSET] == offset:
            first_offset = entries[number, ENTRY_FIRST_OFFSET]
            if entries[number, ENTRY_PRODUCER_ID] != producer_id or first_offset <= markers[each, MARKER_PREVIOUS]:
                return DAMAGED
            if -1 < first_records < first_offset:
                return DAMAGED
            number += 1
        elif first_records >= 0:
            return DAMAGED
    while number < count:
        if entries[number, ENTRY_LAST_OFFSET] >= start_offset:
            return DAMAGED
        number += 1
    return DONE


@loop
def decide_transactions(
    batches: Table,
    producers: Column,
    entries: Table,
    entry_producers: Column,
    next_entry: int,
    state: Table,
    is_discardable: Bytes,
    kept: Column,
) -> int:
    """batches i64[n, 4], producers i64[n] -> is_discardable u8[n], kept i64[m], state i64[p, 3], (next entry, kept).

    `entries`, i64[m, 4], are the aborted transactions in the order of their first offsets; those before `next_entry`
    have begun. `producers` and `entry_producers` are the numbers of the producers, below p. `kept` receives the numbers
    of the entries that stay. Definition: `tests.support.definitions.DefinedTracker`.
    """
    count = 0
    for number in range(batches.shape[0]):
        while (
            next_entry < entries.shape[0]
            and entries[next_entry, ENTRY_FIRST_OFFSET] <= batches[number, TXN_LAST_OFFSET]
        ):
            if state[entry_producers[next_entry], ABORTED_ENTRY] < 0:
                state[entry_producers[next_entry], ABORTED_ENTRY] = next_entry
            next_entry += 1
        producer, kind = producers[number], batches[number, TXN_KIND]
        entry = state[producer, ABORTED_ENTRY]
        is_discardable[number] = 0
        if kind >= EMPTY_DATA:
            state[producer, COMMITTED if entry < 0 else OBSERVED] = 1
            is_discardable[number] = entry >= 0
        elif kind == NO_RECORD:
            is_discardable[number] = 1
        elif kind == ABORT:
            if entry >= 0 and state[producer, OBSERVED]:
                if count == kept.shape[0]:
                    return next_entry, count
                kept[count] = entry
                count += 1
            else:
                is_discardable[number] = 1
            state[producer, ABORTED_ENTRY], state[producer, OBSERVED] = -1, 0
        elif kind == COMMIT:
            is_discardable[number] = state[producer, COMMITTED] == 0
            state[producer, COMMITTED] = 0
    return next_entry, count
