"""Offset checkpoints and leader epochs: what is read, what is refused, and what is written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import CorruptCheckpointError, KcompactError, UnsupportedError
from kcompact.format import checkpoint
from kcompact.format.checkpoint import (
    EpochEntry,
    build_leader_epochs,
    build_offset_checkpoint,
    leader_epochs_from,
    parse_leader_epochs,
    parse_offset_checkpoint,
    updated_offset_checkpoint,
)
from kcompact.format.names import TopicPartition
from tests.support.damage import cuts_and_flips

TWO = b"0\n2\norders 0 4200\na-b 11 7\n"
EPOCHS = b"0\n2\n0 0\n3 120\n"


@pytest.mark.parametrize(
    ("data", "entries"),
    [
        (b"", {}),
        (b"0", {}),
        (b"0\n", {}),
        (b"0\n0\n", {}),
        (TWO, {("orders", 0): 4200, ("a-b", 11): 7}),
        (TWO.rstrip(b"\n"), {("orders", 0): 4200, ("a-b", 11): 7}),
        (TWO.replace(b"\n", b"\r\n"), {("orders", 0): 4200, ("a-b", 11): 7}),
        (b"0\n1\nt \t +3  -1 \n", {("t", 3): -1}),
        (b"+0\n1\nt 0 9223372036854775807\n", {("t", 0): 2**63 - 1}),
        (b"0\n3\nt 0 9\nu 0 5\nt 0 2\n", {("t", 0): 2, ("u", 0): 5}),
    ],
)
def test_offset_checkpoints(data: bytes, entries: dict[tuple[str, int], int]) -> None:
    expected = {TopicPartition(*key): offset for key, offset in entries.items()}
    assert parse_offset_checkpoint(data, file="f") == expected


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"1\n0\n", "line 1: version '1' is unknown"),
        (b"\n0\n", "line 1: '' is not a valid number"),
        (b" 0\n0\n", "line 1: ' 0' is not a valid number"),
        (b"0\nx\n", "line 2: 'x' is not a valid number"),
        (b"0\n-1\n", "line 2: '-1' is not a valid number"),
        (b"0\n1\n", "line 2: 1 entries declared, 0 found"),
        (b"0\n1\nt 0 1\nu 0 1\n", "line 2: 1 entries declared, 2 found"),
        (b"0\n1\nt 0\n", "line 3: 't 0' has 2 words, not 3"),
        (b"0\n1\n t 0 1\n", "line 3: ' t 0 1' has 4 words, not 3"),
        (b"0\n1\nt 0 1\n\n", "line 4: '' has 1 words"),
        (b"0\n1\nt x 1\n", "line 3: 'x' is not a valid partition"),
        (b"0\n1\nt 2147483648 1\n", "line 3: '2147483648' is not a valid partition"),
        (b"0\n1\nt 0 9223372036854775808\n", "line 3: '9223372036854775808' is not a valid offset"),
        (b"0\n1\nt 0 1_0\n", "line 3: '1_0' is not a valid offset"),
        ("0\n1\nt 0 \U0001d7cf\n".encode(), r"line 3: '\\U0001d7cf' is not a valid offset"),
        (b"0\n1\nt 0 " + b"9" * 200 + b"\n", "line 3: '99.*9...' is not a valid offset"),
        (b"0\n1\n\xff 0 1\n", "position 4: not UTF-8"),
        (b"0\n1\n\x1b]0;x\x07 0 1 2\n", r"line 3: '\\x1b\]0;x\\x07 0 1 2' has 4 words"),
    ],
)
def test_malformed_offset_checkpoints(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=problem) as caught:
        parse_offset_checkpoint(data, file="cleaner-offset-checkpoint")
    assert caught.value.file == "cleaner-offset-checkpoint"


def test_a_file_above_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "MAX_CHECKPOINT_BYTES", 10)
    with pytest.raises(CorruptCheckpointError, match="the file has 27 bytes, more than the limit of 10"):
        parse_offset_checkpoint(TWO, file="f")


@pytest.mark.parametrize(
    ("data", "entries"),
    [
        (b"", ()),
        (b"0\n0\n", ()),
        (b"0\n2\n0 0\n3 120\n", (EpochEntry(epoch=0, start_offset=0), EpochEntry(epoch=3, start_offset=120))),
    ],
)
def test_leader_epochs(data: bytes, entries: tuple[EpochEntry, ...]) -> None:
    assert parse_leader_epochs(data, file="f") == entries
    if data:
        assert build_leader_epochs(entries) == data


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("1 5, 1 6", "1 5"),
        ("1 5, 1 5", "1 5"),
        ("1 5, 1 4", "1 4"),
        ("1 5, 0 9", "0 9"),
        ("1 5, 2 5", "2 5"),
        ("1 5, 2 9, 4 20, 3 8", "1 5, 3 8"),
        ("1 100, 0 5", "0 5"),
    ],
)
def test_a_leader_epoch_drops_those_that_do_not_lie_below_it(written: str, kept: str) -> None:
    lines = written.split(", ")
    found = parse_leader_epochs("\n".join(["0", str(len(lines)), *lines]).encode(), file="f")
    assert ", ".join(f"{entry.epoch} {entry.start_offset}" for entry in found) == kept


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"0\n1\n1 5 6\n", "line 3: '1 5 6' has 3 words, not 2"),
        (b"0\n1\n-1 5\n", "line 3: '-1' is not a valid epoch"),
    ],
)
def test_malformed_leader_epochs(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=problem):
        parse_leader_epochs(data, file="f")


@pytest.mark.parametrize("version", [1, 2, 2**31 - 1])
def test_leader_epochs_of_another_version(version: int) -> None:
    with pytest.raises(UnsupportedError, match=f"f: line 1: version {version} is unknown, only version 0") as caught:
        parse_leader_epochs(b"%d\n1\n0 0\n" % version, file="f")
    assert (caught.value.exit_code, "newer kcompact" in caught.value.hint) == (4, True)


@pytest.mark.parametrize(
    ("start_offset", "epochs"),
    [(0, [(0, 0), (3, 120)]), (5, [(0, 5), (3, 120)]), (120, [(3, 120)]), (121, [(3, 121)])],
)
def test_leader_epochs_of_a_log_whose_start_moved(start_offset: int, epochs: list[tuple[int, int]]) -> None:
    moved = leader_epochs_from(parse_leader_epochs(EPOCHS, file="f"), start_offset)
    assert [(entry.epoch, entry.start_offset) for entry in moved] == epochs


def test_partitions_that_the_broker_does_not_hold_are_dropped() -> None:
    one, two, three = (TopicPartition(topic, 0) for topic in "abc")
    updated = updated_offset_checkpoint({one: 1, two: 2}, three, 3, known={two})
    assert updated == {two: 2, three: 3}


topics = st.text("abcXYZ019._-", min_size=1, max_size=10)


@given(st.dictionaries(st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1)))
def test_offset_checkpoints_come_back(entries: dict[TopicPartition, int]) -> None:
    again = parse_offset_checkpoint(build_offset_checkpoint(entries), file="f")
    assert list(again.items()) == list(entries.items())


PARSERS: dict[bytes, Callable[[bytes], object]] = {
    TWO: lambda data: parse_offset_checkpoint(data, file="f"),
    EPOCHS: lambda data: parse_leader_epochs(data, file="f"),
}


@pytest.mark.parametrize("data", PARSERS, ids=lambda data: data[:8].hex())
def test_damage_is_reported_as_damage(data: bytes) -> None:
    for damaged in cuts_and_flips(data):
        with contextlib.suppress(KcompactError):
            PARSERS[data](damaged)


@given(st.binary(max_size=100), st.sampled_from(sorted(PARSERS)))
def test_any_bytes_are_read_or_refused(data: bytes, like: bytes) -> None:
    for damaged in (data, like[: len(data)] + data):
        with contextlib.suppress(CorruptCheckpointError, UnsupportedError):
            PARSERS[like](damaged)


def test_the_fast_way_to_read_finds_what_the_full_rules_find(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = b"0\n3\norders 0 4200\na-b 11 7\na.b_C 214748364 0\n"
    found = {data: checkpoint._plain_offsets(data) for data in (whole, *cuts_and_flips(whole))}
    monkeypatch.setattr(checkpoint, "_plain_offsets", lambda data: None)
    read = {data: offsets for data, offsets in found.items() if offsets is not None}
    assert whole in read
    assert len(read) > 20
    for data, offsets in read.items():
        assert list(parse_offset_checkpoint(data, file="f").items()) == list(offsets.items())


def test_what_kafka_writes_is_read_in_the_fast_way() -> None:
    entries = {
        TopicPartition(topic, number): number * 10**12 for topic in ("a", "b.c_D-9") for number in (0, 7, 99_999)
    }
    assert checkpoint._plain_offsets(build_offset_checkpoint(entries)) == entries
    assert checkpoint._plain_offsets(TWO.replace(b"11", b"0")) is not None
    assert checkpoint._plain_offsets(b"0\n2\nt 0 1\nt 0 2\n") is None
