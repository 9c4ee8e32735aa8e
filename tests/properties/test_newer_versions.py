"""What a newer Kafka may write: later versions, more fields and more bytes never end a listing."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.cli.output.decoding import RecordDecoder
from kcompact.config.metadata_log import read_cluster_metadata
from kcompact.errors import UnsupportedError
from kcompact.format.batch import Record, build, parse_batches
from kcompact.format.messages.cluster_metadata import METADATA_TYPES
from kcompact.format.messages.control_records import QUORUM_TYPES, decode_quorum_record
from kcompact.format.messages.coordinators import RECORD_TYPES, decode
from kcompact.format.names import CONSUMER_OFFSETS
from kcompact.format.properties import parse_meta_properties, parse_partition_metadata
from tests.support.defined_groups import DefinedGroups
from tests.support.metadata_log import ORDERS, batches, log, topic, write
from tests.support.metadata_records import write_uvarint

SHORTS = st.integers(0, (1 << 15) - 1)
REST = st.binary(max_size=60)
DECISIVE = (2, 4, 9, 12, 23, 24, 25)
"""The types of metadata records that decide about topics and settings: each version is known, or refused."""
KEY = struct.pack(">h", 1) + b"\0\1g" + b"\0\1t" + bytes(4)  # A committed offset.


@given(st.sampled_from(sorted(RECORD_TYPES)), SHORTS, REST, REST)
def test_a_record_of_a_coordinator_that_is_unknown_is_counted(name: str, number: int, key: bytes, value: bytes) -> None:
    decoder, record = RecordDecoder(name, as_json=True), Record(7, 0, struct.pack(">h", number) + key, value)
    with suppress(ValueError):
        decoder.content(record)
        assert decoder.failed == 0
        return
    assert decoder.failed == 1
    assert decoder.first_failure.startswith("offset 7: ")


@given(st.integers(5, (1 << 15) - 1), REST)
def test_the_version_is_named(version: int, rest: bytes) -> None:
    with pytest.raises(ValueError, match=rf"version {version} of record type 1 \(OffsetCommit\) is unknown"):
        decode(CONSUMER_OFFSETS, KEY, struct.pack(">h", version) + rest)


@given(st.lists(st.tuples(SHORTS, REST, st.none() | st.builds(lambda v, r: struct.pack(">h", v) + r, SHORTS, REST))))
def test_groups_are_counted_beside_records_of_a_newer_kafka(rows: list[tuple[int, bytes, bytes | None]]) -> None:
    known = Record(0, 0, KEY, struct.pack(">hqhq", 0, 42, 0, 0))
    newer = [Record(1 + at, 0, struct.pack(">h", number) + key, value) for at, (number, key, value) in enumerate(rows)]
    (batch,) = parse_batches(build([known, *newer]), file="f")
    counter = DefinedGroups()
    counter.add(batch, file="f")
    contents = counter.contents()
    counted = sum(each.records for each in contents.groups) + contents.undecoded_records
    assert counted == 1 + len(rows)
    assert "g" in {each.group for each in contents.groups}


@given(st.integers(-(1 << 15), (1 << 15) - 1), st.none() | REST)
def test_control_records(kind: int, value: bytes | None) -> None:
    with suppress(ValueError):
        assert (decode_quorum_record(kind, value) is None) == (kind not in QUORUM_TYPES)


@given(SHORTS, SHORTS, REST)
def test_the_metadata_log_is_read_or_refused_by_name(number: int, version: int, rest: bytes) -> None:
    known = METADATA_TYPES.get(number)
    later = version if known is None or version > known.last_version else known.last_version + 1
    record = b"\1" + write_uvarint(number) + write_uvarint(later) + rest
    with TemporaryDirectory() as scratch:
        made = topic("orders", ORDERS, cleanup_policy="compact")
        log_dir = write(Path(scratch) / "log-dir", {log(): batches([*made, record])})
        if number in DECISIVE:
            with pytest.raises(UnsupportedError, match=f"version {later} of record type {number}"):
                read_cluster_metadata(log_dir)
            return
        metadata = read_cluster_metadata(log_dir)
        assert metadata is not None
        assert metadata.topics["orders"].overrides == {"cleanup.policy": "compact"}


@given(st.integers(1, (1 << 31) - 1), st.lists(st.text("abc: =", max_size=20), max_size=5))
def test_partition_metadata_of_a_later_version_is_refused(version: int, more: list[str]) -> None:
    text = "\n".join([f"version: {version}", "topic_id: QNLMCLnWRESZK_ap_Xld8w", *more])
    with pytest.raises(UnsupportedError, match=f"version {version} is unknown"):
        parse_partition_metadata(text.encode(), file="f")


@given(st.dictionaries(st.text("xyz.", min_size=1, max_size=20), st.text("abc123", max_size=20), max_size=5))
def test_meta_properties_with_more_names(more: dict[str, str]) -> None:
    lines = ["version=1", "cluster.id=c", "node.id=7", *(f"{name}={value}" for name, value in more.items())]
    assert parse_meta_properties("\n".join(lines).encode(), file="f").node_id == 7
