"""The kernels that read records, compared with `format.batch.read_records`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact import kernels
from kcompact.errors import CorruptBatchError
from kcompact.format import batch as batch_format
from kcompact.format.batch import Record, parse_batches, read_records, sealed
from kcompact.kernels import (
    DAMAGED,
    DONE,
    EXCLUDED_FROM_MAP,
    FLAGS,
    HEADER_BYTES,
)
from tests.support.kernel_inputs import (
    K0,
    K1,
    any_batch,
    inflated,
    is_readable,
    keys_for,
    most_records,
    same_offsets,
    siphash128,
)


@pytest.mark.long
@given(st.lists(any_batch, min_size=1, max_size=3).map(same_offsets), st.integers(0, 12), st.sets(st.integers(0, 2)))
def test_scan_is_read_records(data: bytes, first_dirty_offset: int, excluded_from_map: set[int]) -> None:
    batches = list(parse_batches(data, file="f"))
    expected: list[tuple[int, int, int]] = []
    unkeyed = tombstones = control = least_header_bytes = row = 0
    first_ref = 5 << 36
    is_sound = True
    try:
        loaded = inflated(data)
    except CorruptBatchError:
        assert not is_readable(data)
        return
    for number in excluded_from_map & set(range(len(loaded.table))):
        loaded.table[number, FLAGS] = EXCLUDED_FROM_MAP
    for number, one in enumerate(batches):
        try:
            records = read_records(one, file="f")
        except CorruptBatchError:
            is_sound = False
            break
        control += len(records) if one.header.is_control else 0
        for record in records if not one.header.is_control else []:
            unkeyed += record.key is None
            tombstones += record.key is not None and record.value is None
            if record.key is not None:
                hashed = siphash128(record.key, bytes(range(16)), 1, 3)
                in_map = record.offset >= first_dirty_offset and number not in excluded_from_map
                low, high = int.from_bytes(hashed[:8], "little"), int.from_bytes(hashed[8:], "little")
                expected.append((high, low, first_ref + (row + records.index(record) << 1 | in_map)))
        headers = [pair for record in records for pair in record.headers]
        least_header_bytes += sum(2 + len(name) + len(content or b"") for name, content in headers)
        row += one.header.records_count
    found = keys_for(most_records(loaded.table))
    entries, *counts, header_bytes, code = kernels.scan_records(
        *loaded, 0, len(loaded.table), first_dirty_offset, first_ref, K0, K1, *found
    )
    assert (code == DONE) == is_sound
    if is_sound:
        assert list(zip(*(column.tolist() for column in found.first(entries)), strict=True)) == expected
        assert counts == [unkeyed, tombstones, control]
        assert header_bytes >= least_header_bytes
    elif code == DAMAGED:
        assert entries <= found.rows


@pytest.mark.long
@given(st.lists(any_batch, min_size=1, max_size=3).map(same_offsets))
def test_verify_is_read_records(data: bytes) -> None:
    try:
        loaded = inflated(data)
    except CorruptBatchError:
        return  # As in the test above.
    expected: list[list[int]] = []
    records_before = 0
    is_sound = True
    for one in parse_batches(data, file="f"):
        try:
            records = read_records(one, file="f")
        except CorruptBatchError:
            is_sound = False
            break
        greatest = one.header.max_timestamp
        if records and not one.header.is_log_append_time:
            greatest = max(record.timestamp for record in records)
        tombstones = sum(record.value is None and record.key is not None for record in records)
        nulls = [tombstones, sum(record.key is None for record in records)]
        expected.append([*nulls, greatest])
        records_before += len(records)
    found = np.full((len(loaded.table), 3), -77, np.int64)
    done, records_found, code = kernels.verify_records(*loaded, 0, len(loaded.table), found)
    assert (done, code == DONE, records_found) == (len(expected), is_sound, records_before)
    assert found[:done].tolist() == expected


@pytest.mark.parametrize(
    ("section", "is_sound"),
    [
        ("10 00 00 00 02 61 02 31 00", True),
        ("90 00 00 00 00 02 61 02 31 00", True),  # A length of two bytes.
        ("12 00 00 00 82 00 61 02 31 00", True),  # A key's length of two bytes.
        ("10 ff 00 00 02 61 02 31 00", True),  # Unused attributes.
        ("0e 00 00 00 03 02 31 00", True),  # A key of length -2.
        ("0e 00 00 00 02 61 03 00", True),
        ("18 00 00 00 02 61 02 31 80 80 80 00", False),  # Four bytes are missing.
        ("16 00 00 00 02 61 02 31 80 80 80 00", True),  # No headers, in a varint longer than needed.
        ("1a 00 00 00 02 61 02 31 80 80 80 80 80 00", False),  # In a varint of too many bytes.
        ("0e 00 00 00 02 61 02 31 00", False),  # One byte too short,
        ("12 00 00 00 02 61 02 31 00", False),  # and too long.
        ("0f", False),
        ("10 00 00 00 02 61 02 31 01", False),  # -1 headers.
        ("14 00 00 00 02 61 02 31 02 01 00", False),  # A header without a key.
        ("14 00 00 00 02 61 02 31 02 00 01", True),
        ("10 00 00 01 02 61 02 31 00", False),  # Offset -1.
        ("10 00 00 04 02 61 02 31 00", False),  # Beyond the batch.
        ("10 00 00 00 02 61 02 31 00 00", False),  # A byte behind the last record.
    ],
)
def test_a_record_by_hand(section: str, is_sound: bool) -> None:
    (one,) = parse_batches(batch_format.build([Record(0, 0, b"a", b"1"), Record(1, 0, b"a", b"1")]), file="f")
    body = bytes.fromhex(section)
    data = sealed(one.header._replace(records_count=1, length=HEADER_BYTES - 12 + len(body)), body)
    loaded = inflated(data)
    found = np.zeros((1, 3), np.int64)
    codes = {
        kernels.scan_records(*loaded, 0, 1, 0, 0, K0, K1, *keys_for(1))[-1],
        kernels.verify_records(*loaded, 0, 1, found)[2],
    }
    assert codes == ({DONE} if is_sound else {DAMAGED})
    try:
        read_records(next(iter(parse_batches(data, file="f"))), file="f")
    except CorruptBatchError:
        assert not is_sound
    else:
        assert is_sound
