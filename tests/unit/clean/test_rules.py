"""`clean.rules`: which records stay, and delete horizons, as truth tables."""

from __future__ import annotations

import itertools

import pytest

from kcompact.clean.rules import RecordFate, delete_horizon_ms, needs_delete_horizon, record_fate
from kcompact.config.settings import LONG_MAX
from kcompact.format.batch import Header, Record
from tests.support.header_values import NOW, header


@pytest.mark.parametrize(
    ("past_map", "has_key", "is_superseded", "is_tombstone"), list(itertools.product([False, True], repeat=4))
)
@pytest.mark.parametrize("horizon", [None, NOW - 1, NOW, NOW + 1])
@pytest.mark.parametrize("is_held_back", [False, True])
def test_record_fate(
    past_map: bool, has_key: bool, is_superseded: bool, is_tombstone: bool, horizon: int | None, is_held_back: bool
) -> None:
    fate = record_fate(
        past_map=past_map,
        has_key=has_key,
        is_superseded=is_superseded,
        is_tombstone=is_tombstone,
        delete_horizon_ms=horizon,
        is_held_back=is_held_back,
        now_ms=NOW,
    )
    has_expired = is_tombstone and horizon in (NOW - 1, NOW)
    assert (fate is RecordFate.KEPT) == (past_map or (has_key and not is_superseded and not has_expired))
    assert (fate is RecordFate.HELD_BACK) == (
        is_held_back and has_expired and has_key and not is_superseded and not past_map
    )
    assert fate is not RecordFate.EXPIRED or not is_held_back
    if fate is not RecordFate.KEPT:
        assert (fate is RecordFate.UNKEYED) == (not has_key)
        assert (fate is RecordFate.SUPERSEDED) == (has_key and is_superseded)


VALUE, TOMBSTONE = Record(10, 0, b"a", b"1"), Record(11, 0, b"b", None)


@pytest.mark.parametrize(
    ("one", "kept", "is_discardable", "expected"),
    [
        (header(), [VALUE], False, False),
        (header(), [VALUE, TOMBSTONE], False, True),
        (header(horizon=5), [VALUE, TOMBSTONE], False, False),
        (header(), [VALUE], True, False),
        (header(control=True), [VALUE], False, False),
        (header(control=True), [VALUE], True, True),
        (header(control=True, horizon=5), [VALUE], True, False),
    ],
)
def test_needs_delete_horizon(one: Header, kept: list[Record], is_discardable: bool, expected: bool) -> None:
    assert needs_delete_horizon(one, kept, is_discardable=is_discardable) == expected


@pytest.mark.parametrize(
    ("retention", "expected"),
    [(0, NOW), (5, NOW + 5), (LONG_MAX - NOW, LONG_MAX), (LONG_MAX - NOW + 1, None), (LONG_MAX, None)],
)
def test_delete_horizon(retention: int, expected: int | None) -> None:
    assert delete_horizon_ms(now_ms=NOW, delete_retention_ms=retention) == expected
