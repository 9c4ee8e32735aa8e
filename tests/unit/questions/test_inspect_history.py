"""`gaps` and `transactions`: logs of a few lines, each with what they must say."""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kcompact.cli.commands import gaps, transactions
from kcompact.cli.output import progress
from kcompact.format.codec import Codec, compress
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.log.batch_headers import headers
from kcompact.log.directory import LogDir
from kcompact.log.files import LogFile
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from kcompact.plan.walk import Answer
from kcompact.questions.gaps.answer import log_gaps
from kcompact.questions.gaps.walks import Gaps, Label
from kcompact.questions.transactions.answer import TransactionEnding, TransactionReport, log_transaction_report
from tests.support import examples, log_dsl, log_writer
from tests.support.command_line import COMPACT, flip, kcompact, on_terminal, partition, running_broker
from tests.support.log_writer import SegmentSpec
from tests.support.mutants import T, legacy_entry


def plan_of(text: str, tmp_path: Path) -> CleanPlan:
    spec = log_dsl.parse(text)
    return plan_partition(log_writer.write(spec, tmp_path / "logs"), spec.config, now_ms=spec.now_ms)


def gaps_of(text: str, tmp_path: Path) -> Gaps:
    return log_gaps(plan_of(text, tmp_path))


def report_of(text: str, tmp_path: Path) -> TransactionReport:
    return log_transaction_report(plan_of(text, tmp_path))


# Gaps

WALKS: dict[str, tuple[str, dict[str, Any]]] = {
    # name: log, fields of the walk over the files
    "an empty log": ("log\n0:", {"rows": 0, "last_row": None, "offsets_present_ratio": None, "gaps": 0}),
    "never compacted": (
        "log\n0: a=1 b=1\n2: c=1",
        {"gaps": 0, "last_gap_offset": None, "contiguous_rows_since_gap": 3, "offsets_present_ratio": 1.0},
    ),
    "a gap between batches": (
        "log\n0: a=1 b=1@4^09:05 c=1",
        {"first_gap_offset": 4, "last_gap_offset": 4, "last_gap_row": 2, "last_gap_timestamp_ms": 1704099900000}
        | {"last_offset": 5, "last_row": 3, "contiguous_rows_since_gap": 1, "offsets_present_ratio": 0.5},
    ),
    "a gap between segments": ("log\n0: a=1\n5: b=1", {"last_gap_offset": 5, "last_gap_row": 2}),
    "an empty segment in a gap": ("log\n0: a=1\n3:\n5: b=1", {"gaps": 1, "last_gap_offset": 5}),
    "gaps inside batches": (
        "log\n0: [a=1@0 b=1@2 c=1@5]@0..5",
        {"gaps": 2, "first_gap_offset": 2, "last_gap_offset": 5, "last_gap_row": 3, "contiguous_rows_since_gap": 0},
    ),
    "compressed": ("log\n0: [a=1@0 b=1@2^08:00 c=1]@0..5(zstd)", {"gaps": 1, "last_gap_timestamp_ms": 1704096000000}),
    "the time of a batch": ("log\n0: a=1 [b=1@3^08:00](append max=09:30)", {"last_gap_timestamp_ms": 1704101400000}),
    "a lost tail": ("log\n0: [a=1]@0..4 b=1", {"gaps": 1, "last_gap_offset": 5}),
    "a lost tail at the end": ("log\n0: [a=1 b=1]@0..4", {"gaps": 0, "offsets_present_ratio": 0.4}),
    "an empty batch": ("log\n0: a=1 []@1..3(pid=1) b=1", {"gaps": 1, "last_gap_offset": 4}),
    "the first records are gone": ("log\n0: a=1@3 b=1", {"gaps": 0, "offsets_present_ratio": 0.4}),
    "a marker is no gap": ("log\n0: a=1(pid=1 txn) commit(pid=1) b=1", {"gaps": 0, "last_row": 2, "last_offset": 2}),
    "a gap before a marker": (
        "log\n0: a=1(pid=1 txn) commit@2(pid=1) b=1",
        {"gaps": 1, "last_gap_offset": 3, "offsets_present_ratio": 0.75},
    ),
    "the log start inside a batch": (
        "log start=2\n0: [a=1@0 b=1@1 c=1@2 d=1@4]@0..4\n5: e=1",
        {"rows": 3, "first_gap_offset": 4, "last_gap_row": 2, "offsets_present_ratio": 0.75},
    ),
}


