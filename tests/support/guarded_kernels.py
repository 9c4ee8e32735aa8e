"""Runs the kernels on damaged logs, in arrays beside pages without access. Not a test by itself.

python -m tests.support.guarded_kernels fuzz SEED ROUNDS  prints how many logs passed the headers, how many the records
python -m tests.support.guarded_kernels over SEED  reads a byte after the end of an array: the process must die
python -m tests.support.guarded_kernels under SEED  reads a byte before its start: the process must die
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from kcompact import kernels
from kcompact.format.batch import Record, build
from kcompact.kernels import (
    ATTRIBUTES,
    BASE64,
    CODEC_MASK,
    COLUMNS,
    FIELD_NULL,
    FLAGS,
    HEX,
    KEY_COLUMNS,
    KEY_SIZE,
    KEY_START,
    LITERAL,
    MAX_OFFSET,
    MIN_RECORD_BYTES,
    NUMBER,
    OUTCOMES,
    PLAIN,
    QUOTED,
    RECORD_CLASSES,
    RECORD_FIELDS,
    RECORD_GROWTH_BYTES,
    RECORD_OFFSET,
    RECORD_TIMESTAMP,
    RECORDS_COUNT,
    ROW,
    SECTION_END,
    SECTION_START,
    TXN_COLUMNS,
    VALUE_SIZE,
    VALUE_START,
    Bytes,
    Table,
)
from tests.support.kernel_inputs import resealed

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Guarded:
    """Arrays that end directly before a page without access, or begin directly after one."""

    def __init__(self, pages: int) -> None:
        self.map = mmap.mmap(-1, (pages + 2) * PAGE)
        self.bytes = np.frombuffer(self.map, np.uint8)
        self.first, self.end = PAGE, (pages + 1) * PAGE
        start = self.bytes.__array_interface__["data"][0]
        for page in (start, start + self.end):
            assert libc.mprotect(page, PAGE, 0) == 0

    def array(self, dtype: npt.DTypeLike, *shape: int, at_end: bool = True) -> npt.NDArray[Any]:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        at = self.end - size if at_end else self.first
        assert at >= self.first
        return self.bytes[at : at + size].view(dtype).reshape(shape)

    def put(self, data: bytes, at_end: bool = True) -> Bytes:
        array = self.array(np.uint8, len(data), at_end=at_end)
        array[:] = np.frombuffer(data, np.uint8)
        return array


buffers, inflated_bytes, tables, outs, outcomes_, scratches = (Guarded(40) for _ in range(6))
columns = [Guarded(10) for _ in range(4)]
all_columns = Guarded(90)
chance = random.Random()


def seed_batch(offset: int) -> bytes:
    """Return a batch of a few odd records, or a marker."""
    if chance.random() < 0.2:
        marker = Record(offset, 5, bytes([0, 0, 0, chance.randrange(3)]), bytes(6))
        return build([marker], producer_id=3, producer_epoch=0, transactional=True, control=True)
    records = [
        Record(
            offset + number,
            chance.choice([0, -1, 5, 2**62]),
            chance.choice([None, b"", b"key", b"k" * 7, b"k" * 8, b"k" * 13]),
            chance.choice([None, b"", b"value" * chance.randrange(9)]),
            chance.choice([(), (), ((b"h", None),), ((b"h", b"x" * 9), (b"", b""))]),
        )
        for number in range(chance.randrange(1, 6))
    ]
    return build(records, producer_id=chance.choice([-1, 3]), producer_epoch=0, base_sequence=0)


def mutated(sound: bytes) -> bytes:
    """Return bytes with up to three of them changed, cut out or put in."""
    data = bytearray(sound)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(8)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            del data[at : at + chance.randrange(1, 9)]
        elif kind == 2:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif at < len(data):
            data[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    return bytes(data)


def guarded_keys(rows: int) -> list[npt.NDArray[Any]]:
    """Return arrays for the keys of so many records."""
    return [columns[0].array(np.uint64, rows), columns[1].array(np.uint64, rows), columns[2].array(np.int64, rows)]


def count_all(buffer: Bytes, inflated: Bytes, table: Table, rows: int) -> int:
    """Count the keys of the batches of a table, and merge them; return the code of the scan."""
    keys, counts = all_columns.array(np.int64, rows, KEY_COLUMNS + 1), np.zeros((RECORD_CLASSES, 2), np.int64)
    separator = columns[3].put(b"a:"[: chance.randint(1, 2)])
    keyed, code = kernels.scan_keys(
        buffer, inflated, table, 0, len(table), 1, 1 << 40, 0, 0, 1, 2, separator, keys, counts
    )
    bits = chance.choice((0, 1, 5))
    starts, slots = columns[0].array(np.int64, (1 << bits) + 2), np.empty(max(16, 4 * keyed), np.int32)
    dealt = outs.array(np.int64, keyed, KEY_COLUMNS + 1)
    assert kernels.merge_keys(keys, keyed, chance.choice((0, 3)), bits, starts, dealt, slots) <= keyed
    return int(code)


def write_lines(data: Bytes, found: npt.NDArray[np.int64]) -> None:
    """Write a line for each record, with numbers, literals, and its key and value in every way."""
    rows = found.shape[1]
    for start, size in ((KEY_START, KEY_SIZE), (VALUE_START, VALUE_SIZE)):
        field_kinds = outs.array(np.uint8, rows)
        kernels.field_kinds(data, np.arange(rows), found[start], found[size], field_kinds)
        assert (field_kinds[found[size] < 0] == FIELD_NULL).all()
    kinds = ((LITERAL, 0, 5), (NUMBER, RECORD_OFFSET, 0), (NUMBER, RECORD_TIMESTAMP, 0))
    fields = [
        (operation, start, size)
        for operation in (PLAIN, QUOTED, BASE64, HEX)
        for start, size in ((KEY_START, KEY_SIZE), (VALUE_START, VALUE_SIZE))
    ]
    chosen = chance.sample([*kinds, *fields], chance.randrange(1, 5))
    out = outs.array(np.uint8, chance.choice([0, 1, 4, 20, 100, 2000]), at_end=chance.random() < 0.8)
    line = 0
    while line < rows:
        line, size, _ = kernels.write_lines(
            data,
            found.reshape(-1),
            np.arange(RECORD_FIELDS) * rows,
            np.arange(rows),
            np.zeros(rows, np.uint8),
            line,
            rows,
            np.array([[0, len(chosen)]]),
            np.array(chosen),
            columns[3].put(b"text:"),
            out,
        )
        assert 0 <= size <= len(out)
        line += size == 0


def hash_records(data: Bytes, found: npt.NDArray[np.int64]) -> None:
    """Hash all records, some with a field that lies elsewhere, as a changed column would say."""
    wrong = found.copy()
    for _ in range(chance.randrange(3) if found.size else 0):
        row, column = chance.randrange(RECORD_FIELDS), chance.randrange(found.shape[1])
        wrong[row, column] = chance.choice([-1, 0, 1, len(data), 1 << 62, -(1 << 62)])
    for fields in (found, wrong):
        rows = np.arange(fields.shape[1])
        keys, hashes = outs.array(np.int64, len(rows), 2), outs.array(np.int64, len(rows))
        kernels.hash_record_keys(data, fields, rows, 1, 2, keys)
        kernels.hash_record_contents(data, fields, rows, 1, 2, hashes)


def scan_all(buffer: Bytes, inflated: Bytes, table: Table) -> int:
    """Run every kernel that reads records over the batches of a table; return the code of the scan."""
    rooms = (table[:, SECTION_END] - table[:, SECTION_START]) // MIN_RECORD_BYTES
    rooms = np.minimum(table[:, RECORDS_COUNT], rooms)
    rows = int(rooms.sum())
    found = all_columns.array(np.int64, RECORD_FIELDS, rows)
    _, records, code = kernels.record_columns(buffer, inflated, table, 0, len(table), 0, found)
    if records == rows and code == kernels.DONE:
        data = inflated if (table[:, ATTRIBUTES] & CODEC_MASK).any() else buffer
        hash_records(data, found)
        write_lines(data, found)
    high, low, record_refs = guarded_keys(rows)
    found = scratches.array(np.int64, len(table), 3)
    kernels.verify_records(buffer, inflated, table, 0, len(table), found)
    keys = high, low, record_refs
    entries, _, _, _, _, code = kernels.scan_records(buffer, inflated, table, 0, len(table), 0, 0, 1, 2, *keys)
    assert count_all(buffer, inflated, table, rows) == code
    # The results of the scan are the input of the next kernel, so their arrays are guarded too.
    is_latest = columns[3].array(np.uint8, entries)
    kernels.mark_latest(high[:entries].copy(), low[:entries].copy(), record_refs[:entries].copy(), is_latest)
    high, low, record_refs = guarded_keys(entries)
    kernels.mark_latest(high, low, record_refs, is_latest)
    kernels.keep_latest(is_latest, high, low, record_refs)
    records = int(table[-1, ROW] + table[-1, RECORDS_COUNT])
    if records > 1 << 17:
        return int(code)
    survivors = outs.array(np.uint8, (records + 7) // 8)
    kernels.set_bits(record_refs, 0, survivors)
    kernels.clear_bits(record_refs, 0, survivors)
    survivors = columns[3].put(chance.randbytes((records + 7) // 8))
    table[:, FLAGS] = [chance.choice([0, 0, 0, 1, 2]) for _ in table]
    sections = int((table[:, SECTION_END] - table[:, SECTION_START]).sum())
    out = outs.array(np.uint8, sections + RECORD_GROWTH_BYTES * rows + 61 * len(table))
    room = scratches.array(np.int64, int(rooms.max()), 4)
    outcomes = outcomes_.array(np.int64, len(table), OUTCOMES)
    for horizon in (-1, 1 << 62):
        end = kernels.filter_batches(
            buffer,
            inflated,
            table,
            0,
            len(table),
            survivors,
            1 << 40,
            chance.choice([0, 1 << 62]),
            chance.choice([0, MAX_OFFSET]),
            horizon,
            room,
            out,
            0,
            outcomes,
        )
        assert 0 <= end <= len(out)
    return int(code)


def find_transactions(data: bytes, buffer: Bytes, table: Table) -> None:
    """Run the kernels that read markers, in memory and from a file."""
    kernels.transactional_batches(buffer, table, columns[0].array(np.int64, len(table), TXN_COLUMNS))
    descriptor = os.memfd_create("log")
    try:
        os.write(descriptor, data)
        scratch = scratches.array(np.uint8, chance.choice([61, 80, 1000]))
        found = columns[1].array(np.int64, chance.choice([1, len(table)]), TXN_COLUMNS)
        kernels.scan_transactions(descriptor, 0, len(data), scratch, columns[2].array(np.int64, 1, COLUMNS), found)
        headers = columns[1].array(np.int64, chance.choice([1, len(table)]), COLUMNS)
        kernels.scan_headers(descriptor, 0, chance.choice([1, 90, len(data)]), len(data), scratch, headers)
    finally:
        os.close(descriptor)


def fuzz(rounds: int) -> tuple[int, int]:
    """Return how many of so many damaged logs passed the headers, and how many the records too."""
    accepted = scanned = 0
    for _ in range(rounds):
        at_end = chance.random() < 0.8
        if chance.random() < 0.1:
            data = chance.randbytes(chance.randrange(200))
        else:
            data, offset = b"", 0
            for _ in range(chance.randrange(1, 4)):
                data += resealed(mutated(seed_batch(offset)))
                offset += 9
            if chance.random() < 0.3:
                data = resealed(mutated(data))
        buffer = buffers.put(data, at_end)
        table = tables.array(np.int64, len(data) // 61 + chance.choice([0, 1]), COLUMNS)
        count, _, _, _ = kernels.parse_batches(buffer, len(data), 0, 1 << 62, -1, table)
        for start in range(0, len(data), 7):
            kernels.crc32c(buffer, start, len(data))
            kernels.siphash128(buffer, start, len(data), 1, 2)
        if not count:
            continue
        table = table[:count]
        accepted += 1
        # Sections lie where the caller says: in the inflated, if there is a codec.
        table[:, ATTRIBUTES] &= ~CODEC_MASK
        find_transactions(data, buffer, table)
        nothing = inflated_bytes.array(np.uint8, 0)
        scanned += scan_all(buffer, nothing, table) == kernels.DONE
        # The same sections as if they had been inflated, their inflated at the guard.
        table[:, ATTRIBUTES] |= 1
        sections: list[bytes] = []
        for row in table:
            section = bytes(buffer[row[SECTION_START] : row[SECTION_END]])
            row[SECTION_START] = sum(len(one) for one in sections)
            sections.append(mutated(section))
            row[SECTION_END] = sum(len(one) for one in sections)
        scan_all(buffer, inflated_bytes.put(b"".join(sections), at_end), table)
    return accepted, scanned


def main(what: str, seed: int, rounds: int = 0) -> None:
    """Do what the command line asks for."""
    chance.seed(seed)
    if what == "fuzz":
        print(*fuzz(rounds))
    elif what == "over":
        kernels.crc32c(buffers.put(bytes(100)), 0, 101)
    elif what == "under":
        kernels.crc32c(buffers.put(bytes(100), at_end=False), -1, 100)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
