"""Which record supersedes which, with the log in any number of pieces."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kcompact.clean import offset_map
from kcompact.clean.offset_map import (
    IN_MAP,
    KEY_BYTES,
    SPLIT_SHIFT,
    KeyCollector,
    Survivors,
    count_bits,
    latest,
    reduce_bucket,
    take,
)
from kcompact.format.block import Keys, clear_rows, head, unpack_keys
from tests.support.definitions import defined_latest
from tests.support.jobs import JOB

Row = tuple[int, int, int]


@st.composite
def key_rows(draw: st.DrawFn) -> list[Row]:
    """Rows of few keys and several splits, record references ascending, with gaps where records have no key."""
    rows = []
    for split in range(draw(st.integers(1, 4))):
        for row in sorted(draw(st.sets(st.integers(0, 20), max_size=12))):
            record_ref = split << SPLIT_SHIFT | row << 1 | draw(st.integers(0, 1))
            rows.append((draw(st.integers(0, 2)), draw(st.integers(0, 1)), record_ref))
    return rows


def keys_of(rows: list[Row]) -> Keys:
    high, low, record_ref = zip(*rows, strict=True) if rows else ((), (), ())
    return Keys(np.array(high, np.uint64), np.array(low, np.uint64), np.array(record_ref, np.int64))


def rows_in(keys: Keys) -> list[Row]:
    return list(zip(*(column.tolist() for column in keys), strict=True))


def latest_in(rows: list[Row]) -> list[Row]:
    """Return the rows that `offset_map.latest` keeps, by its definition."""
    greatest: dict[tuple[int, int], int] = {}
    for high, low, record_ref in rows:
        if record_ref & IN_MAP:
            greatest[high, low] = record_ref
    return [row for row in rows if row[2] >= greatest.get(row[:2], -1)]


# --- latest -------------------------------------------------------------------------------------------------------


@given(key_rows())
def test_latest_is_its_definition(rows: list[Row]) -> None:
    keys = keys_of(rows)
    assert rows_in(take(keys, latest(keys))) == rows_in(take(keys, defined_latest(keys))) == latest_in(rows)


@given(key_rows(), st.integers(0, 40))
def test_latest_is_idempotent_and_associative(rows: list[Row], cut: int) -> None:
    keys = keys_of(rows)
    whole = take(keys, latest(keys))
    assert latest(whole).all()
    halves = [take(keys, slice(None, cut)), take(keys, slice(cut, None))]
    joined = offset_map.joined([take(part, latest(part)) for part in halves])
    assert rows_in(take(joined, latest(joined))) == rows_in(whole)


@given(key_rows(), st.randoms())
def test_the_definition_does_not_depend_on_the_order(rows: list[Row], random: object) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    keys = keys_of(shuffled)
    assert sorted(rows_in(take(keys, defined_latest(keys)))) == sorted(latest_in(rows))


# --- Pieces ---------------------------------------------------------------------------------------------------------


def by_splits(rows: list[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row[2] >> SPLIT_SHIFT, []).append(row)
    return found


def collected(
    rows: list[Row], *, buckets: int, limit_rows: int, piece: int
) -> tuple[list[tuple[int, bytes]], Survivors]:
    """Hand rows to a collector, those of a split in pieces; return its blocks and bits."""
    collector = KeyCollector(buckets, limit_rows * KEY_BYTES)
    blocks = []
    for split, own in by_splits(rows).items():
        for start in range(0, len(own), piece):
            collector.add(split, 21, keys_of(own[start : start + piece]))
            blocks += list(collector.blocks())
    blocks += list(collector.finish())
    assert list(collector.finish()) == []
    return blocks, collector.survivors


def survivors_of(survivors: Survivors, rows: list[Row]) -> list[Row]:
    return [
        row
        for row in rows
        if offset_map.bits(survivors.bitmaps[row[2] >> SPLIT_SHIFT], int(row[2] >> 1 & 0xFFFF), 1) == [True]
    ]


@given(
    key_rows(),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 2, 3, 10, 1000]),
    st.sampled_from([1, 2, 5, 100]),
    st.randoms(),
)
def test_any_pieces_give_the_latest_records(
    rows: list[Row], buckets: int, limit_rows: int, piece: int, random: object
) -> None:
    blocks, survivors = collected(rows, buckets=buckets, limit_rows=limit_rows, piece=piece)
    by_bucket: dict[int, list[bytes]] = {}
    for bucket, block in blocks:
        keys = unpack_keys(block)
        assert head(block).number == bucket
        assert keys.rows
        assert set((keys.hash_high % np.uint64(buckets)).tolist()) == {bucket}
        assert rows_in(keys) == latest_in(rows_in(keys)), "a block holds a record that its own records supersede"
        by_bucket.setdefault(bucket, []).append(block)
    map_keys = 0
    for own in by_bucket.values():
        random.shuffle(own)  # type: ignore[attr-defined]
        superseded_rows, keys_in, superseded_keys, distinct = reduce_bucket(JOB, own)
        map_keys += distinct
        assert keys_in == sum(head(block).rows for block in own)
        set_bits = sum(map(count_bits, survivors.bitmaps.values()))
        for block in superseded_rows:
            clear_rows(block, survivors.bitmaps[head(block).number])
        assert set_bits - sum(map(count_bits, survivors.bitmaps.values())) == superseded_keys
    expected = latest_in(rows)
    assert survivors_of(survivors, rows) == expected
    assert map_keys == len({row[:2] for row in rows if row[2] & IN_MAP})
    # No bit is set where there is no key.
    assert sum(int(np.unpackbits(bitmap).sum()) for bitmap in survivors.bitmaps.values()) == len(expected)


def test_a_collector_holds_no_more_than_it_may() -> None:
    rows = [(key, key, split << SPLIT_SHIFT | row << 1 | 1) for split in range(6) for row, key in enumerate(range(20))]
    blocks, _ = collected(rows, buckets=1, limit_rows=60, piece=10)
    assert len(blocks) == 1, "twenty keys fit, however often they come"
    distinct = [(record_ref, 0, record_ref) for _, _, record_ref in rows]
    blocks, _ = collected(distinct, buckets=1, limit_rows=60, piece=10)
    assert sum(head(block).rows for _, block in blocks) == len(distinct)
    assert max(head(block).rows for _, block in blocks) <= 60


def test_a_collector_takes_more_at_once_than_it_may_hold() -> None:
    blocks, _ = collected([(row, 0, row << 1 | 1) for row in range(20)], buckets=2, limit_rows=1, piece=99)
    assert sum(head(block).rows for _, block in blocks) == 20


def test_added_keys_can_be_rolled_back_until_they_are_merged() -> None:
    collector = KeyCollector(1, 10 * KEY_BYTES)
    collector.add(0, 8, keys_of([(1, 1, 1), (2, 2, 3)]))
    begin = collector.savepoint()
    second = [(1, 1, 1 << SPLIT_SHIFT | 1), (9, 9, 1 << SPLIT_SHIFT | 3)]
    collector.add(1, 8, keys_of(second[:1]))
    assert collector.rollback(begin)
    collector.add(1, 8, keys_of(second))
    ((_, block),) = collector.finish()
    assert rows_in(unpack_keys(block)) == [(2, 2, 3), *second]
    begin = collector.savepoint()
    for split in (2, 3):
        collector.add(split, 8, keys_of([(row, row, split << SPLIT_SHIFT | row << 1) for row in range(8)]))
    assert not collector.rollback(begin)


# --- Bits -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 30), st.sets(st.integers(0, 29)), st.sets(st.integers(0, 29)))
def test_survivors(records: int, latest_rows: set[int], superseded_rows: set[int]) -> None:
    latest_rows, superseded_rows = ({row for row in rows if row < records} for rows in (latest_rows, superseded_rows))
    survivors = Survivors()

    def record_refs(split: int, rows: set[int]) -> list[int]:
        return [split << SPLIT_SHIFT | row << 1 | row & 1 for row in sorted(rows)]

    for split in (0, 7):
        survivors.add(split, records, np.array(record_refs(split, latest_rows), np.int64))
    survivors.clear(np.array(record_refs(0, set()) + record_refs(7, superseded_rows), np.int64))
    assert {split: len(bitmap) for split, bitmap in survivors.bitmaps.items()} == dict.fromkeys(
        (0, 7), -(-records // 8)
    )
    for split, expected in ((0, latest_rows), (7, latest_rows - superseded_rows)):
        found = offset_map.bits(survivors.bitmaps[split], 0, records)
        assert {row for row, bit in enumerate(found) if bit} == expected


@given(st.binary(max_size=5), st.integers(0, 50), st.integers(0, 50))
def test_bits_of_some_rows(content: bytes, row: int, count: int) -> None:
    every = [content[at >> 3] >> (at & 7) & 1 == 1 if at >> 3 < len(content) else False for at in range(200)]
    found = offset_map.bits(np.array(bytearray(content), np.uint8), row, count)
    assert list(found) == every[row : row + count]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2**35 - 1)), unique=True).map(sorted))
def test_record_references_by_split(given_: list[tuple[int, int]]) -> None:
    record_refs = np.array([split << SPLIT_SHIFT | row << 1 for split, row in given_], np.int64)
    found = [
        (split, row) for split, own in offset_map.by_split(record_refs) for row in offset_map.rows_of(own).tolist()
    ]
    assert found == given_
