"""The rules about batches and records, as truth tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kcompact.clean.batch_fates import Fate, decide_batch_fates, table_of
from kcompact.clean.job import CleanJob
from kcompact.clean.rules import delete_horizon_ms, keeps_record, needs_delete_horizon
from kcompact.clean.transactions import TransactionTracker
from kcompact.config.settings import LONG_MAX
from kcompact.format.batch import CONTROL_BIT, DELETE_HORIZON_BIT, Header, Record
from kcompact.format.index import AbortedTxn
from kcompact.log.batch_headers import ABORT, COMMIT
from kcompact.log.producer_state import LastRecord

NOW = 1000


def header(
    *,
    base_offset: int = 10,
    last_offset: int = 12,
    producer_id: int = 7,
    epoch: int = 1,
    control: bool = False,
    horizon: int | None = None,
    records: int = 1,
) -> Header:
    return Header(
        base_offset=base_offset,
        length=49,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=(CONTROL_BIT if control else 0) | (0 if horizon is None else DELETE_HORIZON_BIT),
        last_offset_delta=last_offset - base_offset,
        base_timestamp=0 if horizon is None else horizon,
        max_timestamp=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        records_count=records,
    )


def job(
    last_records: dict[int, LastRecord], upper_bound_offset: int = 20, *, keep_tombstones: bool = False
) -> CleanJob:
    return CleanJob(
        directory="",
        first_dirty_offset=0,
        upper_bound_offset=upper_bound_offset,
        now_ms=NOW,
        delete_retention_ms=0,
        keep_tombstones=keep_tombstones,
        last_records=last_records,
        hash_key=bytes(16),
        bucket_count=1,
    )


@pytest.mark.parametrize(
    ("past_map", "has_key", "is_superseded", "is_tombstone"), list(itertools.product([False, True], repeat=4))
)
@pytest.mark.parametrize("horizon", [None, NOW - 1, NOW, NOW + 1])
def test_keeps_record(
    past_map: bool, has_key: bool, is_superseded: bool, is_tombstone: bool, horizon: int | None
) -> None:
    kept = keeps_record(
        past_map=past_map,
        has_key=has_key,
        is_superseded=is_superseded,
        is_tombstone=is_tombstone,
        delete_horizon_ms=horizon,
        now_ms=NOW,
    )
    has_expired = is_tombstone and horizon in (NOW - 1, NOW)
    assert kept == (past_map or (has_key and not is_superseded and not has_expired))


@pytest.mark.parametrize(
    ("last", "one", "expected"),
    [
        (None, header(), False),
        (LastRecord(12, 1), header(), True),
        (LastRecord(12, 9), header(), True),  # of data only the offset counts
        (LastRecord(11, 1), header(), False),
        (LastRecord(13, 1), header(), False),
        (LastRecord(12, 1), header(producer_id=-1), False),
        (LastRecord(None, 1), header(), False),
        (LastRecord(None, 1), header(control=True), True),
        (LastRecord(None, 2), header(control=True), False),
        (LastRecord(12, 1), header(control=True), True),
        (LastRecord(11, 1), header(control=True), False),
    ],
)
def test_is_last_of_producer(last: LastRecord | None, one: Header, expected: bool) -> None:
    last_records = {} if last is None else {7: last, 3: LastRecord(12, 1), 99: LastRecord(None, 1)}
    (keeps_header,) = decide_batch_fates(table_of([one], is_discardable=[False]), job(last_records)).keeps_header
    assert keeps_header == expected


LAST, EARLIER = {7: LastRecord(12, 1)}, {7: LastRecord(11, 1)}


@pytest.mark.parametrize(
    ("one", "is_discardable", "last_records", "upper_bound_offset", "expected"),
    [
        # Data.
        (header(), False, {}, 20, (Fate.FILTER, False)),
        (header(), False, LAST, 20, (Fate.FILTER, True)),
        (header(), False, {}, 13, (Fate.FILTER, True)),
        (header(), False, {}, 12, (Fate.FILTER, False)),
        (header(), False, {}, 14, (Fate.FILTER, False)),
        # Data of an aborted transaction goes at once, whatever its horizon.
        (header(), True, {}, 20, (Fate.DROP, False)),
        (header(), True, EARLIER, 20, (Fate.DROP, False)),
        (header(), True, LAST, 20, (Fate.CLEAR, True)),
        (header(), True, {}, 13, (Fate.CLEAR, True)),
        (header(horizon=NOW + 1), True, {}, 20, (Fate.DROP, False)),
        # A marker whose transaction has no batch left goes when its horizon has come.
        (header(control=True), False, {}, 20, (Fate.FILTER, False)),
        (header(control=True), True, {}, 20, (Fate.FILTER, False)),
        (header(control=True, horizon=NOW + 1), True, {}, 20, (Fate.FILTER, False)),
        (header(control=True, horizon=NOW), True, {}, 20, (Fate.DROP, False)),
        (header(control=True, horizon=NOW), True, LAST, 20, (Fate.CLEAR, True)),
        (header(control=True, horizon=NOW), False, {}, 20, (Fate.FILTER, False)),
    ],
)
def test_the_fate_of_a_batch(
    one: Header,
    is_discardable: bool,
    last_records: dict[int, LastRecord],
    upper_bound_offset: int,
    expected: tuple[Fate, bool],
) -> None:
    table = table_of([one], is_discardable=[is_discardable])
    assert decide_batch_fates(table, job(last_records, upper_bound_offset)).of(0) == expected


@pytest.mark.parametrize(
    ("one", "latest", "expected"),
    [
        (header(), 0, Fate.CLEAR),
        (header(), 1, Fate.COPY),
        (header(records=2), 1, Fate.FILTER),
        (header(records=2), 2, Fate.COPY),
        (header(records=0), 0, Fate.CLEAR),
        (header(control=True), 0, Fate.FILTER),  # A marker has no key, so no bit.
        (header(last_offset=20), 0, Fate.FILTER),  # Above the upper bound every record stays.
    ],
)
def test_the_fate_by_the_number_of_latest_records(one: Header, latest: int, expected: Fate) -> None:
    table = table_of([one], is_discardable=[False])
    assert decide_batch_fates(table, job({}), np.array([latest])).of(0)[0] is expected


def test_keeping_tombstones_keeps_markers() -> None:
    table = table_of([header(control=True, horizon=NOW)], is_discardable=[True])
    assert decide_batch_fates(table, job({}, keep_tombstones=True)).of(0) == (Fate.FILTER, False)


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


# --- Transactions -----------------------------------------------------------------------------------------------


def aborted(producer_id: int, first_offset: int, last_offset: int) -> AbortedTxn:
    return AbortedTxn(
        producer_id=producer_id,
        first_offset=first_offset,
        last_offset=last_offset,
        last_stable_offset=last_offset + 1,
    )


def data(producer_id: int, offset: int) -> Header:
    return header(base_offset=offset, last_offset=offset, producer_id=producer_id)


def marker(producer_id: int, offset: int) -> Header:
    return header(base_offset=offset, last_offset=offset, producer_id=producer_id, control=True)


def test_an_aborted_transaction_and_its_marker() -> None:
    entry = aborted(7, 1, 3)
    tracker = TransactionTracker()
    tracker.expect([entry])
    assert not tracker.see_data(data(7, 0))  # of a transaction before
    assert tracker.see_data(data(7, 1))
    assert not tracker.see_data(data(8, 2))
    assert tracker.see_marker(marker(7, 3), ABORT) == (False, entry)
    assert not tracker.see_data(data(7, 4))


def test_the_marker_of_data_that_is_gone() -> None:
    tracker = TransactionTracker()
    tracker.expect([aborted(7, 1, 3)])
    assert tracker.see_marker(marker(7, 3), ABORT) == (True, None)
    assert tracker.see_marker(marker(7, 5), ABORT) == (True, None)  # not even in the index


@pytest.mark.parametrize("is_left", [True, False])
def test_a_commit_marker_stays_while_a_batch_is_left(is_left: bool) -> None:
    tracker = TransactionTracker()
    if is_left:
        tracker.see_data(data(7, 1))
    assert tracker.see_marker(marker(7, 2), COMMIT) == (not is_left, None)
    assert tracker.see_marker(marker(7, 3), COMMIT) == (True, None)


def test_an_entry_that_is_announced_twice_does_no_harm() -> None:
    entry = aborted(7, 1, 2)
    tracker = TransactionTracker()
    tracker.expect([entry])
    assert tracker.see_data(data(7, 1))
    tracker.expect([entry])
    assert tracker.see_marker(marker(7, 2), ABORT) == (False, entry)


def test_markers_of_other_kinds_stay_and_emptied_ones_go() -> None:
    tracker = TransactionTracker()
    assert tracker.see_marker(marker(7, 1), 2) == (False, None)
    assert tracker.see_marker(marker(7, 2), None) == (True, None)
