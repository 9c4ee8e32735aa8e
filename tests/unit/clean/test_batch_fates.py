"""`clean.batch_fates`: what becomes of a batch, decided from its header, as truth tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kcompact.clean.batch_fates import Fate, decide_batch_fates, table_of
from kcompact.clean.job import CleanJob
from kcompact.format.batch import Header
from kcompact.log.producer_state import LastRecord
from tests.support.header_values import NOW, header
from tests.support.jobs import JOB


def job(
    last_records: dict[int, LastRecord], upper_bound_offset: int = 20, *, keep_tombstones: bool = False
) -> CleanJob:
    return replace(
        JOB,
        upper_bound_offset=upper_bound_offset,
        high_watermark=upper_bound_offset,
        now_ms=NOW,
        keep_tombstones=keep_tombstones,
        last_records=last_records,
    )


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


@pytest.mark.parametrize(
    ("one", "is_discardable", "replica_end", "expected"),
    [
        # The batch is that of the offsets 10 to 12: it is held back for a replica that ends at 12 or below.
        (header(control=True, horizon=NOW), True, None, (Fate.DROP, False)),
        (header(control=True, horizon=NOW), True, 13, (Fate.DROP, False)),
        (header(control=True, horizon=NOW), True, 12, (Fate.FILTER, False)),
        (header(control=True, horizon=NOW), True, 11, (Fate.FILTER, False)),
        (header(control=True, horizon=NOW), True, 0, (Fate.FILTER, False)),
        (header(control=True, horizon=NOW + 1), True, 13, (Fate.FILTER, False)),
        (header(control=True), True, 0, (Fate.FILTER, False)),
        # Data of an aborted transaction goes all the same.
        (header(horizon=NOW), True, 0, (Fate.DROP, False)),
        (header(), True, 0, (Fate.DROP, False)),
    ],
)
def test_markers_are_held_back_for_a_replica(
    one: Header, is_discardable: bool, replica_end: int | None, expected: tuple[Fate, bool]
) -> None:
    table = table_of([one], is_discardable=[is_discardable])
    assert decide_batch_fates(table, replace(job({}), held_back_from_offset=replica_end)).of(0) == expected
