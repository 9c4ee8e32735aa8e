"""Indexes of any size: what is read of them, and what is refused. Files of zeros are sparse."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from kcompact.errors import CorruptIndexError, CorruptTransactionIndexError, RefusedError
from kcompact.format.index import AbortedTxn, build_offset_index, build_time_index, build_txn_index
from kcompact.log import index_files
from kcompact.log.files import LogFile
from kcompact.log.index_files import read_offset_index, read_time_index
from kcompact.log.transaction_index import read_transaction_index

MIB = 1 << 20
LOG_BYTES = 2_600_000
MOST_ENTRIES = LOG_BYTES // 26 + 1
"""A batch of the oldest format has at least 26 bytes."""


def segment(directory: Path, suffix: str, data: bytes, *, size_bytes: int = 0) -> Path:
    """Write an index of at least so many bytes beside a log of `LOG_BYTES`, and return its path."""
    path = directory / f"00000000000000000000{suffix}"
    path.write_bytes(data)
    os.truncate(path, max(size_bytes, len(data)))
    path.with_suffix(".log").touch()
    os.truncate(path.with_suffix(".log"), LOG_BYTES)
    return path


@cache
def offsets(count: int) -> bytes:
    return build_offset_index((number + 1, 20 * number + 1) for number in range(count))


@cache
def times(count: int) -> bytes:
    return build_time_index((number, number + 1) for number in range(count))


def transactions(count: int) -> bytes:
    return build_txn_index(
        [
            AbortedTxn(producer_id=1, first_offset=number, last_offset=number, last_stable_offset=number + 1)
            for number in range(count)
        ]
    )


@pytest.mark.parametrize("count", [0, 1, 3, 60_000, MOST_ENTRIES])
@pytest.mark.parametrize("zero_entries", [0, 1, 3_000_000])
def test_zeros_at_the_end_take_no_memory(count: int, zero_entries: int, tmp_path: Path) -> None:
    index = segment(tmp_path, ".index", offsets(count), size_bytes=8 * (count + zero_entries))
    time_index = segment(tmp_path, ".timeindex", times(count), size_bytes=12 * (count + zero_entries))
    expected = 1 if count == 0 and zero_entries == 1 else count
    tracemalloc.start()
    try:
        assert len(read_offset_index(LogFile.at(index))) == len(read_time_index(LogFile.at(time_index))) == expected
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("read", "suffix", "data", "size_bytes", "problem"),
    [
        (
            read_offset_index,
            ".index",
            lambda: offsets(MOST_ENTRIES + 1),
            0,
            "100,002 entries, .* at most 100,000 batches",
        ),
        (
            read_offset_index,
            ".index",
            lambda: offsets(MOST_ENTRIES + 1),
            400 * MIB,
            "100,002 entries, .* at most 100,000",
        ),
        (
            read_time_index,
            ".timeindex",
            lambda: times(MOST_ENTRIES + 1),
            0,
            "100,002 entries, .* at most 100,000 batches",
        ),
        (
            read_transaction_index,
            ".txnindex",
            lambda: transactions(43_000),
            0,
            "43,000 entries, .* at most 42,622 batches",
        ),
        (read_offset_index, ".index", lambda: offsets(9), 8 * MIB + 1, "8,388,609 bytes are not a multiple of the 8"),
    ],
)
def test_what_a_log_does_not_explain_is_damage(
    read: Callable[[LogFile], object],
    suffix: str,
    data: Callable[[], bytes],
    size_bytes: int,
    problem: str,
    tmp_path: Path,
) -> None:
    kind = CorruptTransactionIndexError if suffix == ".txnindex" else CorruptIndexError
    with pytest.raises(kind, match=problem):
        read(LogFile.at(segment(tmp_path, suffix, data(), size_bytes=size_bytes)))


def test_an_index_without_a_log_is_not_compared_with_one(tmp_path: Path) -> None:
    path = segment(tmp_path, ".index", offsets(MOST_ENTRIES + 1))
    path.with_suffix(".log").unlink()
    assert len(read_offset_index(LogFile.at(path))) == MOST_ENTRIES + 1


def test_more_than_is_held_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_files, "MAX_ENTRIES_BYTES", 8 * 1000)
    with pytest.raises(RefusedError, match=r"8,008 bytes of entries, more than the 8,000 .*\n`rebuild_indexes=True`"):
        read_offset_index(LogFile.at(segment(tmp_path, ".index", offsets(1001), size_bytes=MIB)))
    assert len(read_offset_index(LogFile.at(segment(tmp_path, ".index", offsets(1000), size_bytes=MIB)))) == 1000
    with pytest.raises(RefusedError, match="larger than 2,147,483,647 bytes"):
        read_offset_index(LogFile.at(segment(tmp_path, ".index", b"", size_bytes=1 << 31)))
