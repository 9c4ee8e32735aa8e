"""Records of Kafka's coordinators: bytes to fields, and what is wrong with bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.format.messages.coordinators import RECORD_TYPES, Decoded, decode
from kcompact.format.messages.schema import Array, MessageField, Primitive, Struct
from kcompact.format.names import CONSUMER_OFFSETS, INTERNAL_TOPICS, SHARE_GROUP_STATE, TRANSACTION_STATE

OFFSET_KEY = "0001 0001 67 0002 6f6b 00000003"
"""Type 1, group `g`, topic `ok`, partition 3."""
ZERO = "00" * 16
ID = bytes(range(16)).hex()


def decoded(topic: str, key: str, value: str | None) -> Decoded:
    return decode(topic, bytes.fromhex(key), None if value is None else bytes.fromhex(value))


TIME = "000000000000000c"
MEMBER_KEY = "0005 0001 67 0001 6d"
MEMBER = "0000 00 00 0263 0268 01 00 00000001 00"
"""A member without its tagged fields."""
MEMBER_FIELDS: dict[str, object] = {
    "instanceId": None,
    "rackId": None,
    "clientId": "c",
    "clientHost": "h",
    "subscribedTopicNames": [],
    "subscribedTopicRegex": None,
    "rebalanceTimeoutMs": 1,
    "serverAssignor": None,
}
VECTORS: list[tuple[str, str, dict[str, object]]] = [
    (OFFSET_KEY, f"0000 0000000000000007 0001 6d {TIME}", {"offset": 7, "metadata": "m", "commitTimestamp": 12}),
    (
        OFFSET_KEY,
        f"0001 0000000000000007 0000 {TIME} ffffffffffffffff",
        {"offset": 7, "metadata": "", "commitTimestamp": 12, "expireTimestamp": -1},
    ),
    (
        OFFSET_KEY,
        f"0003 0000000000000007 00000005 0000 {TIME}",
        {"offset": 7, "leaderEpoch": 5, "metadata": "", "commitTimestamp": 12},
    ),
    # Flexible: shorter strings, and tagged fields, of which unknown ones are skipped and defaults left out.
    (
        OFFSET_KEY,
        f"0004 0000000000000007 00000005 026d {TIME} 02 0010{ID} 0902ffff",
        {"offset": 7, "leaderEpoch": 5, "metadata": "m", "commitTimestamp": 12, "topicId": "AAECAwQFBgcICQoLDA0ODw"},
    ),
    (
        OFFSET_KEY,
        f"0004 0000000000000007 00000005 01 {TIME} 01 0010{ZERO}",
        {"offset": 7, "leaderEpoch": 5, "metadata": "", "commitTimestamp": 12},
    ),
    # Bytes after the last field are ignored, as by Kafka; text that is not UTF-8 is replaced.
    (
        OFFSET_KEY,
        f"0000 0000000000000007 0001 ff {TIME} 99",
        {"offset": 7, "metadata": "\ufffd", "commitTimestamp": 12},
    ),
    # A group of Kafka Connect: its members' bytes stay as they are, in base64.
    (
        "0002 0001 67",
        "0000 0007 636f6e6e656374 00000001 ffff ffff 00000001 0001 6d 0001 63 0001 68 00000009 00000002 0102 00000000",
        {
            "protocolType": "connect",
            "generation": 1,
            "protocol": None,
            "leader": None,
            "members": [
                {
                    "memberId": "m",
                    "clientId": "c",
                    "clientHost": "h",
                    "sessionTimeout": 9,
                    "subscription": "AQI=",
                    "assignment": "",
                }
            ],
        },
    ),
    # A tagged struct with its defaults is left out, unless it has fields that the schema does not have.
    (MEMBER_KEY, f"{MEMBER} 01 0007 01 00000000 01 00", MEMBER_FIELDS),
    (
        MEMBER_KEY,
        f"{MEMBER} 01 000a 01 00000000 01 01 4d01ff",
        MEMBER_FIELDS | {"classicMemberMetadata": {"sessionTimeoutMs": 0, "supportedProtocols": []}},
    ),
    (MEMBER_KEY, f"{MEMBER} 01 0001 00", MEMBER_FIELDS | {"classicMemberMetadata": None}),
    # A tagged field that is null although its default is not.
    (
        "0008 0001 67 0001 6d",
        f"0000 00000002 00000001 00 02 {ID} 02 00000000 01 00 01 00 01 00",
        {
            "memberEpoch": 2,
            "previousMemberEpoch": 1,
            "state": 0,
            "assignedPartitions": [
                {"topicId": "AAECAwQFBgcICQoLDA0ODw", "partitions": [0], "assignmentEpochs": None},
            ],
            "partitionsPendingRevocation": [],
        },
    ),
]


@pytest.mark.parametrize(("key", "value", "fields"), VECTORS)
def test_fields(key: str, value: str, fields: dict[str, object]) -> None:
    found = decoded(CONSUMER_OFFSETS, key, value)
    assert found.value == fields
    assert list(found.value or {}) == list(fields)
    assert found.version == int(value[:4], 16)


def test_the_key_and_a_tombstone() -> None:
    found = decoded(CONSUMER_OFFSETS, OFFSET_KEY, None)
    assert (found.type.number, found.key) == (1, {"group": "g", "topic": "ok", "partition": 3})
    assert (found.version, found.value) == (None, None)


def test_members_of_a_group_of_consumers_are_decoded() -> None:
    subscription = "0001 00000001 0001 74 ffffffff 00000001 0001 74 00000001 00000003"
    assignment = "0000 00000001 0001 74 00000001 00000003 00000001 ff"
    sized = [f"{len(bytes.fromhex(part)):08x} {part}" for part in (subscription, assignment)]
    head = "0000 0008 636f6e73756d6572 00000001 ffff ffff 00000001 0001 6d 0001 63 0001 68 00000009"
    value = decoded(CONSUMER_OFFSETS, "0002 0001 67", f"{head} {sized[0]} {sized[1]}").value
    assert value is not None
    partitions = [{"topic": "t", "partitions": [3]}]
    assert value["members"] == [
        {
            "memberId": "m",
            "clientId": "c",
            "clientHost": "h",
            "sessionTimeout": 9,
            "subscription": {"topics": ["t"], "userData": None, "ownedPartitions": partitions},
            "assignment": {"assignedPartitions": partitions, "userData": "/w=="},
        }
    ]


@pytest.mark.parametrize(
    ("topic", "key", "value", "problem"),
    [
        (CONSUMER_OFFSETS, "", None, "a field of 2 bytes, 0 are left"),
        (CONSUMER_OFFSETS, "0009", None, "record type 9 is unknown"),
        (CONSUMER_OFFSETS, "ffff", None, "record type -1 is unknown"),
        (TRANSACTION_STATE, "0001 0001 67", None, "record type 1 is unknown"),
        (SHARE_GROUP_STATE, "0000 0001 67 00", None, "a field of 16 bytes, 1 are left"),
        (CONSUMER_OFFSETS, "0003 ffff", None, "groupId is null"),
        (CONSUMER_OFFSETS, OFFSET_KEY, "0005", r"version 5 of record type 1 \(OffsetCommit\) is unknown"),
        (CONSUMER_OFFSETS, OFFSET_KEY, "ffff", "version -1 of record type 1"),
        (CONSUMER_OFFSETS, OFFSET_KEY, "0000 00", "a field of 8 bytes, 1 are left"),
        (CONSUMER_OFFSETS, "0010 0001 67 0001 72", "0000 ff01", "topics has 254 elements, but only 0 bytes are left"),
        (CONSUMER_OFFSETS, "0010 0001 67 0001 72", "0000 ffffffffff", "a variable-length integer is too long"),
        (CONSUMER_OFFSETS, "0010 0001 67 0001 72", "0000 02 818002", "topics is a string of 32768 bytes"),
    ],
)
def test_bytes_that_contradict_the_schema(topic: str, key: str, value: str | None, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decoded(topic, key, value)


def test_a_record_without_a_key() -> None:
    with pytest.raises(ValueError, match="no key"):
        decode(CONSUMER_OFFSETS, None, b"")


@given(
    st.sampled_from(sorted(INTERNAL_TOPICS)),
    st.tuples(st.integers(0, 24), st.binary(max_size=40)),
    st.none() | st.tuples(st.integers(0, 5), st.binary(max_size=80)),
)
def test_no_bytes_raise_anything_else(topic: str, key: tuple[int, bytes], value: tuple[int, bytes] | None) -> None:
    def prefixed(number: int, rest: bytes) -> bytes:
        return number.to_bytes(2, "big") + rest

    try:
        decode(topic, prefixed(*key), None if value is None else prefixed(*value))
    except ValueError:
        return


def structs_of(schema: Struct) -> list[Struct]:
    """The struct and all structs inside it."""
    inner = [field.type.element if isinstance(field.type, Array) else field.type for field in schema.fields]
    return [schema, *(found for kind in inner if isinstance(kind, Struct) for found in structs_of(kind))]


def test_the_schemas_are_consistent() -> None:
    assert RECORD_TYPES.keys() == INTERNAL_TOPICS
    for types in RECORD_TYPES.values():
        for number, kind in types.items():
            assert kind.number == number
            for schema in (*structs_of(kind.key), *structs_of(kind.value)):
                _check(schema, kind.last_version)


def _check(schema: Struct, last_version: int) -> None:
    names = [field.name for field in schema.fields]
    tags = [field.tag for field in schema.fields if field.tag is not None]
    assert (len(set(names)), len(set(tags))) == (len(names), len(tags))
    for field in schema.fields:
        assert field.since <= last_version
        assert field.tag is not None or field.default is None
        assert isinstance(field.type, Primitive | Array | Struct)
        assert isinstance(field, MessageField)