@pytest.mark.parametrize("name", WALKS)
def test_the_walk_over_the_files(name: str, tmp_path: Path) -> None:
    text, expected = WALKS[name]
    walk = asdict(gaps_of(text, tmp_path).on_disk)
    assert {field: walk[field] for field in expected} == expected


def test_consumers_see_other_gaps(tmp_path: Path) -> None:
    found = gaps_of(
        """log
        0: a=1 b=1(pid=1 txn) abort(pid=1) c=1 d=1(pid=2 txn) commit(pid=2) e=1(pid=3 txn) f=1
        snapshot 8: pid=3 open=6 last=6
        txnindex 0: pid=1 first=1 last=2 stable=3""",
        tmp_path,
    )
    assert (found.on_disk.rows, found.on_disk.gaps) == (6, 0)
    assert (found.read_uncommitted.rows, found.read_uncommitted.gaps, found.read_uncommitted.last_gap_row) == (6, 2, 5)
    committed = found.read_committed
    assert (committed.rows, committed.gaps, committed.last_gap_offset, committed.last_gap_row) == (3, 1, 3, 2)
    assert committed.last_offset == 4
    assert (found.counts.control_offsets, found.counts.aborted_offsets) == (2, 1)


@pytest.mark.usefixtures("compiled")
def test_a_marker_whose_offset_is_too_low_ends_nothing_before_it(tmp_path: Path) -> None:
    """No checksum covers a base offset."""
    text = "log\n0: a=1(pid=7 txn) commit(pid=7) b=1 c=1(pid=7 txn) abort(pid=7)\n5: d=1"
    plan = plan_of(text, tmp_path)
    assert log_gaps(plan).counts.aborted_offsets == 1
    path = plan.log.directory / plan.log.segments[0].log_name
    batches = [header.size_bytes for _, header in headers(LogFile.at(path), end_position=path.stat().st_size)]
    flip(path, sum(batches[:4]) + 7, 4)  # The offset of the second marker is 0.
    found = log_gaps(plan)
    assert found.damage is not None
    assert (found.counts.present, found.counts.aborted_offsets) == (4, 1)
    assert found.read_committed.last_offset == 2


def test_old_formats(tmp_path: Path) -> None:
    """An entry, and a wrapper whose header has only the last offset: the records at 0, 2, 3 and 5."""
    entries = [legacy_entry(relative, b"k", b"v", magic=1, timestamp=T + relative) for relative in (0, 1, 3)]
    wrapper = compress(Codec.GZIP, b"".join(entries), magic=1)
    data = legacy_entry(0, b"k", b"v", magic=1, timestamp=T)
    data += legacy_entry(5, None, wrapper, magic=1, attributes=Codec.GZIP, timestamp=T + 3)
    spec = replace(log_dsl.parse("log\n0:"), segments=(SegmentSpec(base_offset=0, batches=(data,)),))
    found = log_gaps(plan_partition(log_writer.write(spec, tmp_path), spec.config, now_ms=0))
    walk = found.on_disk
    assert (walk.rows, walk.gaps, walk.first_gap_offset, walk.last_gap_offset) == (4, 2, 2, 5)
    assert (walk.last_gap_row, walk.last_gap_timestamp_ms, found.counts.missing) == (4, T + 3, 2)


@pytest.mark.parametrize(("high_watermark", "rows"), [(0, 0), (1, 1), (2, 1), (3, 1), (4, 4)])
def test_a_reader_does_not_see_the_batch_in_which_the_high_watermark_lies(
    high_watermark: int, rows: int, tmp_path: Path
) -> None:
    found = gaps_of(f"log hw={high_watermark}\n0: a=1 [b=1 c=1 d=1]@1..3", tmp_path)
    for reader in (found.read_committed, found.read_uncommitted):
        assert (reader.rows, reader.offsets_present_ratio) == (rows, 1.0 if rows else None)
    assert found.on_disk.rows == 4


def test_a_consumer_reads_up_to_the_high_watermark(tmp_path: Path) -> None:
    text = "log hw=4\n0: a=1 b=1(pid=3 txn) c=1 d=1\n4: e=1 f=1@7\nsnapshot 8: pid=3 open=1 last=1"
    found = gaps_of(text, tmp_path)
    assert [walk.rows for walk in (found.on_disk, found.read_uncommitted, found.read_committed)] == [6, 4, 1]
    assert [walk.gaps for walk in (found.on_disk, found.read_uncommitted, found.read_committed)] == [1, 0, 0]


