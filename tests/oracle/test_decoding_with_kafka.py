"""Records of Kafka's coordinators are decoded as Kafka's own tools do, damaged ones too."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from kcompact.cli.output.decoding import RecordDecoder
from kcompact.format.batch import Record
from kcompact.format.messages.coordinators import RECORD_TYPES
from tests.oracle.real_kafka import CoordinatorRecord, Json, RealKafka

pytestmark = pytest.mark.oracle

ROUNDS = 4
TOOLS_FAIL = ("Error at offset", "Unknown record type")
"""How `kafka-dump-log.sh` begins a key that it cannot decode."""


def decoded(record: CoordinatorRecord, *, as_json: bool) -> dict[str, Any] | str:
    """Key and payload, or the error."""
    decoder = RecordDecoder(record.topic, as_json=as_json)
    try:
        return decoder.content(Record(0, 0, record.key, record.value))
    except ValueError as problem:
        return str(problem)


def difference(record: CoordinatorRecord, printed: Json) -> str:
    """How kcompact's text or JSON differs from what Kafka's tools print, or nothing."""
    ours, fields = decoded(record, as_json=False), decoded(record, as_json=True)
    if "error" in printed or printed["key"].startswith(TOOLS_FAIL):
        return "" if isinstance(ours, str) else f"{record}: Kafka has {printed}, kcompact {ours}"
    if isinstance(ours, str) or isinstance(fields, str):
        return f"{record}: kcompact fails with {ours}, Kafka has {printed}"
    theirs = {name: text if text == "<DELETE>" else json.loads(text) for name, text in printed.items() if name in ours}
    text = {name: text if text == "<DELETE>" else json.loads(text) for name, text in ours.items()}
    if repr(text) != repr(theirs):  # With the order of the fields.
        return f"{record}: Kafka has {theirs}, kcompact {text}"
    for formatted in map(json.loads, printed["formatted"]):
        if formatted["key"]["type"] == 2:
            continue  # The formatter leaves the bytes of members as they are.
        if repr(formatted) != repr({"key": fields["key"], "value": fields["payload"]}):
            return f"{record}: Kafka's formatter has {formatted}, kcompact {fields}"
    return ""


def compare(kafka: RealKafka, records: list[CoordinatorRecord]) -> list[str]:
    found = [difference(record, printed) for record, printed in zip(records, kafka.decode(records), strict=True)]
    return [each for each in found if each]


@pytest.mark.parametrize("seed", range(5))
def test_every_type_and_version(seed: int, kafka: RealKafka) -> None:
    records = kafka.coordinator_records(seed=seed, rounds=ROUNDS)
    assert compare(kafka, records) == []
    seen: Counter[tuple[str, int, int]] = Counter()
    for topic, key, value in records:
        assert key is not None
        if value is not None:
            seen[topic, int.from_bytes(key[:2], "big"), int.from_bytes(value[:2], "big")] += 1
    assert seen == {
        (topic, number, version): ROUNDS
        for topic, types in RECORD_TYPES.items()
        for number, kind in types.items()
        for version in range(kind.last_version + 1)
    }


def mutated(record: CoordinatorRecord, rng: random.Random) -> CoordinatorRecord:
    """The record with a byte changed, bytes removed, or bytes added, in the key or the value."""
    in_key = record.value is None or rng.random() < 0.3
    data = bytearray((record.key if in_key else record.value) or b"")
    match rng.randrange(4):
        case 0:
            del data[rng.randrange(len(data) + 1) :]
        case 1:
            data += rng.randbytes(rng.randrange(1, 4))
        case _:
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return record._replace(key=bytes(data)) if in_key else record._replace(value=bytes(data))


@pytest.mark.parametrize("seed", range(5))
def test_damaged_records(seed: int, kafka: RealKafka) -> None:
    rng = random.Random(seed)
    records = [mutated(record, rng) for record in kafka.coordinator_records(seed=seed, rounds=4 * ROUNDS)]
    assert compare(kafka, records) == []
    failed = sum(isinstance(decoded(record, as_json=True), str) for record in records)
    assert len(records) // 10 < failed < len(records)


def test_records_that_no_tool_decodes(kafka: RealKafka) -> None:
    key = b"\0\1\0\1g\0\1t\0\0\0\0"
    records = [
        *(CoordinatorRecord(topic, number.to_bytes(2, "big"), None) for topic in RECORD_TYPES for number in range(99)),
        *(CoordinatorRecord(topic, None, b"\0\0") for topic in RECORD_TYPES),
        *(
            CoordinatorRecord("__consumer_offsets", key, version.to_bytes(2, "big"))
            for version in (5, 6, 0x7FFF, 0xFFFF)
        ),
        CoordinatorRecord("__consumer_offsets", b"", b""),
        CoordinatorRecord("__consumer_offsets", b"\0", b""),
        CoordinatorRecord("__consumer_offsets", key, b""),
    ]
    assert compare(kafka, records) == []
    assert all(isinstance(decoded(record, as_json=True), str) for record in records)
