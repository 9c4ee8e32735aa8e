"""`clean.transactions`: aborted data, and markers without data."""

from __future__ import annotations

import pytest

from kcompact.clean.transactions import TransactionTracker
from kcompact.format.index import AbortedTxn
from kcompact.kernels import ABORT, COMMIT, DATA, NO_RECORD
from kcompact.log.transactions import TransactionBatch


def aborted(producer_id: int, first_offset: int, last_offset: int) -> AbortedTxn:
    return AbortedTxn(
        producer_id=producer_id,
        first_offset=first_offset,
        last_offset=last_offset,
        last_stable_offset=last_offset + 1,
    )


def data(producer_id: int, offset: int) -> TransactionBatch:
    return TransactionBatch(offset, offset, producer_id, DATA)


def marker(producer_id: int, offset: int, kind: int) -> TransactionBatch:
    return TransactionBatch(offset, offset, producer_id, kind)


def test_an_aborted_transaction_and_its_marker() -> None:
    entry = aborted(7, 1, 3)
    tracker = TransactionTracker()
    tracker.expect([entry])
    assert not tracker.see_data(data(7, 0))  # of a transaction before
    assert tracker.see_data(data(7, 1))
    assert not tracker.see_data(data(8, 2))
    assert tracker.see_marker(marker(7, 3, ABORT)) == (False, entry)
    assert not tracker.see_data(data(7, 4))


def test_the_marker_of_data_that_is_gone() -> None:
    tracker = TransactionTracker()
    tracker.expect([aborted(7, 1, 3)])
    assert tracker.see_marker(marker(7, 3, ABORT)) == (True, None)
    assert tracker.see_marker(marker(7, 5, ABORT)) == (True, None)  # not even in the index


@pytest.mark.parametrize("is_left", [True, False])
def test_a_commit_marker_stays_while_a_batch_is_left(is_left: bool) -> None:
    tracker = TransactionTracker()
    if is_left:
        tracker.see_data(data(7, 1))
    assert tracker.see_marker(marker(7, 2, COMMIT)) == (not is_left, None)
    assert tracker.see_marker(marker(7, 3, COMMIT)) == (True, None)


def test_an_entry_that_is_announced_twice_does_no_harm() -> None:
    entry = aborted(7, 1, 2)
    tracker = TransactionTracker()
    tracker.expect([entry])
    assert tracker.see_data(data(7, 1))
    tracker.expect([entry])
    assert tracker.see_marker(marker(7, 2, ABORT)) == (False, entry)


def test_markers_of_other_kinds_stay_and_emptied_ones_go() -> None:
    tracker = TransactionTracker()
    assert tracker.see_marker(marker(7, 1, 2)) == (False, None)
    assert tracker.see_marker(marker(7, 2, NO_RECORD)) == (True, None)
