"""How many rows a collector holds: few for few keys, more while merging saves blocks, no more than it may."""

from __future__ import annotations

import numpy as np
import pytest

from kcompact.format.block import unpack_table
from kcompact.kernels import KEY_COLUMNS, KEY_HIGH, KEY_LOW, KEY_REF, KEY_VERSIONS, Table
from kcompact.questions.keys import rows
from kcompact.questions.keys.rows import RowCollector
from tests.support.key_definitions import merged

ROW = 8 * KEY_COLUMNS
FIRST, LIMIT, MOST, ADDED, COUNT = 100, 200, 800, 50, 4000


def table(first: int, keys: int) -> Table:
    """Rows with rising references: of random keys, or of a new key each if there are as many."""
    found = np.ones((ADDED, KEY_COLUMNS), np.int64)
    found[:, KEY_REF] = np.arange(first, first + ADDED)
    random = np.random.default_rng(first).integers(keys, size=ADDED)
    numbers = found[:, KEY_REF] if keys == COUNT else random
    found[:, KEY_LOW] = (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    found[:, KEY_HIGH] = found[:, KEY_LOW] ^ 5
    return found


@pytest.mark.parametrize(
    ("keys", "most_rows", "held", "is_packed_early"),
    [
        *[(10, MOST, FIRST, False), (FIRST, MOST, LIMIT, False), (300, MOST, MOST, False), (COUNT, MOST, LIMIT, True)],
        *[(10, LIMIT, FIRST, False), (300, LIMIT, LIMIT, True)],
    ],
)
def test_how_many_rows_are_held(
    keys: int, most_rows: int, held: int, is_packed_early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "TABLE_BYTES", FIRST * ROW)
    collector = RowCollector(7, columns=KEY_COLUMNS, bucket_bits=1, limit_bytes=LIMIT * ROW, most_bytes=most_rows * ROW)
    early: list[tuple[int, bytes]] = []
    most, tables = 0, [table(first, keys) for first in range(0, COUNT, ADDED)]
    for each in tables:
        collector.add(each)
        most = max(most, len(collector._held()))
        early += collector.blocks()
    assert held // 2 < most <= held
    assert bool(early) is is_packed_early
    blocks = [*early, *collector.finish()]
    found = [unpack_table(block)[1] for _, block in blocks]
    assert merged(np.concatenate(found)).tolist() == merged(np.concatenate(tables)).tolist()
    assert sum(int(each[:, KEY_VERSIONS].sum()) for each in found) == COUNT
    for (bucket, _), each in zip(blocks, found, strict=True):
        assert {int(low) >> 63 for low in each[:, KEY_LOW].view(np.uint64)} == {bucket}
