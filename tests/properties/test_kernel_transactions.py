"""The kernels that find, follow, judge and decide transactions, compared with their definitions."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact import kernels
from kcompact.clean.transactions import TransactionTracker
from kcompact.errors import CorruptTransactionIndexError
from kcompact.format.batch import Record, build, parse_batches, sealed
from kcompact.format.codec import Codec
from kcompact.format.index import AbortedTxn, AbortedTxnColumns
from kcompact.kernels import ABORT, COMMIT, DATA, EMPTY_DATA, HEADER_BYTES, MARKER_COLUMNS, NO_RECORD, Table
from kcompact.log.files import LogFile
from kcompact.log.markers import with_marker
from kcompact.log.segment_reader import VerifiedRun
from kcompact.log.transaction_index import Transactions, contradictions
from kcompact.log.transactions import PackedTable, TransactionBatch, find_transactions, of_headers, table_of
from tests.support import strategies
from tests.support.definitions import DefinedTracker, DefinedTransactions, defined_contradictions
from tests.support.kernel_inputs import array, same_offsets
from tests.support.kernel_inputs import table_of as batches_of

KINDS = [DATA, DATA, EMPTY_DATA, ABORT, ABORT, COMMIT, NO_RECORD, 2, 5, -1]
HISTORIES = 600
FILE = Path(f"{0:020d}.txnindex")


class History(NamedTuple):
    """The transactional and control batches of some segments, and the entries of their transaction indexes."""

    segments: list[list[TransactionBatch]]
    entries: list[list[AbortedTxn]]
    log_start_offset: int

    @property
    def tables(self) -> list[Table]:
        return [table_of(batches) for batches in self.segments]


def history_of(dice: random.Random, *, wrong: bool = False) -> History:
    """Open and hanging transactions, emptied markers, unknown control types, producers without an id.

    A cleaning may have dropped data batches: then an entry has no data. With `wrong` entries are changed or missing.
    """
    offset = dice.randint(0, 3)
    segments: list[list[TransactionBatch]] = []
    producer_ids = dice.choice([[7], [7, 8], [-1, 0, 7, 8, 2**62]])
    for _ in range(dice.randint(1, 3)):
        segment = []
        for _ in range(dice.randint(0, 25)):
            last_offset = offset + dice.choice([0, 0, 2])
            segment.append(TransactionBatch(offset, last_offset, dice.choice(producer_ids), dice.choice(KINDS)))
            offset = last_offset + dice.choice([1, 1, 3])
        segments.append(segment)
    transactions = DefinedTransactions()
    entries = [list(transactions.entries(batches)) for batches in segments]
    if dice.random() < 0.5:
        segments = [[one for one in batches if one.kind != DATA or dice.random() < 0.7] for batches in segments]
    if wrong:
        markers = [one.base_offset for batches in segments for one in batches if one.kind in (ABORT, COMMIT)]
        numbers = [-1, 0, 7, 8, 2**62, offset, *markers, *(each + 1 for each in markers)]
        for segment_entries in entries:
            for number, entry in enumerate(segment_entries):
                if dice.random() < 0.5:
                    name = dice.choice(["producer_id", "first_offset"])
                    segment_entries[number] = entry._replace(**{name: dice.choice(numbers)})
            if segment_entries and dice.random() < 0.2:
                segment_entries.pop(dice.randrange(len(segment_entries)))
    return History(segments, entries, dice.choice([0, 0, 0, offset // 2]))


def histories(*, wrong: bool = False) -> Iterator[History]:
    for seed in range(HISTORIES):
        yield history_of(random.Random(seed), wrong=wrong and seed % 3 > 0)


def parts_of(table: Table, number: int) -> list[Table]:
    """Return the table in one to three parts."""
    return np.array_split(table, 1 + number % 3)


def test_a_packed_table_is_the_same() -> None:
    for history in histories():
        for table in history.tables:
            packed = PackedTable.of(table)
            assert packed.table.tolist() == table.tolist()
            assert pickle.loads(pickle.dumps(packed)).table.tolist() == table.tolist()


@pytest.mark.parametrize("producer_ids", [(0,), (7, 8), (-1, 2**63 - 1), (-(2**63), 2**63 - 1), (-(2**63), 0)])
def test_a_packed_table_of_any_producers(producer_ids: tuple[int, ...]) -> None:
    table = table_of(
        TransactionBatch(2**62 + 3 * at, 2**62 + 3 * at + 2, each, -5) for at, each in enumerate(producer_ids)
    )
    assert PackedTable.of(table).table.tolist() == table.tolist()


def test_a_packed_table_takes_a_few_bytes_for_a_batch() -> None:
    rows = (TransactionBatch(at, at, 1000 + at % 5, DATA if at % 2 else COMMIT) for at in range(1000))
    assert len(pickle.dumps(PackedTable.of(table_of(rows)))) < 6 * 1000


def test_abort_markers() -> None:
    for number, history in enumerate(histories()):
        definition, compiled = DefinedTransactions(), Transactions()
        for batches, table in zip(history.segments, history.tables, strict=True):
            found = [row for part in parts_of(table, number) for row in compiled.abort_markers(part).tolist()]
            assert found == [list(marker) for marker in definition.abort_markers(batches)]
            for offset in {0, number % 20, 10**6}:
                assert compiled.open_below(offset) == definition.open_below(offset)


def test_the_entries_that_markers_give() -> None:
    for number, history in enumerate(histories()):
        definition, compiled = DefinedTransactions(), Transactions()
        for batches, table in zip(history.segments, history.tables, strict=True):
            assert tuple(compiled.entries(parts_of(table, number))) == definition.entries(batches)


def test_very_many_producers() -> None:
    """The markers end the transactions in the order of the producers, the batches begin them in another one."""
    producer_ids = np.random.default_rng(1).permutation(50_000).astype(np.int64)
    data, markers = np.empty((50_000, 4), np.int64), np.empty((50_000, 4), np.int64)
    data[:, 0] = data[:, 1] = np.arange(50_000)
    data[:, 2], data[:, 3] = producer_ids, DATA
    markers[:, 0] = markers[:, 1] = np.arange(50_000, 100_000)
    markers[:, 2], markers[:, 3] = np.arange(50_000), ABORT
    transactions = Transactions()
    assert not transactions.entries(np.array_split(data, 100))
    assert transactions.open_below(2) == set(producer_ids[:2].tolist())
    found = transactions.entries(np.array_split(markers, 7)).table
    assert found[:, 0].tolist() == list(range(50_000))
    assert found[:, 1].tolist() == np.argsort(producer_ids).tolist()
    assert transactions.open_below(10**6) == set()


def test_contradictions() -> None:
    """The same problems in the same order, and afterwards the same transactions."""
    counts = []
    for number, history in enumerate(histories(wrong=True)):
        start, file = history.log_start_offset, LogFile.at(FILE)
        definition, compiled = DefinedTransactions(), Transactions(start_offset=start)
        problems = 0
        for batches, table, entries in zip(history.segments, history.tables, history.entries, strict=True):
            end = None if number % 2 else int(table[-1, 0]) + number % 5 - 2 if len(table) else 0
            expected = defined_contradictions(definition, file, entries, batches, start_offset=start, judged_end=end)
            found = contradictions(compiled, file, entries, parts_of(table, number), judged_end=end)
            texts = [facts_of(problem) for problem in found]
            assert texts == [facts_of(problem) for problem in expected]
            assert compiled.open_below(10**6) == definition.open_below(10**6)
            problems += len(texts)
        counts.append(problems)
    assert HISTORIES // 4 < counts.count(0) < HISTORIES * 3 // 4
    assert sum(each > 2 for each in counts) > 20


def facts_of(problem: CorruptTransactionIndexError) -> tuple[str, str | None, int | None, int | None]:
    return str(problem), problem.file, problem.position, problem.offset


def test_the_tracker() -> None:
    for number, history in enumerate(histories(wrong=True)):
        expected = [entry for entries in history.entries for entry in entries]
        definition, compiled = DefinedTracker(expected), TransactionTracker(AbortedTxnColumns.of(expected))
        for batches, table in zip(history.segments, history.tables, strict=True):
            found = [compiled.decide(part) for part in parts_of(table, number)]
            is_discardable = [each for one in found for each in one.is_discardable.tolist()]
            kept = [entry for one in found for entry in one.kept]
            assert (is_discardable, kept) == definition.decide(batches)


@st.composite
def control_batches(draw: st.DrawFn) -> bytes:
    """Markers as Kafka writes them, emptied, compressed, of any type, with odd keys and values, several in a batch."""
    kind = draw(st.sampled_from([0, 0, 1, 1, 2, 6, 0x7FFF, 0xFFFF]))
    record = Record(
        0,
        draw(strategies.near_timestamps),
        b"\0\0" + kind.to_bytes(2, "big") + draw(st.sampled_from([b"", b"", b"more"])),
        draw(st.sampled_from([bytes(6), bytes(6), bytes(9), b"\0\1\0\0\0\5"] + ([b"", None] if kind > 1 else []))),
    )
    data = build(
        [record] + [Record(1, record.timestamp, record.key, record.value)] * draw(st.sampled_from([0, 0, 0, 1])),
        codec=draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP])),
        producer_id=draw(st.integers(0, 3)),
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    (one,) = parse_batches(data, file="")
    if draw(st.sampled_from([True, False, False])):
        emptied = one.header._replace(records_count=0, length=HEADER_BYTES - 12)
        return bytes(sealed(emptied, b""))
    return data


@given(st.lists(control_batches() | strategies.batches(), min_size=1, max_size=6).map(same_offsets))
def test_what_is_found_in_a_split(data: bytes) -> None:
    table, code = batches_of(data)
    assert code == kernels.DONE
    batches = list(parse_batches(data, file=""))
    found = find_transactions(VerifiedRun(array(data), table, 0, -1), LogFile.at("log"))
    assert found.tolist() == [list(one) for one in of_headers(with_marker(each, file="") for each in batches)]


def test_the_kernels_stop_at_the_end_of_an_array() -> None:
    batches = table_of([TransactionBatch(0, 0, 7, DATA), TransactionBatch(1, 1, 7, ABORT)])
    state, markers = np.full((2, kernels.OPEN_COLUMNS), -1, np.int64), np.empty((0, MARKER_COLUMNS), np.int64)
    state[0, [kernels.OPEN_NEXT, kernels.OPEN_PREVIOUS]] = 0
    numbers = np.ones(2, np.int64)
    assert kernels.follow_transactions(batches, numbers, 0, state, markers) == (0, kernels.FULL)