EVIDENCE = {
    # name of a fact: the log that shows it, its values
    "missing-offsets": ("log\n0: a=1 b=1@4", {"missing_offsets": 3}),
    "nothing-missing": ("log\n0: a=1 b=1", {}),
    "contiguous-rows": ("log\n0: a=1 b=1@4 c=1", {"rows": 1}),
    "after-last-row": ("log\n0: a=1 b=1@4 [c=1]@5..7 []@8..9\n12:", {"missing_offsets": 6, "to_offset": 11}),
    "lost-tails": ("log\n0: [a=1]@0..4 [b=1]@5..6 c=1", {"batches": 2, "missing_offsets": 5}),
    "empty-batches": ("log\n0: []@0..3(pid=1) a=1", {"batches": 1, "missing_offsets": 4}),
    "markers": ("log\n0: a=1(pid=1 txn) commit(pid=1)", {"offsets": 1}),
    "delete-horizons": (
        "log\n0: a=~(horizon=09:40) b=1",
        {"batches": 1, "to_offset": 0, "last_horizon_ms": 1704102000000},
    ),
    "beyond-checkpoint": ("log checkpoint=2\n0: a=1 b=1 c=1@4", {"missing_offsets": 2, "first_dirty_offset": 2}),
    "segment-names": ("log\n0: a=1@2\n3: b=1", {"segments": [{"base_offset": 0, "first_offset": 2}]}),
    "horizon-time": (
        "log delete.retention.ms=10m\n0: a=~(horizon=09:40) b=1",
        {"ran_ms": 1704101400000, "last_horizon_ms": 1704102000000, "delete_retention_ms": 600000},
    ),
    "orphan-snapshots": ("log\n0: a=1 b=1\nsnapshot 1:\nsnapshot 2:", {"offsets": [1]}),
}
ODD = {"sparse-index", "large-batches", "dense-index"}
HINTS = {"horizon-time", "checkpoint", "old-snapshots", "orphan-snapshots", *ODD}


@pytest.mark.parametrize("name", EVIDENCE)
def test_a_fact_has_its_label_and_its_values(name: str, tmp_path: Path) -> None:
    text, expected = EVIDENCE[name]
    facts = {fact.name: fact for fact in gaps_of(text, tmp_path).evidence}
    assert facts[name].values == expected
    assert {fact.name for fact in facts.values() if fact.label is Label.HINT} == facts.keys() & HINTS
    assert list(facts) == sorted(facts, key=lambda each: each in HINTS), "proofs come first"


def test_a_sound_log_shows_nothing_of_these(tmp_path: Path) -> None:
    facts = gaps_of("log\n0: a=1 b=1\n2: c=1\nsnapshot 2:\nsnapshot 3:", tmp_path).evidence
    assert [fact.name for fact in facts] == ["nothing-missing"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("log\n5:", "nothing-missing"),  # Without offsets nothing is proved.
        ("log start=2\n0: a=1 b=1\n2:", "nothing-missing"),
        ("log\n0: a=1 b=1@4", "contiguous-rows"),  # No row comes after the gap.
        ("log\n0: a=1 b=1@4 commit@5(pid=1)", "after-last-row"),
        ("log checkpoint=99\n0: a=1 b=1@4", "beyond-checkpoint"),  # It is above the log end, so of another log.
    ],
)
def test_nothing_is_proved_without_a_fact(text: str, name: str, tmp_path: Path) -> None:
    assert name not in {fact.name for fact in gaps_of(text, tmp_path).evidence}


def test_a_snapshot_that_is_much_older_than_its_log(tmp_path: Path) -> None:
    plan = plan_of("log segment.ms=1h\n0: a=1\n1: b=1\n2: c=1\nsnapshot 0:\nsnapshot 1:\nsnapshot 2:", tmp_path)
    modified_ms = plan.log.segments[0].last_modified_ms
    for offset, age_ms in ((0, 3_600_001), (1, 3_600_000), (2, 9_000_000)):
        os.utime(plan.log.directory / f"{offset:020d}.snapshot", ns=(0, (modified_ms - age_ms) * 1_000_000))
    plan = plan_partition(plan.log.directory, plan.config, now_ms=plan.now_ms)
    (fact,) = [each for each in log_gaps(plan).evidence if each.name == "old-snapshots"]
    assert fact.values["segments"] == [
        {"base_offset": 0, "snapshot_modified_ms": modified_ms - 3_600_001, "log_modified_ms": modified_ms}
    ]


