"""The groups of `__consumer_offsets`: which records hold, also of transactions, and whose bytes a batch has."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import CorruptBatchError
from kcompact.format.batch import HEADER_BYTES, Record, build, computed_crc, parse_batches
from kcompact.format.codec import Codec
from kcompact.format.names import log_name
from kcompact.kernels import ABORT, COMMIT
from kcompact.log import records
from kcompact.log.files import files_in
from kcompact.questions.groups import GroupContents, GroupType, LogGroups, log_groups
from tests.support import examples
from tests.support.coordinator_keys import classic_value, group_key, offset_key, offset_value
from tests.support.defined_groups import DefinedGroups

KEY = offset_key("g")
VALUE = offset_value(42)

Step = tuple[str, Any]
"""`put` or `txn7` with key and value, or `commit7` or `abort7`, with the producer id."""


def counted(*steps: tuple[Any, ...]) -> LogGroups:
    counter = DefinedGroups()
    for offset, (what, *content) in enumerate(steps):
        counter.add(next(parse_batches(batch(offset, what, *content), file="f")), file="f")
    return counter.contents()


def batch(offset: int, what: str, *content: bytes | None) -> bytes:
    kind, producer_id = what.rstrip("0123456789"), int(what.lstrip("abcdefghijklmnopqrstuvwxyz") or -1)
    transactional = {"producer_id": producer_id, "producer_epoch": 0, "transactional": kind != "put"}
    if kind in ("commit", "abort"):
        control = (0).to_bytes(2, "big") + (COMMIT if kind == "commit" else ABORT).to_bytes(2, "big")
        return build([Record(offset, 1, control, bytes(6))], control=True, **transactional)  # type: ignore[arg-type]
    return build([Record(offset, 1, *content)], base_sequence=-1, **transactional)  # type: ignore[arg-type]


def only(found: LogGroups) -> GroupContents:
    (group,) = found.groups
    return group


@pytest.mark.parametrize(
    ("steps", "offsets", "pending", "tombstones"),
    [
        ([("put", KEY, VALUE), ("put", KEY, VALUE)], 1, 0, 0),
        ([("put", KEY, VALUE), ("put", offset_key("g", partition=1), VALUE)], 2, 0, 0),
        ([("put", KEY, VALUE), ("put", KEY, None)], 0, 0, 1),
        ([("put", KEY, None), ("put", KEY, VALUE)], 1, 0, 1),
        ([("put", offset_key("g", legacy=True), VALUE), ("put", KEY, VALUE)], 1, 0, 0),
        ([("put", offset_key("g", legacy=True), VALUE), ("put", KEY, None)], 0, 0, 1),
        ([("txn7", KEY, VALUE)], 0, 1, 0),
        ([("txn7", KEY, VALUE), ("txn8", KEY, VALUE)], 0, 1, 0),
        ([("txn7", KEY, VALUE), ("commit7",)], 1, 0, 0),
        ([("txn7", KEY, VALUE), ("commit8",)], 0, 1, 0),
        ([("txn7", KEY, VALUE), ("abort7",)], 0, 0, 0),
        ([("put", KEY, VALUE), ("txn7", KEY, VALUE), ("abort7",)], 1, 0, 0),
        # A tombstone removes what is pending too; what comes after it counts.
        ([("txn7", KEY, VALUE), ("put", KEY, None), ("commit7",)], 0, 0, 1),
        ([("put", KEY, None), ("txn7", KEY, VALUE), ("commit7",)], 1, 0, 1),
        ([("commit7",), ("put", KEY, VALUE)], 1, 0, 0),
    ],
)
def test_live_offsets(steps: list[tuple[Any, ...]], offsets: int, pending: int, tombstones: int) -> None:
    group = only(counted(*steps))
    assert (group.offsets, group.pending_offsets, group.tombstones) == (offsets, pending, tombstones)


def test_the_later_record_stays_when_a_transaction_ends_after_it() -> None:
    """The sizes say which record is live."""
    long = offset_value(1) + bytes(100)
    kept = only(counted(("txn7", KEY, long), ("put", KEY, VALUE), ("commit7",))).live_bytes
    assert kept == only(counted(("put", KEY, VALUE))).size_bytes
    moved = only(counted(("put", KEY, VALUE), ("txn7", KEY, long), ("commit7",))).live_bytes
    assert moved > kept + 100


@pytest.mark.parametrize(
    ("steps", "kind", "members"),
    [
        ([("put", group_key(2, "g"), classic_value(3))], GroupType.CLASSIC, 3),
        ([("put", group_key(2, "g"), classic_value(0)), ("put", KEY, VALUE)], GroupType.CLASSIC, 0),
        ([("put", group_key(2, "g"), b"\0\x63")], GroupType.CLASSIC, None),
        ([("put", KEY, VALUE)], GroupType.SIMPLE, 0),
        ([("txn7", KEY, VALUE)], GroupType.SIMPLE, 0),
        ([("put", KEY, None)], GroupType.DELETED, 0),
        ([("txn7", KEY, VALUE), ("abort7",)], GroupType.DELETED, 0),
        ([("put", group_key(3, "g"), b"x"), ("put", group_key(5, "g", "m"), b"x")], GroupType.CONSUMER, 1),
        ([("put", group_key(11, "g"), b"x"), ("put", group_key(10, "g", "m"), b"x")], GroupType.SHARE, 1),
        ([("put", group_key(17, "g"), b"x"), ("put", group_key(19, "g", "m"), b"x")], GroupType.STREAMS, 1),
        (
            [
                ("put", group_key(5, "g", "m"), b"x"),
                ("put", group_key(3, "g"), b"x"),
                ("put", group_key(5, "g", "m"), None),
            ],
            GroupType.CONSUMER,
            0,
        ),
        ([("put", group_key(7, "g", "m"), b"x")], GroupType.UNKNOWN, 0),
        # A group that has moved to the other protocol.
        (
            [
                ("put", group_key(2, "g"), classic_value(3)),
                ("put", group_key(2, "g"), None),
                ("put", group_key(3, "g"), b"x"),
            ],
            GroupType.CONSUMER,
            0,
        ),
    ],
)
def test_types_and_members(steps: list[tuple[Any, ...]], kind: GroupType, members: int | None) -> None:
    group = only(counted(*steps))
    assert (group.type, group.members) == (kind, members)


def test_records_that_cannot_be_decoded_are_counted() -> None:
    found = counted(("put", b"\0\x63", b"x"), ("put", None, b"x"), ("put", KEY, VALUE))
    assert found.undecoded_records == 2
    assert found.undecoded_bytes == len(batch(0, "put", b"\0\x63", b"x")) + len(batch(1, "put", None, b"x"))
    assert only(found).records == 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.binary(max_size=200)), min_size=1, max_size=8))
def test_the_bytes_of_a_batch_are_divided_and_add_up(content: list[tuple[str, bytes | None]]) -> None:
    records = [Record(offset, 1, offset_key(group), value) for offset, (group, value) in enumerate(content)]
    data = build(records)
    counter = DefinedGroups()
    counter.add(next(parse_batches(data, file="f")), file="f")
    groups = counter.contents().groups
    assert sum(group.size_bytes for group in groups) == len(data)
    assert [group.size_bytes for group in groups] == sorted((group.size_bytes for group in groups), reverse=True)
    assert all(0 <= group.live_bytes <= group.size_bytes for group in groups)


KEYS = [
    *(offset_key(group, partition=number) for group in "ab" for number in (0, 1)),
    group_key(2, "a"),
    b"\0\x63",
    b"",
]
RECORDS = st.lists(
    st.tuples(
        st.sampled_from([*KEYS, offset_key("a", legacy=True), None]),
        st.none() | st.binary(max_size=100) | st.just(classic_value(2)),
        st.integers(1, 3),
        st.sampled_from([1, 1, 0, 99_000]),
        st.sampled_from([(), (), (), ((b"h", b"x"),)]),
    ),
    min_size=1,
    max_size=80,
)
BATCHES = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "put", "txn", "commit", "abort"]),
        st.sampled_from([7, 8]),
        RECORDS | RECORDS.map(lambda records: records[:2]),
        st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP]),
    ),
    min_size=1,
    max_size=12,
)


def bytes_of(batches: list[tuple[Any, ...]]) -> bytes:
    """Batches one after the other."""
    data, offset = b"", 0
    for kind, producer_id, content, codec in batches:
        if kind in ("commit", "abort"):
            data += batch(offset, f"{kind}{producer_id}")
            offset += 1
            continue
        records = []
        for key, value, gap, delta, headers in content:
            records.append(Record(offset, 1_700_000_000_000 + delta, key, value, headers))
            offset += gap
        producer = {"producer_id": producer_id, "producer_epoch": 0, "transactional": True} if kind == "txn" else {}
        data += build(records, codec=codec, **producer)
    return data


def one_by_one(data: bytes) -> LogGroups | str:
    counter = DefinedGroups()
    try:
        for each in parse_batches(data, file="f"):
            counter.add(each, file="f")
    except CorruptBatchError:
        return "corrupt"
    return counter.contents()


def at_once(data: bytes) -> LogGroups | str:
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / log_name(0)).write_bytes(data)
        try:
            return log_groups(files_in(Path(directory)))
        except CorruptBatchError:
            return "corrupt"


@given(BATCHES)
def test_many_batches_at_once_are_counted_like_one_after_the_other(batches: list[tuple[Any, ...]]) -> None:
    data = bytes_of(batches)
    assert at_once(data) == one_by_one(data)


def test_many_batches_with_any_byte_changed_are_counted_like_one_after_the_other() -> None:
    """The checksum is right, so only the records can be wrong."""
    sound = build([Record(0, 1, KEY, VALUE), Record(2, 9000, group_key(3, "g"), b"x"), Record(3, 1, KEY, None)])
    outcomes = set()
    for position in range(HEADER_BYTES - 1, len(sound)):  # From the last byte of the number of records on.
        for byte in {
            0,
            1,
            2,
            0x7F,
            0x80,
            0xFF,
            *((sound[position] + change) % 256 for change in (-4, -2, -1, 1, 2, 4)),
        }:
            data = bytearray(sound)
            data[position] = byte
            data[17:21] = computed_crc(data).to_bytes(4, "big")
            expected = one_by_one(bytes(data))
            assert at_once(bytes(data)) == expected, (position, byte)
            outcomes.add(str(expected))
    assert len(outcomes) > 40


@pytest.mark.parametrize(
    "section",
    [
        "0e 00 00 00 02 6b 01 00",  # A tombstone with the key `k`.
        "10 00 00 00 02 6b 8100 00",  # A length of more bytes than needed: a tombstone too.
        "16 00 00 00 02 6b 818080808000",  # A length of six bytes, where Kafka allows five.
        "0e 00 00 00 02 6b 01 00 00",  # A byte after the record.
        "0e 00 00 00 02 6b 03 00",  # Length -2, which is null like -1.
        "0e 00 00 00 01 01 00 00",  # No key, and bytes after the record.
    ],
)
def test_records_of_other_forms_are_counted_like_one_after_the_other(section: str) -> None:
    records = bytes.fromhex(section)
    data = bytearray(build([Record(0, 1, b"k", None)])[:HEADER_BYTES] + records)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[17:21] = computed_crc(data).to_bytes(4, "big")
    assert at_once(bytes(data)) == one_by_one(bytes(data))


def test_the_batches_of_a_coordinator_are_counted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The definition is asked for none of them."""
    data = b"".join(batch(offset, "put", KEY, VALUE if offset % 3 else None) for offset in range(100))
    data += build([Record(100 + number, 1, offset_key("g", partition=number), VALUE) for number in range(64)])
    data += batch(164, "txn7", KEY, VALUE) + batch(165, "commit7")
    (tmp_path / log_name(0)).write_bytes(data)
    monkeypatch.delattr(records, "read_records")
    group = only(log_groups(files_in(tmp_path)))
    assert (group.records, group.offsets, group.tombstones, group.pending_offsets) == (165, 64, 34, 0)


