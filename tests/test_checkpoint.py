"""The text files: what is read, what is refused, and the order in which the cleaner's checkpoint is written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import CorruptCheckpointError, KcompactError
from kcompact.format import checkpoint
from kcompact.format.checkpoint import (
    EpochEntry,
    MetaProperties,
    PartitionMetadata,
    build_clean_shutdown,
    build_leader_epochs,
    build_meta_properties,
    build_offset_checkpoint,
    build_partition_metadata,
    java_map_order,
    parse_clean_shutdown,
    parse_java_properties,
    parse_leader_epochs,
    parse_meta_properties,
    parse_offset_checkpoint,
    parse_partition_metadata,
    updated_offset_checkpoint,
)
from kcompact.format.names import TopicPartition

TWO = b"0\n2\norders 0 4200\na-b 11 7\n"
TOPIC_ID = "QNLMCLnWRESZK_ap_Xld8w"
METADATA = f"version: 0\ntopic_id: {TOPIC_ID}".encode()


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
    ],
)
def test_offset_checkpoints(data: bytes, entries: dict[tuple[str, int], int]) -> None:
    expected = {TopicPartition(*key): offset for key, offset in entries.items()}
    assert parse_offset_checkpoint(data, file="f") == expected


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"1\n0\n", "line 1: version '1' is unknown"),
        (b"\n0\n", "line 1: '' is no number"),
        (b" 0\n0\n", "line 1: ' 0' is no number"),
        (b"0\nx\n", "line 2: 'x' is no number"),
        (b"0\n-1\n", "line 2: '-1' is no number"),
        (b"0\n1\n", "line 2: 1 entries declared, 0 found"),
        (b"0\n1\nt 0 1\nu 0 1\n", "line 2: 1 entries declared, 2 found"),
        (b"0\n1\nt 0\n", "line 3: 't 0' has 2 words, not 3"),
        (b"0\n1\n t 0 1\n", "line 3: ' t 0 1' has 4 words, not 3"),
        (b"0\n1\nt 0 1\n\n", "line 4: '' has 1 words"),
        (b"0\n1\nt x 1\n", "line 3: 'x' is no partition"),
        (b"0\n1\nt 2147483648 1\n", "line 3: '2147483648' is no partition"),
        (b"0\n1\nt 0 9223372036854775808\n", "line 3: '9223372036854775808' is no offset"),
        (b"0\n1\nt 0 1_0\n", "line 3: '1_0' is no offset"),
        ("0\n1\nt 0 \u0661\n".encode(), r"line 3: '\\u0661' is no offset"),
        (b"0\n2\nt 0 1\nt 0 2\n", "line 4: 't 0 2': this entry comes twice"),
        (b"0\n1\nt 0 " + b"9" * 200 + b"\n", "line 3: '99.*9...' is no offset"),
        (b"0\n1\n\xff 0 1\n", "position 4: not UTF-8"),
        (b"0\n1\n\x1b]0;x\x07 0 1 2\n", r"line 3: '\\x1b\]0;x\\x07 0 1 2' has 4 words"),
    ],
)
def test_malformed_offset_checkpoints(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=problem) as caught:
        parse_offset_checkpoint(data, file="cleaner-offset-checkpoint")
    assert caught.value.file == "cleaner-offset-checkpoint"


def test_a_file_far_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "MAX_CHECKPOINT_BYTES", 10)
    with pytest.raises(CorruptCheckpointError, match="27 bytes are too many for such a file, the limit is 10"):
        parse_offset_checkpoint(TWO, file="f")
    with pytest.raises(CorruptCheckpointError, match="too many"):
        parse_meta_properties(bytes(1024 * 1024 + 1), file="f")


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
    ("data", "problem"),
    [
        (b"0\n2\n1 5\n0 9\n", "line 4: 0 9 does not rise"),
        (b"0\n2\n1 5\n2 5\n", "line 4: 2 5 does not rise"),
        (b"0\n2\n1 5\n1 6\n", "line 4: '1 6': this entry comes twice"),
        (b"0\n1\n1 5 6\n", "line 3: '1 5 6' has 3 words, not 2"),
        (b"0\n1\n-1 5\n", "line 3: '-1' is no epoch"),
    ],
)
def test_malformed_leader_epochs(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=problem):
        parse_leader_epochs(data, file="f")


# What Java 17 gives for these files (in file order) once orders-0 is set, by the three maps of Kafka's cleaner.
# AaAa, AaBB and so on have the same hash code.
JAVA_ORDERS = [
    ("", "orders 0"),
    ("orders:1", "orders 0"),
    ("orders:3,Aa:2,BB:2", "Aa 1,BB 1,Aa 0,BB 0,orders 0,orders 1,orders 2"),
    (
        "orders:2,AaAa:1,AaBB:1,BBAa:1,BBBB:1,C#Aa:1,C#BB:1,AaC#:1,BBC#:1,C#C#:1,z:1",
        "orders 1,AaAa 0,AaBB 0,BBAa 0,BBBB 0,C#Aa 0,C#BB 0,AaC# 0,BBC# 0,C#C# 0,orders 0,z 0",
    ),
    (
        "orders:12",
        "orders 7,orders 8,orders 9,orders 10,orders 11,orders 0,orders 1,orders 2,orders 3,orders 4,orders 5,orders 6",
    ),
    ("a:7,b:6", "a 2,b 3,a 1,b 2,a 0,b 1,b 0,orders 0,a 6,a 5,a 4,b 5,a 3,b 4"),
    ("a:12", "a 2,a 1,a 0,a 11,a 10,a 9,orders 0,a 8,a 7,a 6,a 5,a 4,a 3"),
    (
        "a:24",
        "a 1,a 22,a 20,a 18,a 16,a 14,a 12,a 10,a 8,a 6,a 4,a 2,a 0,"
        "a 23,a 21,a 19,a 17,a 15,a 13,a 11,a 9,orders 0,a 7,a 5,a 3",
    ),
]


@pytest.mark.parametrize(("before", "after"), JAVA_ORDERS)
def test_the_order_of_kafka_s_cleaner(before: str, after: str) -> None:
    counts = [word.split(":") for word in before.split(",") if word]
    entries = {TopicPartition(topic, number): 5 for topic, count in counts for number in range(int(count))}
    updated = updated_offset_checkpoint(entries, TopicPartition("orders", 0), 9)
    assert ",".join(f"{key.topic} {key.partition}" for key in updated) == after
    assert updated == {**entries, TopicPartition("orders", 0): 9}


def test_a_copied_map_is_smaller_since_java_19() -> None:
    entries = {TopicPartition("a", number): 0 for number in range(24)}
    orders = [list(updated_offset_checkpoint(entries, TopicPartition("a", 0), 9, java=java)) for java in (17, 21)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])


def test_partitions_that_the_broker_does_not_hold_are_dropped() -> None:
    one, two, three = (TopicPartition(topic, 0) for topic in "abc")
    updated = updated_offset_checkpoint({one: 1, two: 2}, three, 3, known={two})
    assert updated == {two: 2, three: 3}


@given(st.lists(st.builds(TopicPartition, st.text(max_size=3), st.integers(0, 200)), max_size=200))
def test_the_order_neither_adds_nor_drops(keys: list[TopicPartition]) -> None:
    assert sorted(java_map_order(keys)) == sorted(set(keys))


topics = st.text("abcXYZ019._-", min_size=1, max_size=10)


@given(st.dictionaries(st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1)))
def test_offset_checkpoints_come_back(entries: dict[TopicPartition, int]) -> None:
    again = parse_offset_checkpoint(build_offset_checkpoint(entries), file="f")
    assert list(again.items()) == list(entries.items())


@pytest.mark.parametrize(
    ("data", "version"),
    [(METADATA, 0), (METADATA + b"\n", 0), (METADATA + b"==\nmore", 0), (METADATA.replace(b"0\n", b"7\n"), 7)],
)
def test_partition_metadata(data: bytes, version: int) -> None:
    found = parse_partition_metadata(data, file="f")
    assert found == PartitionMetadata(version=version, topic_id=TOPIC_ID)
    assert build_partition_metadata(found.topic_id) == METADATA
    assert len(METADATA) == 43


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "0 lines, not 2"),
        (b"version: 0", "1 lines, not 2"),
        (b"version:0\ntopic_id: x", "line 1: 'version:0' is not 'name: value'"),
        (b"version: -1\ntopic_id: " + TOPIC_ID.encode(), "line 1: '-1' is no number"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "line 2: 'A*' is no topic id"),
        (b"version: 0\ntopic_id: QNLMCLnWRESZK_ap_Xld8", "line 2: .* is no topic id"),
        (b"version: 0\ntopic_id: QNLMCLnWRESZK+ap_Xld8w", "line 2: .* is no topic id"),
    ],
)
def test_malformed_partition_metadata(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=problem):
        parse_partition_metadata(data, file="f")


KRAFT = b"#\n#Tue Nov 14 22:13:20 UTC 2023\ncluster.id=4L6g3nShT-eMCtK--X86sw\nversion=1\nnode.id=1\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (KRAFT, (1, "4L6g3nShT-eMCtK--X86sw", 1, None)),
        (KRAFT + b"directory.id=abc\n", (1, "4L6g3nShT-eMCtK--X86sw", 1, "abc")),
        (b"version=0\nbroker.id=3\n", (0, None, 3, None)),
    ],
)
def test_meta_properties(data: bytes, expected: tuple[int, str | None, int | None, str | None]) -> None:
    found = parse_meta_properties(data, file="f")
    assert (found.version, found.cluster_id, found.node_id, found.directory_id) == expected
    assert parse_meta_properties(build_meta_properties(found), file="f") == found


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "version '' is unknown"),
        (b"version=2\n", "version '2' is unknown"),
        (b"version=one\n", "'one' is no version"),
        (b"version=1\nnode.id=99999999999\n", "'99999999999' is no node.id"),
        (b"a=\\u12\n", "line 1: .* has a malformed"),
        (b"\xff=1\n", "not UTF-8"),
    ],
)
def test_malformed_meta_properties(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=problem):
        parse_meta_properties(data, file="f")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("# c\n ! c\n\n", {}),
        ("a=1\nb:2\nc 3\nd\n", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("a = 1 \n\tb\t:\t2", {"a": "1 ", "b": "2"}),
        ("a==1\nb=:1\nc = = 1", {"a": "=1", "b": ":1", "c": "= 1"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a=x\\\n    y\\\n#z\nb=2", {"a": "xy#z", "b": "2"}),
        ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        ("a=\\u0041\\t\\n\\q", {"a": "A\t\nq"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("=1", {"": "1"}),
    ],
)
def test_java_properties(text: str, expected: dict[str, str]) -> None:
    assert parse_java_properties(text.encode(), file="f") == expected


@given(st.text(), st.text())
def test_meta_properties_come_back(cluster_id: str, directory_id: str) -> None:
    written = MetaProperties(version=1, cluster_id=cluster_id, node_id=1, directory_id=directory_id)
    assert parse_meta_properties(build_meta_properties(written), file="f") == written


@pytest.mark.parametrize(
    ("data", "epoch"),
    [
        (b'{"version":0,"brokerEpoch":17}', 17),
        (b'{"brokerEpoch":17,"more":[1]}', 17),
        (b"", None),
        (b"[]", None),
        (b'{"brokerEpoch":null}', None),
        (b'{"brokerEpoch":"x"}', None),
        (b'{"brokerEpoch":' + b"9" * 30 + b"}", None),
        (b'{"brokerEpoch":' + b"9" * 9000 + b"}", None),
        (b"[" * 500_000, None),
        (b"\xff\xfe", None),
        (bytes(1024 * 1024 + 1), None),
    ],
    ids=range(11),
)
def test_clean_shutdown(data: bytes, epoch: int | None) -> None:
    assert parse_clean_shutdown(data) == epoch


def test_clean_shutdown_comes_back() -> None:
    assert build_clean_shutdown(17) == b'{"version":0,"brokerEpoch":17}'


PARSERS: dict[bytes, Callable[[bytes], object]] = {
    TWO: lambda data: parse_offset_checkpoint(data, file="f"),
    b"0\n2\n0 0\n3 120\n": lambda data: parse_leader_epochs(data, file="f"),
    METADATA: lambda data: parse_partition_metadata(data, file="f"),
    KRAFT: lambda data: parse_meta_properties(data, file="f"),
    b'{"version":0,"brokerEpoch":17}': parse_clean_shutdown,
}


@pytest.mark.parametrize("data", PARSERS, ids=lambda data: data[:8].hex())
def test_damage_is_reported_as_damage(data: bytes) -> None:
    parse = PARSERS[data]
    cuts = [data[:length] for length in range(len(data))]
    flips = [
        data[:position] + bytes((data[position] ^ 1 << bit,)) + data[position + 1 :]
        for position in range(len(data))
        for bit in range(8)
    ]
    for damaged in cuts + flips:
        with contextlib.suppress(KcompactError):
            parse(damaged)


@given(st.binary(max_size=100), st.sampled_from(sorted(PARSERS)))
def test_any_bytes_are_read_or_refused(data: bytes, like: bytes) -> None:
    for damaged in (data, like[: len(data)] + data):
        with contextlib.suppress(CorruptCheckpointError):
            PARSERS[like](damaged)
