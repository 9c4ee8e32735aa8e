"""Producer snapshots."""

from __future__ import annotations

import struct

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import CorruptCheckpointError
from kcompact.format.producer_snapshot import ProducerEntry, parse_snapshot
from tests.support.broker_files import build_snapshot

EMPTY = bytes.fromhex("000148674bc700000000")
ONE = bytes.fromhex(
    "00010b29911400000001000000000000002a00030000000b0000000000000066000000020000018bcfe5680900000009ffffffffffffffff"
)
ENTRY = ProducerEntry(
    producer_id=42,
    producer_epoch=3,
    last_sequence=11,
    last_offset=102,
    offset_delta=2,
    timestamp=1700000000009,
    coordinator_epoch=9,
    current_txn_first_offset=-1,
)


def test_the_checksum_is_crc_32c() -> None:
    assert crc32c.crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize(("data", "entries"), [(EMPTY, ()), (ONE, (ENTRY,))])
def test_snapshots_of_kafka(data: bytes, entries: tuple[ProducerEntry, ...]) -> None:
    assert parse_snapshot(data, file="s") == entries
    assert build_snapshot(entries) == data


def sealed(body: bytes) -> bytes:
    return struct.pack(">hI", 1, crc32c.crc32c(body)) + body


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "of 0 bytes is too short"),
        (EMPTY[:9], "of 9 bytes is too short"),
        (b"\0\2" + EMPTY[2:], "version 2 is unknown"),
        (sealed(struct.pack(">i", -1)), "-1 producers declared"),
        (sealed(struct.pack(">i", 2**31 - 1)), "2147483647 producers declared"),
        (sealed(ONE[6:] + b"\0"), "1 producers declared in a snapshot of 57 bytes"),
        (ONE[:-1] + b"\0", "checksum 0x.*, stored 0x0b299114"),
        (build_snapshot([ENTRY, ENTRY]), "a producer id is repeated"),
    ],
)
def test_damaged_snapshots(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=problem):
        parse_snapshot(data, file="s")


@pytest.mark.parametrize("length", range(len(ONE)))
def test_every_cut_is_noticed(length: int) -> None:
    with pytest.raises(CorruptCheckpointError):
        parse_snapshot(ONE[:length], file="s")


@given(st.integers(0, len(ONE) * 8 - 1))
def test_every_flipped_bit_is_noticed(bit: int) -> None:
    damaged = bytearray(ONE)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptCheckpointError):
        parse_snapshot(bytes(damaged), file="s")


int16, int32, int64 = (st.integers(-(2**bits), 2**bits - 1) for bits in (15, 31, 63))


@given(
    st.lists(
        st.builds(
            ProducerEntry,
            producer_id=int64,
            producer_epoch=int16,
            last_sequence=int32,
            last_offset=int64,
            offset_delta=int32,
            timestamp=int64,
            coordinator_epoch=int32,
            current_txn_first_offset=int64,
        ),
        unique_by=lambda entry: entry.producer_id,
        max_size=5,
    )
)
def test_snapshots_come_back(entries: list[ProducerEntry]) -> None:
    assert parse_snapshot(build_snapshot(entries), file="s") == tuple(entries)