def test_a_segment_with_batches_that_the_columns_refuse(tmp_path: Path) -> None:
    """Leader epochs that fall, which a warning of `--verify` reports: the rest is read batch by batch."""
    directory = tmp_path / "__consumer_offsets-0"
    directory.mkdir()
    parts = [build([Record(number, 1, KEY, VALUE)], partition_leader_epoch=5 - number) for number in range(4)]
    (directory / "00000000000000000000.log").write_bytes(b"".join(parts))
    group = only(log_groups(files_in(directory)))
    assert (group.records, group.size_bytes) == (4, sum(map(len, parts)))


def test_a_log(tmp_path: Path) -> None:
    directory = examples.build("groups", tmp_path / "logs") / "__consumer_offsets-0"
    found = log_groups(files_in(directory))
    assert [(each.group, each.type, each.members, each.offsets, each.tombstones) for each in found.groups] == [
        ("billing", GroupType.CLASSIC, 1, 2, 0),
        ("shipping", GroupType.CONSUMER, 1, 1, 0),
        ("reports", GroupType.DELETED, 0, 0, 2),
    ]
    total = sum(path.stat().st_size for path in directory.glob("*.log"))
    assert sum(each.size_bytes for each in found.groups) + found.undecoded_bytes + found.other_bytes == total


def test_damage_is_an_error() -> None:
    data = bytearray(batch(0, "put", KEY, VALUE))
    data[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        DefinedGroups().add(next(parse_batches(bytes(data), file="f")), file="f")