def test_the_index_of_the_published_listing_makes_one_wonder(tmp_path: Path) -> None:
    directory = examples.build("another-topic", tmp_path / "logs") / "another-topic-0"
    (fact,) = [
        each
        for each in log_gaps(plan_partition(directory, log_dsl.parse("log").config, now_ms=0)).evidence
        if each.name in ODD
    ]
    assert fact.name == "large-batches"
    assert [each["base_offset"] for each in _list(fact.values["segments"])] == [188679]


def test_a_sparse_index(tmp_path: Path) -> None:
    records = " ".join(f"k{number}=*100" for number in range(400))
    plan = plan_of(f"log index.interval.bytes=10000\n0: {records}\n400: z=1", tmp_path)
    config, log = replace(plan.config, index_interval_bytes=200), replace(plan.log, index_interval_bytes=200)
    facts = log_gaps(replace(plan, config=config, log=log)).evidence
    assert [each.name for each in facts if each.name in ODD] == ["sparse-index"]


def test_a_dense_index(tmp_path: Path) -> None:
    records = " ".join(f"k{number}=*100" for number in range(400))
    plan = plan_of(f"log index.interval.bytes=200\n0: {records}\n400: z=1", tmp_path)
    assert not [each for each in log_gaps(plan).evidence if each.name in ODD]
    wide = replace(plan, config=replace(plan.config, index_interval_bytes=1000))
    wide = replace(wide, log=replace(plan.log, index_interval_bytes=1000))
    assert [each.name for each in log_gaps(wide).evidence if each.name in ODD] == ["dense-index"]


def _list(value: object) -> list[dict[str, int]]:
    assert isinstance(value, list)
    return value


# Transactions


def test_the_states_of_transactions(tmp_path: Path) -> None:
    directory = examples.build("transactions", tmp_path / "logs") / "payments-0"
    plan = plan_partition(directory, log_dsl.parse("log delete.retention.ms=1h").config, now_ms=1704110400000)
    report = log_transaction_report(plan)
    assert {state: each.transactions for state, each in report.totals.items()} == {
        TransactionEnding.COMMITTED: 1,
        TransactionEnding.ABORTED: 1,
        TransactionEnding.EMPTIED: 1,
        TransactionEnding.GONE: 2,
        TransactionEnding.OPEN: 3,
    }
    assert [(each.producer_id, each.producer_epoch, each.is_hanging) for each in report.open] == [
        (10, 0, True),
        (11, 3, True),
        (7, 0, False),
    ]
    held = report.held_back
    assert (report.last_stable_offset, held.records, held.segments) == (22, 6, (20, 25))
    counts = report.markers
    assert (counts.with_data, counts.waiting, counts.expired, counts.kept_for_producers) == (3, 1, 1, 1)
    assert (report.tombstones.waiting, report.tombstones.uncleanable) == (1, 1)


@pytest.mark.parametrize(("idle_ms", "is_hanging"), [(900_000, False), (900_001, True)])
def test_a_transaction_hangs_after_more_than_the_timeout(idle_ms: int, is_hanging: bool, tmp_path: Path) -> None:
    plan = plan_of("log lone\n0: a=1(pid=7 txn)", tmp_path)
    written_ms = plan.producers[7].last_timestamp
    (found,) = log_transaction_report(replace(plan, now_ms=written_ms + idle_ms)).open
    assert found.is_hanging == is_hanging
    config = replace(plan.config, transaction_max_timeout_ms=idle_ms - 1)
    (found,) = log_transaction_report(replace(plan, config=config, now_ms=written_ms + idle_ms)).open
    assert found.is_hanging


def test_a_transaction_that_the_broker_has_forgotten_does_not_hang(tmp_path: Path) -> None:
    report = report_of("log now=5d00:00\n0: a=1(pid=7 txn)", tmp_path)  # Stopped cleanly, without a snapshot.
    (found,) = report.open
    assert (found.is_known_to_broker, found.is_hanging) == (False, False)
    assert report.last_stable_offset == report.high_watermark


