"""`clean.transactions`: aborted data, markers without data, and what is read behind the cleanable range."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kcompact.clean.transactions import (
    TransactionTracker,
    aborted_of_indexes,
    aborted_of_markers,
    read_transaction_batches,
    verify_transaction_indexes,
)
from kcompact.errors import CorruptBatchError, CorruptTransactionIndexError
from kcompact.format.batch import Batch, Record, build, parse_batches
from kcompact.format.index import AbortedTxn, AbortedTxnColumns
from kcompact.kernels import ABORT, COMMIT, DATA, NO_RECORD
from kcompact.log.transactions import TransactionBatch, table_of
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from tests.support import log_writer
from tests.support.wrong_transaction_indexes import SPEC, WRONG


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


def decided(tracker: TransactionTracker, *batches: TransactionBatch) -> tuple[list[bool], list[AbortedTxn]]:
    found = tracker.decide(table_of(batches))
    return found.is_discardable.tolist(), list(found.kept)


def tracker_of(*expected: AbortedTxn) -> TransactionTracker:
    return TransactionTracker(AbortedTxnColumns.of(expected))


def test_an_aborted_transaction_and_its_marker() -> None:
    entry = aborted(7, 1, 3)
    tracker = tracker_of(entry)
    assert decided(tracker, data(7, 0)) == ([False], [])  # of a transaction before
    assert decided(tracker, data(7, 1), data(8, 2)) == ([True, False], [])
    assert decided(tracker, marker(7, 3, ABORT)) == ([False], [entry])
    assert decided(tracker, data(7, 4)) == ([False], [])


def test_the_marker_of_data_that_is_gone() -> None:
    tracker = tracker_of(aborted(7, 1, 3))
    assert decided(tracker, marker(7, 3, ABORT)) == ([True], [])
    assert decided(tracker, marker(7, 5, ABORT)) == ([True], [])  # not even in the index


@pytest.mark.parametrize("is_left", [True, False])
def test_a_commit_marker_stays_while_a_batch_is_left(is_left: bool) -> None:
    tracker = tracker_of()
    if is_left:
        decided(tracker, data(7, 1))
    assert decided(tracker, marker(7, 2, COMMIT), marker(7, 3, COMMIT)) == ([not is_left, True], [])


def test_an_entry_that_comes_twice_does_no_harm() -> None:
    entry = aborted(7, 1, 2)
    assert decided(tracker_of(entry, entry), data(7, 1), marker(7, 2, ABORT)) == ([True, False], [entry])


def test_markers_of_other_kinds_stay_and_emptied_ones_go() -> None:
    assert decided(tracker_of(), marker(7, 1, 2), marker(7, 2, NO_RECORD)) == ([False, True], [])


# --- Behind the cleanable range: the last transaction that begins in it ends at offset 19 ---------------------------


def malformed(batch: Batch) -> bytes:
    """Return a marker whose key is too short, in the place of a data batch."""
    offset = batch.header.base_offset
    marker = build([Record(offset, 0, b"12", b"")], producer_id=7, producer_epoch=0, transactional=True, control=True)
    assert len(marker) == batch.header.size_bytes
    return marker


def with_wrong_checksum(batch: Batch) -> bytes:
    return bytes(batch.data[:-1]) + bytes([batch.data[-1] ^ 1])


def plan_at(
    tmp_path: Path,
    *,
    wrong: str | None = None,
    damaged: int = -1,
    damage: Callable[[Batch], bytes] = with_wrong_checksum,
) -> CleanPlan:
    """Return a plan, made before the batch with the offset `damaged` is changed."""
    directory = log_writer.write(SPEC, tmp_path / "logs")
    if wrong is not None:
        WRONG[wrong].apply(directory)
    plan = plan_partition(directory, SPEC.config, now_ms=SPEC.now_ms)
    assert plan.first_uncleanable_offset == 15
    for path in directory.glob("*.log"):
        batches = list(parse_batches(path.read_bytes(), file=""))
        path.write_bytes(
            b"".join(damage(each) if each.header.base_offset == damaged else each.data for each in batches)
        )
    return plan


def verify(plan: CleanPlan) -> None:
    verify_transaction_indexes(plan, read_transaction_batches(plan), aborted_of_indexes(plan))


def test_no_marker_is_read_behind_the_last_one_that_matters(tmp_path: Path) -> None:
    plan = plan_at(tmp_path, damaged=20, damage=malformed)
    verify(plan)
    found = aborted_of_markers(plan, read_transaction_batches(plan))
    assert {base: list(entries) for base, entries in found.items()} == {
        base: list(entries) for base, entries in aborted_of_indexes(plan).items()
    }


@pytest.mark.parametrize("damaged", [15, 17, 19])
def test_damage_up_to_that_marker_is_found(tmp_path: Path, damaged: int) -> None:
    plan = plan_at(tmp_path, damaged=damaged)
    with pytest.raises(CorruptBatchError, match="checksum"):
        verify(plan)
    with pytest.raises(CorruptBatchError, match="checksum"):
        aborted_of_markers(plan, read_transaction_batches(plan))


def test_the_first_problem_is_raised(tmp_path: Path) -> None:
    wrong = "young segment: producer id"  # The entry of the marker at offset 16.
    with pytest.raises(CorruptTransactionIndexError, match=WRONG[wrong].message):
        verify(plan_at(tmp_path / "behind", wrong=wrong, damaged=17))
    with pytest.raises(CorruptBatchError, match="checksum"):
        verify(plan_at(tmp_path / "before", wrong=wrong, damaged=15))
