"""`log.producer_state`: the snapshot, expiry, the replay of later batches, undecided transactions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.errors import CorruptCheckpointError, UnsupportedError
from kcompact.format.batch import parse_batches
from kcompact.format.index import build_offset_index
from kcompact.format.names import index_name
from kcompact.format.producer_snapshot import ProducerEntry
from kcompact.log import batch_headers, producer_state
from kcompact.log.directory import PartitionLog, read_log
from kcompact.log.files import LogFile
from kcompact.log.markers import BatchHeader, read_marker
from kcompact.log.producer_state import (
    LastRecord,
    Producer,
    first_open_transaction_offset,
    first_unstable_offset,
    from_snapshot,
    last_records,
    replay,
    verified_producer_headers,
)
from kcompact.release import RELEASES
from tests.support import log_dsl, log_writer
from tests.support.log_writer import DEFAULT_TIME, LogSpec
from tests.support.machine_code import switched

DAY = 86_400_000
TEXT = "log\n0: a=1(pid=1)\n2: a=2(pid=2)\n4: a=3(pid=3)\n6: a=4(pid=4)"
HEAD = ProducerEntry(
    producer_id=9,
    producer_epoch=1,
    last_sequence=5,
    last_offset=0,
    offset_delta=0,
    timestamp=DEFAULT_TIME,
    coordinator_epoch=-1,
    current_txn_first_offset=-1,
)


@pytest.mark.parametrize("kind", [2, 7])
@pytest.mark.parametrize("is_active", [True, False])
def test_a_control_record_that_ends_no_transaction_is_refused_by_name(
    kind: int, is_active: bool, tmp_path: Path
) -> None:
    """No broker loads such a log. One that has a snapshot after it does, and so does kcompact."""
    text = f"log lone\n0: a=1(pid=1 txn) control-{kind}(pid=1)" + ("" if is_active else "\n2: b=1")
    problem = rf"offset 1: control record type {kind} of producer 1: only 0 \(abort\) and 1 \(commit\) end"
    with pytest.raises(UnsupportedError, match=problem) as refused:
        load(log_dsl.parse(text), tmp_path / "a")
    assert refused.value.exit_code == 4
    assert load(log_dsl.parse(f"log lone\n0: a=1 control-{kind} a=2"), tmp_path / "b") == {}
    replayed = text + "\nsnapshot 2: pid=1" if not is_active else "log\n0: a=1"
    assert load(log_dsl.parse(replayed), tmp_path / "c").keys() == (set() if is_active else {1})


@pytest.mark.usefixtures("compiled")
def test_an_unknown_control_record_is_refused_also_before_a_marker(tmp_path: Path) -> None:
    """It decides nothing, and still no broker loads the log."""
    text = "log lone\n0: a=1(pid=1 txn) control-7(pid=1) a=2(pid=1 txn) commit(pid=1)"
    with pytest.raises(UnsupportedError, match="offset 1: control record type 7 of producer 1"):
        load(log_dsl.parse(text), tmp_path)


def headers_of(data: bytes) -> Iterator[BatchHeader]:
    for batch in parse_batches(data, file="f"):
        marker = read_marker(batch, file="f") if batch.header.is_control else None
        yield BatchHeader(batch.position, batch.header, marker)


def load(spec: LogSpec, log_dir: Path, *, now_ms: int = DEFAULT_TIME, expiration_ms: int = DAY) -> dict[int, Producer]:
    return producer_state.load_producers(
        read_log(log_writer.write(spec, log_dir)), now_ms=now_ms, expiration_ms=expiration_ms
    )


@pytest.mark.parametrize(
    ("snapshots", "surroundings", "expected"),
    [
        # No snapshot: no producers after a clean shutdown, all producers in a copied partition.
        ([], "", []),
        ([], "lone", [1, 2, 3, 4]),
        ([], "unclean", [1, 2, 3, 4]),
        # The newest usable snapshot, and a replay of the later batches.
        ([2], "", [2, 3, 4, 9]),
        ([2, 4], "", [3, 4, 9]),
        ([2, 4, 6], "", [4, 9]),
        ([7], "", [9]),
        ([7], "lone", [9]),
        # Of the strays only the newest is kept, if it is at or above the active segment's base offset.
        ([2, 5], "", [2, 3, 4, 9]),
        ([2, 3, 7], "", [9]),
        ([2, 7, 8], "", [2, 3, 4, 9]),
        # A snapshot at the log start or above the log end is kept, but not used.
        ([0], "", [1, 2, 3, 4]),
        ([8], "", [1, 2, 3, 4]),
        # Only strays, which a broker deletes: the same as no snapshot.
        ([1], "", []),
        ([1, 3, 5], "", []),
        ([1], "lone", [1, 2, 3, 4]),
    ],
)
def test_the_snapshot_that_is_used(
    tmp_path: Path, snapshots: list[int], surroundings: str, expected: list[int]
) -> None:
    spec = log_dsl.parse(TEXT.replace("log", f"log {surroundings}"))
    spec = replace(spec, snapshots=dict.fromkeys(snapshots, (HEAD,)))
    assert sorted(load(spec, tmp_path)) == expected


def test_a_snapshot_below_the_log_start_is_not_used(tmp_path: Path) -> None:
    spec = replace(log_dsl.parse(TEXT), start=4, snapshots={2: (HEAD,), 4: (HEAD,)})
    assert sorted(load(spec, tmp_path)) == [3, 4]


def test_a_damaged_snapshot_is_an_error(tmp_path: Path) -> None:
    spec = replace(log_dsl.parse(TEXT), snapshots={7: (HEAD,)})
    directory = log_writer.write(spec, tmp_path)
    (directory / f"{7:020d}.snapshot").write_bytes(b"\0\1")
    with pytest.raises(CorruptCheckpointError):
        producer_state.load_producers(read_log(directory), now_ms=DEFAULT_TIME, expiration_ms=DAY)


@pytest.mark.parametrize(
    ("silent_ms", "open_offset", "remembered"),
    [(0, -1, True), (DAY - 1, -1, True), (DAY, -1, False), (DAY + 1, -1, False), (10 * DAY, 0, True)],
)
def test_expiry(silent_ms: int, open_offset: int, remembered: bool) -> None:
    entry = HEAD._replace(current_txn_first_offset=open_offset)
    found = from_snapshot([entry], now_ms=DEFAULT_TIME + silent_ms, expiration_ms=DAY)
    assert bool(found) == remembered


def test_the_producers_of_a_snapshot() -> None:
    entry = HEAD._replace(coordinator_epoch=4, current_txn_first_offset=3)
    never_wrote = HEAD._replace(producer_id=10, last_offset=-1, last_sequence=-1)
    found = from_snapshot([entry, never_wrote], now_ms=DEFAULT_TIME, expiration_ms=DAY)
    assert found[9] == Producer(
        producer_id=9,
        epoch=1,
        coordinator_epoch=4,
        last_timestamp=DEFAULT_TIME,
        last_sequence=5,
        last_data_offset=0,
        transaction_first_offset=3,
    )
    assert found[10].last_data_offset is None
    assert last_records(found) == {9: LastRecord(0, 1), 10: LastRecord(None, 1)}


def replayed(line: str) -> dict[int, Producer]:
    data = log_dsl.parse(f"log\n0: {line}").segments[0].data
    return replay({}, headers_of(data))


@pytest.mark.parametrize(
    ("line", "last", "sequence", "open_offset"),
    [
        ("a=1(pid=7)", LastRecord(0, 0), 0, None),
        ("[a=1 b=1 c=1](pid=7 seq=4)", LastRecord(2, 0), 6, None),
        ("a=1(pid=7) a=2(pid=7 epoch=1 seq=5)", LastRecord(1, 1), 5, None),
        ("a=1(pid=7) []@1..3(pid=7 seq=1)", LastRecord(3, 0), 3, None),
        ("a=1(pid=7 txn)", LastRecord(0, 0), 0, 0),
        ("a=1(pid=7 txn) b=1(pid=7 seq=1 txn)", LastRecord(1, 0), 1, 0),
        ("a=1(pid=7 txn) commit(pid=7)", LastRecord(0, 0), 0, None),
        ("a=1(pid=7 txn) abort(pid=7)", LastRecord(0, 0), 0, None),
        # At a marker of another epoch the broker forgets the producer's data.
        ("a=1(pid=7 txn) commit(pid=7 epoch=1)", LastRecord(None, 1), -1, None),
        ("a=1(pid=7 txn) commit(pid=7 epoch=1) b=1(pid=7 epoch=1 txn)", LastRecord(2, 1), 0, 2),
        ("commit(pid=7)", LastRecord(None, 0), -1, None),
        # An emptied control batch changes nothing.
        ("a=1(pid=7 txn) []@1..1(pid=7 epoch=1 control)", LastRecord(0, 0), 0, 0),
    ],
)
def test_replay(line: str, last: LastRecord, sequence: int, open_offset: int | None) -> None:
    found = replayed(line)
    assert last_records(found) == {7: last}
    assert found[7].last_sequence == sequence
    assert found[7].transaction_first_offset == open_offset
    assert first_open_transaction_offset(found) == open_offset


def test_batches_without_a_producer_id_are_ignored() -> None:
    assert replayed("a=1 b=1") == {}
    assert first_open_transaction_offset({}) is None


def test_the_oldest_open_transaction() -> None:
    line = "a=1(pid=5) b=1(pid=8 txn) c=1(pid=7 txn) d=1(pid=6 txn) commit(pid=8)"
    assert first_open_transaction_offset(replayed(line)) == 2


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (0, 0),  # The first offset of the transaction.
        (1, 1),
        (3, 2),  # Inside a batch: its base offset.
        (6, 9),  # In a gap: the next batch, here in the next segment.
        (9, 9),
        (11, 11),  # The log end.
    ],
)
def test_an_open_transaction_that_began_below_the_log_start(tmp_path: Path, start: int, expected: int) -> None:
    text = "log\n0: a=1(pid=7 txn) b=1@1 [c=1 d=1]@2..4\n8: e=1@9 f=1@10"
    log = read_log(log_writer.write(replace(log_dsl.parse(text), start=start), tmp_path))
    assert unstable(log, replayed("a=1(pid=7 txn)")) == expected
    assert unstable(log, replayed("a=1(pid=7)")) is None


def test_an_older_broker_takes_the_log_start(tmp_path: Path) -> None:
    text = "log\n0: a=1(pid=7 txn) b=1@1\n8: e=1@9 f=1@10"
    log = read_log(log_writer.write(replace(log_dsl.parse(text), start=6), tmp_path))
    state = replayed("a=1(pid=7 txn)")
    found = {
        name: first_unstable_offset(
            log, state, high_watermark=None, now_ms=DEFAULT_TIME, expiration_ms=DAY, release=release
        )
        for name, release in RELEASES.items()
    }
    assert found == {"4.4": 9, "4.3": 9, "4.0": 9, "3.9": 6, "3.8": 6}


@pytest.mark.parametrize(
    ("text", "data_offset"),
    [
        ("0: a=1(pid=7 epoch=8 txn) commit(pid=7 epoch=8)\n2: commit(pid=7 epoch=1) commit(pid=7 epoch=8)", 0),
        ("0: a=1(pid=7 epoch=8 txn) commit(pid=7 epoch=8)\n2: commit(pid=7 epoch=1)", None),
        ("0: a=1(pid=7 epoch=8 txn) commit(pid=7 epoch=1) commit(pid=7 epoch=8)\n3: b=1", None),
    ],
)
def test_a_segment_that_ends_with_the_epoch_it_began_with_drops_no_batch(
    text: str, data_offset: int | None, tmp_path: Path
) -> None:
    """As Kafka rebuilds the state. Such a log has markers of an old epoch, which no leader takes today."""
    state = load(log_dsl.parse(f"log lone\n{text}"), tmp_path)
    assert state[7].last_data_offset == data_offset


def unstable(log: PartitionLog, state: dict[int, Producer], high_watermark: int | None = None) -> int | None:
    return first_unstable_offset(log, state, high_watermark=high_watermark, now_ms=DEFAULT_TIME, expiration_ms=DAY)


@pytest.mark.parametrize(
    ("high_watermark", "expected"),
    [(None, None), (9, None), (6, None), (5, 2), (4, 2), (3, 0), (2, 0), (0, 0)],
)
def test_a_transaction_is_undecided_until_its_marker_is_replicated(
    tmp_path: Path, high_watermark: int | None, expected: int | None
) -> None:
    text = "log lone\n0: a=1(pid=7 txn) z=1(pid=6) b=1(pid=8 txn) commit(pid=7) b=2 abort(pid=8) commit(pid=9)"
    log = read_log(log_writer.write(log_dsl.parse(text), tmp_path))
    state = producer_state.load_producers(log, now_ms=DEFAULT_TIME, expiration_ms=DAY)
    assert first_open_transaction_offset(state) is None
    assert unstable(log, state, high_watermark) == expected


@pytest.mark.parametrize(
    ("text", "high_watermark", "expected"),
    [
        # The producer's aborted data at offset 0 was cleaned away; the next batch that is left is at offset 1.
        ("0: b=1@1\n2: abort(pid=7 epoch=1)", 2, 1),
        # The same in a segment that a cleaning has left empty: the next batch is in the next segment.
        ("0:\n2: b=1@3\n4: abort(pid=7 epoch=1)", 4, 3),
        # The next batch is the marker, which is at the high watermark.
        ("0:\n2: abort(pid=7 epoch=1)", 2, 2),
        # An open transaction, in a snapshot that is older than the cleaning.
        ("0: b=1@1\n2: c=1", None, 1),
        ("0:\n2:", None, 2),
    ],
)
def test_a_transaction_whose_first_batch_was_cleaned_away(
    tmp_path: Path, text: str, high_watermark: int | None, expected: int
) -> None:
    opened = HEAD._replace(producer_id=7, current_txn_first_offset=0)
    log = read_log(log_writer.write(replace(log_dsl.parse(f"log\n{text}"), snapshots={2: (opened,)}), tmp_path))
    state = producer_state.load_producers(log, now_ms=DEFAULT_TIME, expiration_ms=DAY)
    assert unstable(log, state, high_watermark) == expected


@pytest.mark.parametrize("entries", [[], [(0, 0), (1, 70), (3, 140)], [(1, 70), (4, 210)], None])
def test_the_search_for_a_batch_finds_the_same_with_every_index(
    tmp_path: Path, entries: list[tuple[int, int]] | None
) -> None:
    directory = log_writer.write(log_dsl.parse("log\n0: a=1(pid=7 txn) b=1 c=1@3 d=1\n8: e=1"), tmp_path)
    (directory / index_name(0)).unlink()
    if entries is not None:
        (directory / index_name(0)).write_bytes(build_offset_index(entries))
    log = read_log(directory)
    for first_offset, expected in [(0, 0), (1, 1), (2, 3), (3, 3), (4, 4), (5, 8), (8, 8), (9, 9)]:
        opened = {7: Producer(producer_id=7, epoch=0, transaction_first_offset=first_offset)}
        assert unstable(log, opened) == expected


def test_replay_continues_from_a_given_state() -> None:
    known = replayed("a=1(pid=7 txn) b=1(pid=8)")
    data = log_dsl.parse("log\n2: commit(pid=7)").segments[0].data
    found = replay(known, headers_of(data))
    assert found[7].transaction_first_offset is None
    assert found[8] == known[8]
    assert known[7].transaction_first_offset == 0


def random_line(dice: random.Random) -> str:
    words = []
    producers, markers = dice.choice([1, 3]), dice.choice([1, 5])
    for _ in range(dice.randint(1, 40)):
        producer = f"pid={dice.randint(1, producers)} epoch={dice.randint(0, 2)}"
        kind = dice.choice(["commit", "abort"] * markers + ["txn", "txn", "txn", "plain", "plain", "none", "emptied"])
        words.append(
            {
                "txn": f"a=1({producer} txn seq={dice.randint(0, 9)})",
                "plain": f"a=1({producer} seq={dice.randint(0, 9)})",
                "none": "a=1",
                "emptied": f"[]({producer} control)",
            }.get(kind, f"{kind}({producer}{dice.choice(['', '', ' lz4'])})")
        )
    return " ".join(words)


@pytest.mark.parametrize("seed", range(60))
def test_what_columns_leave_out_changes_no_producer(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(seed)
    directory = log_writer.write(log_dsl.parse(f"log lone\n0: {random_line(dice)}"), tmp_path)
    log = read_log(directory)
    path, size_bytes = directory / log.active_segment.log_name, log.size_bytes
    monkeypatch.setattr(batch_headers, "TABLE_ROWS", dice.choice([2, 7, 50]))
    known = replayed(random_line(dice))

    def found(compiled: bool, first_offset: int, undecided_from: int) -> tuple[object, object]:
        with switched(compiled=compiled):
            batches = list(
                verified_producer_headers(
                    LogFile.at(path),
                    base_offset=0,
                    end_offset=log.log_end_offset,
                    end_position=size_bytes,
                    first_offset=first_offset,
                    undecided_from=undecided_from,
                )
            )
        return replay(known, batches), sorted(producer_state._unreplicated_transactions(known, batches, undecided_from))

    for first_offset in (0, dice.randint(0, log.log_end_offset)):
        undecided_from = dice.randint(0, log.log_end_offset)
        expected = found(False, first_offset, undecided_from)
        assert found(True, first_offset, undecided_from) == expected
