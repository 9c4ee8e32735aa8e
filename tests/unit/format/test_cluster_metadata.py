"""Records of the metadata log: encoding, decoding, and damage."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import CorruptBatchError, UnsupportedError
from kcompact.format.messages.cluster_metadata import METADATA_TYPES, MetadataKind, UnknownRecord, read_record
from kcompact.format.messages.cluster_metadata import MetadataRecord as Decoded
from kcompact.format.messages.control_records import control_type
from kcompact.format.names import MetadataSnapshotName, parse_metadata_snapshot_name
from tests.support.metadata_records import (
    AbortTransaction,
    BeginTransaction,
    ConfigRecord,
    EndTransaction,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    build_record,
    record_of,
    write_uvarint,
)

ID = bytes(range(16))


def read(value: bytes | None, key: bytes | None = None) -> MetadataRecord | UnknownRecord | None:
    decoded = read_record(value, key=key, file="f", position=7, offset=42)
    return record_of(decoded) if isinstance(decoded, Decoded) else decoded


VECTORS: list[tuple[str, MetadataRecord]] = [
    (f"01 02 00 07 6f7264657273 {ID.hex()} 00", TopicRecord("orders", ID)),
    (
        "01 04 00 02 07 6f7264657273 0f 636c65616e75702e706f6c696379 08 636f6d70616374 00",
        ConfigRecord(2, "orders", "cleanup.policy", "compact"),
    ),
    ("01 04 00 04 01 02 61 00 00", ConfigRecord(4, "", "a", None)),
    ("01 04 00 04 02 31 02 61 01 00", ConfigRecord(4, "1", "a", "")),
    (f"01 09 00 {ID.hex()} 00", RemoveTopicRecord(ID)),
    ("01 0c 00 11 6d657461646174612e76657273696f6e 001e 00", FeatureLevelRecord("metadata.version", 30)),
    # The fields behind the topic id are skipped, in any version.
    (f"01 03 00 00000007 {ID.hex()} 02 00000001 00", PartitionRecord(7, ID, (1,))),
    (f"01 03 02 00000007 {ID.hex()} 03 00000001 00000003 0200000001", PartitionRecord(7, ID, (1, 3))),
    (f"01 03 09 00000007 {ID.hex()} 01", PartitionRecord(7, ID, ())),
    (f"01 05 02 00000007 {ID.hex()} 00", PartitionChangeRecord(7, ID, None)),
    (f"01 05 00 00000007 {ID.hex()} 02 01 04 00000002 02 05 02 00000002", PartitionChangeRecord(7, ID, (2,))),
    # A transaction's name is a tagged field.
    ("01 17 00 01 00 12 12 426f6f747374726170207265636f726473", BeginTransaction()),
    ("01 17 00 00", BeginTransaction()),
    ("01 18 00 00", EndTransaction()),
    ("01 19 00 01 00 04 04 6e6f21", AbortTransaction()),
    # Longer than needed; Kafka accepts it too.
    (f"8100 02 8000 07 6f7264657273 {ID.hex()} 00", TopicRecord("orders", ID)),
]


@pytest.mark.parametrize(
    ("text", "record"), VECTORS, ids=[f"{row[1].__class__.__name__}-{i}" for i, row in enumerate(VECTORS)]
)
def test_vectors(text: str, record: MetadataRecord) -> None:
    assert read(bytes.fromhex(text)) == record


@pytest.mark.parametrize("number", [0, 1, 2, 4, 5, 6])
def test_vectors_are_what_is_written(number: int) -> None:
    text, record = VECTORS[number]
    assert build_record(record) == bytes.fromhex(text)


def test_other_kinds_are_passed_over() -> None:
    assert read(bytes.fromhex("01 14 00 00")) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("01 06 01 ffffffff", "record type 6"),
        ("01 7f 00", "record type 127"),
        ("01 ffff01 ffff01", "record type 32767"),
        ("01 14 01 00", "version 1 of NO_OP_RECORD"),
        # Of these only a part is read. A later version may have it in another place.
        (f"01 03 09 00000007 {ID.hex()} ffffffff7f", "version 9 of PARTITION_RECORD"),
        (f"01 05 09 00000007 {ID.hex()} 01", "version 9 of PARTITION_CHANGE_RECORD"),
    ],
)
def test_unknown_records_that_decide_nothing(text: str, shown: str) -> None:
    found = read(bytes.fromhex(text))
    assert isinstance(found, UnknownRecord)
    assert str(found) == shown


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("00 02 00", "frame version 0 is unknown"),
        ("02 02 00", "frame version 2 is unknown"),
        *(
            (f"01 {int(kind):02x} 01 02 61", f"version 1 of record type {int(kind)} .* is unknown")
            for kind in (
                MetadataKind.TOPIC,
                MetadataKind.CONFIG,
                MetadataKind.REMOVE_TOPIC,
                MetadataKind.FEATURE_LEVEL,
                MetadataKind.BEGIN_TRANSACTION,
                MetadataKind.END_TRANSACTION,
                MetadataKind.ABORT_TRANSACTION,
            )
        ),
    ],
)
def test_unknown_records_that_decide_are_refused(text: str, problem: str) -> None:
    with pytest.raises(UnsupportedError, match=f"f: position 7, offset 42: metadata record: {problem}") as refused:
        read(bytes.fromhex(text))
    assert refused.value.exit_code == 4
    assert "from a running cluster" in refused.value.hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a field of 1 bytes, 0 are left"),
        ("01 808002 00", "record type 32768"),
        ("01 02 808002", "version 32768"),
        ("01 ffffffffff 00", "too long"),
        (f"01 02 00 00 {ID.hex()} 00", "name is null"),
        (f"01 02 00 02 ff {ID.hex()} 00", "not UTF-8"),
        (f"01 02 00 ffffffff0f 61 {ID.hex()} 00", "a count of more than 31 bits"),
        (f"01 02 00 02 61 {ID.hex()} 00 00", "1 bytes after the last field"),
        (f"01 02 00 02 61 {ID.hex()} 01 00", "0 are left"),
        (f"01 02 00 02 61 {ID.hex()} ffffffff7f", "a count of more than 31 bits"),
        ("01 03 00 00000007 00", "a field of 16 bytes"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(CorruptBatchError, match=problem) as refused:
        read(bytes.fromhex(text))
    assert (refused.value.file, refused.value.position, refused.value.offset) == ("f", 7, 42)
    assert refused.value.exit_code == 3


def test_a_record_has_a_value_and_no_key() -> None:
    for value, key in ((None, None), (b"\x01\x14\x00\x00", b"")):
        with pytest.raises(CorruptBatchError, match="a value and no key"):
            read(value, key)


@pytest.mark.parametrize(("text", "record"), VECTORS, ids=[str(number) for number in range(len(VECTORS))])
def test_truncated_at_every_byte(text: str, record: MetadataRecord) -> None:
    whole = bytes.fromhex(text)
    end = len(whole) if not isinstance(record, PartitionRecord) else 3 + 4 + 16
    for length in range(end):
        if length > 2 and whole[2] > 2:
            assert isinstance(read(whole[:length]), UnknownRecord)  # In a later version the fields may be elsewhere.
            continue
        with pytest.raises(CorruptBatchError):
            read(whole[:length])


STRINGS = st.text(st.characters(codec="utf-8"), max_size=200)
IDS = st.binary(min_size=16, max_size=16)
RECORDS: st.SearchStrategy[MetadataRecord] = st.one_of(
    st.builds(TopicRecord, STRINGS, IDS),
    st.builds(PartitionRecord, st.integers(-(2**31), 2**31 - 1), IDS),
    st.builds(ConfigRecord, st.integers(-128, 127), STRINGS, STRINGS, st.none() | STRINGS),
    st.builds(RemoveTopicRecord, IDS),
    st.builds(FeatureLevelRecord, STRINGS, st.integers(-(2**15), 2**15 - 1)),
    st.sampled_from([BeginTransaction(), EndTransaction(), AbortTransaction()]),
)
TAGGED = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=200)), max_size=5)


@given(RECORDS, TAGGED)
def test_what_is_written_is_read(record: MetadataRecord, tagged: list[tuple[int, bytes]]) -> None:
    fields = b"".join(write_uvarint(tag) + write_uvarint(len(content)) + content for tag, content in tagged)
    found = read(build_record(record, tagged=write_uvarint(len(tagged)) + fields))
    assert found == record
    assert type(found) is type(record)


@given(
    st.binary(max_size=60)
    | st.builds(lambda kind, rest: bytes((1, kind, 0)) + rest, st.integers(0, 30), st.binary(max_size=60))
)
def test_hostile_bytes(value: bytes) -> None:
    with contextlib.suppress(CorruptBatchError, UnsupportedError):
        read(value)


DECISIVE = frozenset({2, 4, 9, 12, 23, 24, 25})


@given(st.integers(0, 2**15 - 1), st.integers(0, 2**15 - 1), st.binary(max_size=200))
def test_a_later_version_never_counts_as_damage(number: int, version: int, rest: bytes) -> None:
    kind = METADATA_TYPES.get(number)
    later = version if kind is None or version > kind.last_version else kind.last_version + 1
    value = b"\1" + write_uvarint(number) + write_uvarint(later) + rest
    try:
        found = read_record(value, file="f", position=0, offset=0)
    except UnsupportedError:
        assert number in DECISIVE
    else:
        assert isinstance(found, UnknownRecord) or (found is not None and found.version == later)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000004200-0000000003.checkpoint", MetadataSnapshotName(4200, 3)),
        ("09223372036854775807-2147483647.checkpoint", MetadataSnapshotName(2**63 - 1, 2**31 - 1)),
        ("09223372036854775808-0000000003.checkpoint", None),
        ("00000000000000004200-2147483648.checkpoint", None),
        ("00000000000000004200-0000000003.checkpoint.part", None),
        ("00000000000000004200-0000000003.checkpoint.deleted", None),
        ("4200-3.checkpoint", None),
        ("bootstrap.checkpoint", None),
    ],
)
def test_snapshot_names(name: str, expected: MetadataSnapshotName | None) -> None:
    assert parse_metadata_snapshot_name(name) == expected
    assert expected is None or str(expected) == name


def test_control_types() -> None:
    assert control_type(b"\0\0\0\4", file="f", position=0, offset=0) == 4
    for key in (None, b"", b"\0\0\0"):
        with pytest.raises(CorruptBatchError, match="without a type"):
            control_type(key, file="f", position=0, offset=0)