def test_a_transaction_whose_data_is_gone_is_open_by_the_snapshot(tmp_path: Path) -> None:
    report = report_of("log\n0: a=1 b=1\nsnapshot 2: pid=7 open=1 last=1 coordinator=4", tmp_path)
    (found,) = report.open
    assert (found.first_offset, found.records, found.coordinator_epoch) == (1, 0, 4)
    assert found.is_known_to_broker


@pytest.mark.parametrize(
    ("first", "marker", "duration_ms", "took"),
    [
        ("09:00", "11:30", 9_000_000, "2 h 30 min"),
        ("09:00", "09:00", 0, "0 ms"),
        ("11:30", "09:00", -9_000_000, "-2 h 30 min"),
        ("-1", "09:00", None, "-"),
    ],
)
def test_how_long_a_transaction_took(
    first: str, marker: str, duration_ms: int | None, took: str, tmp_path: Path
) -> None:
    directory = partition(tmp_path, f"log now=12:00\n0: a=1^{first}(pid=7 txn) commit^{marker}(pid=7)")
    found = kcompact("transactions", "--json", *COMPACT, directory).partition["transactions"]
    (largest,) = found["largest"]
    assert largest["duration_ms"] == duration_ms
    assert [each["duration_ms"] for each in found["longest"]] == ([] if duration_ms is None else [duration_ms])
    shown = kcompact("transactions", *COMPACT, directory).out
    assert any(line.startswith("committed  ") and line.endswith(f"  {took}") for line in shown.splitlines())


def test_an_open_transaction_without_a_timestamp_has_no_age(tmp_path: Path) -> None:
    directory = partition(tmp_path, "log lone\n0: a=1^-1(pid=7 txn)")
    found = kcompact("transactions", "--json", *COMPACT, directory).partition["transactions"]
    (opened,) = found["open_transactions"]
    assert (opened["open_for_ms"], opened["idle_for_ms"], opened["is_hanging"]) == (None, None, True)


TOMBSTONES = {
    "unstamped": ("log now=10:00 checkpoint=0\n0: a=~\n1: b=1", 1),
    "uncleanable": ("log now=10:00\n0: a=~ b=~", 2),
    "waiting": ("log now=10:00\n0: a=~(horizon=10:00:00.001) b=1", 1),
    "expired": ("log now=10:00\n0: a=~(horizon=10:00) b=1", 1),
}


@pytest.mark.parametrize("name", TOMBSTONES)
def test_tombstones_by_what_they_wait_for(name: str, tmp_path: Path) -> None:
    text, count = TOMBSTONES[name]
    found = report_of(text, tmp_path).tombstones
    assert (getattr(found, name), found.total) == (count, count)


MARKERS = {
    "with_data": "log now=10:00\n0: a=1(pid=7 txn) commit(pid=7)\n2: b=1",
    "unstamped": "log now=10:00\n0: a=1 commit(pid=7)\n2: b=1",
    "uncleanable": "log now=10:00\n0: a=1 commit(pid=7)",
    "waiting": "log now=10:00\n0: a=1 commit(pid=7 horizon=10:01)\n2: b=1",
    "expired": "log now=10:00\n0: a=1 abort(pid=7 horizon=10:00)\n2: b=1",
    "emptied": "log now=10:00\n0: a=1 []@1..1(pid=7 control txn)\n2: b=1",
}


def test_a_marker_waits_for_data_below_the_log_start(tmp_path: Path) -> None:
    text = "log now=10:00 start=2\n0: a=1(pid=7 txn) b=1 commit(pid=7) commit(pid=7)\n4: c=1"
    report = report_of(text, tmp_path)
    assert (report.markers.with_data, report.markers.unstamped, report.totals[TransactionEnding.GONE].transactions) == (
        1,
        1,
        2,
    )


@pytest.mark.parametrize("name", MARKERS)
def test_markers_by_what_they_wait_for(name: str, tmp_path: Path) -> None:
    found = report_of(MARKERS[name], tmp_path).markers
    kinds = {kind: getattr(found, kind) for kind in MARKERS}
    assert kinds == {kind: int(kind == name) for kind in MARKERS}


# The command

HISTORY = ("gaps", "transactions")


