"""The count of keys, by example: classes of records, damage, wrong indexes, little memory, contradicting counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kcompact.engine.in_process import InProcess
from kcompact.errors import AccountingError, CorruptBatchError
from kcompact.format.batch import Record, build
from kcompact.format.block import pack_table, unpack_table
from kcompact.kernels import KEY_VERSIONS, Table
from kcompact.plan.clean_plan import CleanPlan
from kcompact.questions.keys import reduce, rows
from kcompact.questions.keys.count import count_keys
from kcompact.questions.keys.counts import CountOptions, KeyCounts, LogKeys, NamedKey, Tally
from kcompact.questions.keys.reduce import top_rows
from tests.support import log_dsl
from tests.support.command_line import LOG0, LOG3, flip
from tests.support.log_writer import DEFAULT_TIME, LogSpec, SegmentSpec
from tests.support.stages import plan_of

HOUR = 3_600_000
NINE = DEFAULT_TIME


def numbers(counts: KeyCounts) -> dict[str, int]:
    return {name: getattr(counts, name).number for name in KeyCounts.__dataclass_fields__ if getattr(counts, name)[0]}


def counted(text: str, tmp_path: Path) -> LogKeys:
    (found,) = count_keys([plan_of(log_dsl.parse(text), tmp_path)], InProcess()).logs
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0: a=1", {"live_keys": 1}),
        ("0: a=1 a=2", {"live_keys": 1, "superseded_records": 1}),
        ("0: a=1 a=~", {"superseded_records": 1, "unstamped_tombstones": 1}),
        ("0: a=~ a=1", {"superseded_records": 1, "live_keys": 1}),
        ("0: [a=~](horizon=10:01)", {"waiting_tombstones": 1}),
        ("0: [a=~](horizon=10:00)", {"expired_tombstones": 1}),
        ("0: [a=~](horizon=09:59)", {"expired_tombstones": 1}),
        ("0: ~=1 ~=~ a=1", {"null_key_records": 2, "live_keys": 1}),
        ('0: ""=1', {"live_keys": 1}),
        ("0: a=1 []@1..3", {"live_keys": 1, "empty_batches": 1}),
        ("0: a=1\n1: a=2", {"live_keys": 1, "superseded_records": 1}),
        # An aborted record supersedes nothing, whatever the index says.
        (
            "0: a=1 [a=2](pid=7 epoch=0 seq=0 txn) [abort](pid=7 epoch=0)",
            {"live_keys": 1, "aborted_records": 1, "control_records": 1},
        ),
        (
            "0: a=1 [a=2](pid=7 epoch=0 seq=0 txn) [commit](pid=7 epoch=0)",
            {"live_keys": 1, "superseded_records": 1, "control_records": 1},
        ),
        # An open transaction holds back all that follows, markers too.
        (
            "0: a=1 [a=2](pid=7 epoch=0 seq=0 txn) b=1 [c=1](pid=8 epoch=0 seq=0 txn) [abort](pid=8 epoch=0)",
            {"live_keys": 1, "undecided_records": 4},
        ),
    ],
)
def test_classes(text: str, expected: dict[str, int], compiled: bool, tmp_path: Path) -> None:
    found = numbers(counted(f"log now=10:00 lone\n{text}", tmp_path).counts)
    found.pop("batches")
    assert found == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("start=2", {"below_start_records": 2, "live_keys": 2}),
        ("hw=2", {"superseded_records": 1, "live_keys": 1, "undecided_records": 2}),
        ("start=1 hw=3", {"below_start_records": 1, "undecided_records": 1, "live_keys": 2}),
    ],
)
def test_the_view_ends_at_the_log_start_and_the_high_watermark(
    settings: str, expected: dict[str, int], tmp_path: Path
) -> None:
    found = numbers(counted(f"log now=10:00 {settings}\n0: a=1 a=2 b=1 a=3", tmp_path).counts)
    found.pop("batches")
    assert found == expected


@pytest.mark.parametrize(
    ("settings", "stable_offset", "expected"),
    [
        ("hw=2", 2, {"superseded_records": 1, "live_keys": 1, "undecided_records": 3}),
        ("hw=3", 2, {"superseded_records": 1, "live_keys": 1, "undecided_records": 3}),
        ("hw=4", 2, {"superseded_records": 1, "live_keys": 1, "undecided_records": 3}),
        ("hw=5", 5, {"superseded_records": 3, "live_keys": 2}),
        ("hw=4 start=3", 3, {"undecided_records": 2, "below_start_records": 3}),
    ],
)
@pytest.mark.parametrize("index", ["", "index.interval.bytes=0"])
def test_a_reader_does_not_see_the_batch_in_which_the_high_watermark_lies(
    index: str, settings: str, stable_offset: int, expected: dict[str, int], tmp_path: Path
) -> None:
    text = f"log now=10:00 {settings} {index}\n0: a=1 a=2 [a=3 b=2 b=3](lz4)"
    keys = counted(text, tmp_path)
    found = numbers(keys.counts)
    found.pop("batches")
    assert (keys.committed_end_offset, found) == (stable_offset, expected)


def test_bytes_times_and_bins(tmp_path: Path) -> None:
    text = "log now=10:00\n0: a=1^09:30 a=22^10:30 b=1^-1 c=333^09:00:00.001 d=1^09:00"
    found = counted(text, tmp_path)
    # A record of a batch of its own: length, attributes, three differences and counts of one byte each, key, value.
    assert found.counts.live_keys == Tally(4, 10 + 9 + 11 + 9)
    assert found.counts.superseded_records == Tally(1, 9)
    ages = {(each.kind, each.below_ms): each.live_keys.number for each in found.ages if each.live_keys.number}
    assert ages == {("future", None): 1, ("unknown", None): 1, ("age", 24 * HOUR): 1, ("age", HOUR): 1}
    assert found.most_bytes[0] == NamedKey(b"a", 1, NINE + 90 * 60_000, False, 2, 19, 10)


@pytest.mark.parametrize(
    ("name", "position", "end_offset", "live"),
    [(LOG0, -1, 2, 2), (LOG0, 0, 0, 0), (LOG3, -1, 5, 3), (LOG3, 20, 3, 2)],
)
def test_damage_ends_the_count(
    name: str, position: int, end_offset: int, live: int, compiled: bool, tmp_path: Path
) -> None:
    plan = plan_of(log_dsl.parse("log now=10:00\n0: a=1 b=2 a=3\n3: b=4 c=5 d=6\n6: a=6"), tmp_path)
    flip(plan.log.directory / name, position)
    (found,) = count_keys([plan], InProcess()).logs
    assert (found.counted_to_offset, found.counts.live_keys.number) == (end_offset, live)
    assert isinstance(found.problem, CorruptBatchError)
    assert found.problem.file.endswith(name)


@pytest.mark.parametrize("marker", ["abort", "commit"])
def test_a_transaction_whose_marker_lies_behind_the_damage_is_open(marker: str, compiled: bool, tmp_path: Path) -> None:
    text = f"0: a=1 [a=2](pid=7 epoch=0 seq=0 txn) b=1\n3: c=1 [{marker}](pid=7 epoch=0)\n5: d=1"
    plan = plan_of(log_dsl.parse(f"log now=10:00\n{text}"), tmp_path)
    flip(plan.log.directory / LOG3, 69)  # The value of c: the headers are sound.
    (found,) = count_keys([plan], InProcess()).logs
    assert (found.committed_end_offset, found.counted_to_offset) == (1, 3)
    assert numbers(found.counts) == {"live_keys": 1, "undecided_records": 2, "batches": 3}


def test_damage_of_one_partition_leaves_the_others_alone(compiled: bool, tmp_path: Path) -> None:
    plans = [
        plan_of(log_dsl.parse(f"log now=10:00 name=orders-{number}\n0: a=1 b={number}\n2: c=1"), tmp_path)
        for number in range(3)
    ]
    flip(plans[1].log.directory / LOG0, -1)
    found = count_keys(plans, InProcess(), split_bytes=1)
    assert [each.counts.live_keys.number for each in found.logs] == [3, 1, 3]
    assert [each.problem is None for each in found.logs] == [True, False, True]
    assert (found.distinct_keys, found.shared_keys) == (3, 3)


def batches(count: int, *, keys: int, records: int = 10) -> tuple[bytes, ...]:
    return tuple(
        build(
            [Record(offset, NINE, b"key-%d" % (offset % keys), b"v") for offset in range(start, start + records)],
        )
        for start in range(0, count * records, records)
    )


def long_log(tmp_path: Path, *, keys: int, count: int = 200) -> CleanPlan:
    settings = {"index.interval.bytes": "0"}
    spec = LogSpec(segments=(SegmentSpec(base_offset=0, batches=batches(count, keys=keys)),), settings=settings)
    return plan_of(spec, tmp_path)


def test_an_index_with_a_wrong_position_is_not_used(compiled: bool, tmp_path: Path) -> None:
    plan = long_log(tmp_path, keys=50)
    expected = count_keys([plan], InProcess())
    path = (plan.log.directory / LOG0).with_suffix(".index")
    entries = np.frombuffer(path.read_bytes(), ">i4").reshape(-1, 2).copy()
    entries[5:-1, 1] -= 1
    path.write_bytes(entries.tobytes())
    assert count_keys([plan], InProcess(), split_bytes=2_000) == expected


@pytest.mark.parametrize("keys", [1, 7, 2000])
def test_with_little_memory(keys: int, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = long_log(tmp_path, keys=keys)
    expected = count_keys([plan], InProcess())
    assert (expected.logs[0].keys, expected.logs[0].counts.superseded_records.number) == (keys, 2000 - keys)
    flushed: list[int] = []

    def counting(self: rows.RowCollector) -> None:
        flushed.append(self._rows)
        real(self)

    real = rows.RowCollector._flush
    monkeypatch.setattr("kcompact.stages.sizing.LEAST_TABLES_BYTES", 56 * 300)
    monkeypatch.setattr(rows.RowCollector, "_flush", counting)
    options = CountOptions(memory_bytes=1)
    assert count_keys([plan], InProcess(), options, split_bytes=2_000) == expected
    assert max(flushed) <= 300
    assert (len(flushed) > 3) == (keys == 2000)


def test_more_prefixes_than_are_counted_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce, "MOST_PREFIXES", 2)
    text = "log now=10:00\n0: " + " ".join(f'"{key}"=1' for key in ("a:1", "a:2", "b:1", "a:3", "b:2", "c:1"))
    options = CountOptions(separator=b":")
    (found,) = count_keys([plan_of(log_dsl.parse(text), tmp_path)], InProcess(), options).logs
    assert found.prefixes is not None
    assert (found.prefixes.is_complete, found.prefixes.count) == (False, 2)
    assert [(each.prefix, each.keys) for each in found.prefixes.most_records] == [(b"a", 3), (b"b", 2)]


@pytest.mark.parametrize(("column", "change"), [(KEY_VERSIONS, 1), (KEY_VERSIONS, -1)])
def test_rows_that_change_on_the_way_are_noticed(
    column: int, change: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def altered(block: bytes) -> tuple[int, Table]:
        number, table = unpack_table(block)
        table = table.copy()
        table[0, column] += change
        return number, table

    monkeypatch.setattr(reduce, "unpack_table", altered)
    with pytest.raises(AccountingError, match="does not add up"):
        counted("log now=10:00\n0: a=1 a=2 b=1", tmp_path)


def test_a_row_that_is_lost_on_the_way_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "pack_table", lambda log, table: pack_table(log, table[1:]))
    with pytest.raises(AccountingError, match="does not add up"):
        counted("log now=10:00\n0: a=1 a=2 b=1", tmp_path)


@pytest.mark.parametrize(("count", "expected"), [(0, []), (1, [3]), (2, [3, 1]), (3, [3, 1, 2]), (9, [3, 1, 2, 4, 5])])
def test_of_equal_keys_the_older_ones_are_listed(count: int, expected: list[int]) -> None:
    keys = np.zeros((5, 7), np.int64)
    keys[:, 2] = [5, 1, 3, 2, 4]
    keys[:, KEY_VERSIONS] = [1, 2, 3, 2, 2]
    assert top_rows(keys, KEY_VERSIONS, count)[:, 2].tolist() == expected


def test_a_log_that_was_planned_without_indexes_is_counted_without(tmp_path: Path) -> None:
    plan = long_log(tmp_path, keys=3)
    (plan.log.directory / LOG0).with_suffix(".index").unlink()
    plan = replace(plan, log=replace(plan.log, ignores_indexes=True))
    assert count_keys([plan], InProcess(), split_bytes=500).logs[0].counts.live_keys.number == 3