def test_each_is_in_the_entry_of_a_partition(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    for name, word in (("gaps", "proof"), ("transactions", "committed")):
        ran = kcompact(name, "--json", *COMPACT, directory)
        assert ran.json["command"] == name
        assert ran.partition.keys() == {"topic", "partition", "directory", name, "notes", "error", "exit_code"}
        assert word in kcompact(name, *COMPACT, directory).out
    assert "gaps" not in kcompact("inspect", "--json", *COMPACT, directory).partition


@pytest.mark.parametrize("name", HISTORY)
def test_a_single_file_is_refused(name: str, tmp_path: Path) -> None:
    directory = partition(tmp_path)
    file = next(directory.glob("*.log"))
    ran = kcompact(name, file)
    assert ran.code == 4
    assert f"{name} needs a partition directory" in ran.err
    ran = kcompact(name, "--json", file, directory)
    assert ran.code == 4
    assert [(each["directory"], bool(each[name])) for each in ran.json["partitions"]] == [
        (str(directory), True),
        (str(file), False),
    ]


@pytest.mark.parametrize("start", [0, 4])
def test_damage_before_the_first_counted_batch(start: int, tmp_path: Path) -> None:
    directory = partition(tmp_path, f"log now=10:00 start={start}\n0: [a=1]@0..1\n2: [b=1]@2..4 c=1\n6: d=1")
    flip(directory / f"{0:020d}.log", 16)  # The magic of the first batch.
    found = kcompact("gaps", "--json", *COMPACT, directory).partition["gaps"]
    assert (found["counted_to_offset"], found["evidence"]) == (start, [])
    shown = kcompact("gaps", *COMPACT, directory).out
    assert f"  offsets  none, the log starts at {start}\n" in shown
    assert f"  counted  up to offset {start}, because of damage; the log ends at 7\n" in shown


@pytest.mark.parametrize("name", HISTORY)
def test_damage_is_counted_up_to(name: str, tmp_path: Path) -> None:
    directory = partition(tmp_path, "log now=10:00\n0: a=1 b=1\n2: [c=1 d=1@4]@2..4 e=1\n6: f=1")
    flip(directory / f"{2:020d}.log", 70)
    ran = kcompact(name, "--json", directory)
    assert ran.code == 3
    (entry,) = json.loads(ran.out)["partitions"]
    found = entry[name]
    assert found["counted_to_offset"] == 2
    assert "checksum" in entry["error"]
    shown = kcompact(name, directory)
    assert shown.code == 3
    assert "because of damage" in shown.out


def test_beside_a_running_broker(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs", "log unclean now=10:00 hw=3\n0: a=1 b=1@2\n3: c=1(pid=7 txn) d=1")
    with (directory / f"{3:020d}.log").open("ab") as file:
        file.write(bytes(11) + b"\1")
    with running_broker(directory.parent):
        gaps, transactions = (kcompact(name, "--json", *COMPACT, directory).partition[name] for name in HISTORY)
    assert (gaps["last_gap_offset"], gaps["rows"]) == (2, 4)
    assert transactions["open"] == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", HISTORY)
def test_a_bar_on_a_terminal(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    monkeypatch.setattr(progress, "LEAST_BYTES", 0)
    plan = plan_partition(directory, log_dsl.parse("log").config, now_ms=0)
    find = {"gaps": gaps.with_gaps, "transactions": transactions.with_transactions}[name]
    for stream, shows in ((Terminal(), True), (io.StringIO(), False)):
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", stream)
            find(DEFAULT_MEMORY_BYTES, Answer(directory=directory, plan=plan), LogDir(path=tmp_path))
        assert (f"{directory.name} reading" in stream.getvalue()) == shows
        size = f"{plan.log.size_bytes} B of {plan.log.size_bytes} B"
        assert (size in stream.getvalue()) == shows


def test_a_long_sentence_goes_on_below_its_beginning(tmp_path: Path) -> None:
    directory = partition(tmp_path, "log now=10:00\n0: a=1 b=1@4\n5: c=1")
    ((lines,), (below,)) = (on_terminal([40], name, *COMPACT, directory).values() for name in HISTORY)
    first = lines.index("  proof  3 of 6 offsets have no record:")
    assert lines[first + 1] == "         compaction has removed them, in"
    first = below.index("  last stable   6, the high watermark:")
    assert below[first + 1] == "                nothing is held back"
