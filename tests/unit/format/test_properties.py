"""`meta.properties`, `partition.metadata`, `.kafka_cleanshutdown` and Java properties: what is read and refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import CorruptCheckpointError, KcompactError, UnsupportedError
from kcompact.format.properties import (
    MAX_SMALL_FILE_BYTES,
    MetaProperties,
    PartitionMetadata,
    encode_uuid,
    parse_java_properties,
    parse_meta_properties,
    parse_partition_metadata,
)
from tests.support.broker_files import build_clean_shutdown, build_meta_properties, build_partition_metadata
from tests.support.damage import cuts_and_flips

TOPIC_ID = "QNLMCLnWRESZK_ap_Xld8w"
METADATA = f"version: 0\ntopic_id: {TOPIC_ID}".encode()
KRAFT = b"#\n#Tue Nov 14 22:13:20 UTC 2023\ncluster.id=4L6g3nShT-eMCtK--X86sw\nversion=1\nnode.id=1\n"


@pytest.mark.parametrize(
    ("data", "version"),
    [(METADATA, 0), (METADATA + b"\n", 0), (METADATA + b"==\nmore", 0)],
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
        (b"version: -1\ntopic_id: " + TOPIC_ID.encode(), "line 1: '-1' is not a valid number"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "line 2: 'A*' is not a valid topic id"),
        (b"version: 0\ntopic_id: QNLMCLnWRESZK_ap_Xld8", "line 2: .* is not a valid topic id"),
        (b"version: 0\ntopic_id: QNLMCLnWRESZK+ap_Xld8w", "line 2: .* is not a valid topic id"),
    ],
)
def test_malformed_partition_metadata(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=problem):
        parse_partition_metadata(data, file="f")


@pytest.mark.parametrize("version", [1, 7, 2**31 - 1])
def test_partition_metadata_of_another_version(version: int) -> None:
    with pytest.raises(UnsupportedError, match=f"f: line 1: version {version} is unknown, only version 0") as caught:
        parse_partition_metadata(METADATA.replace(b"0\n", b"%d\n" % version), file="f")
    assert (caught.value.exit_code, "newer kcompact" in caught.value.hint) == (4, True)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (KRAFT, (1, "4L6g3nShT-eMCtK--X86sw", 1, None)),
        (
            KRAFT + b"directory.id=AAAAAAAAAAAAAAAAAAAAAQ\n",
            (1, "4L6g3nShT-eMCtK--X86sw", 1, "AAAAAAAAAAAAAAAAAAAAAQ"),
        ),
        (b"version=0\nbroker.id=3\n", (0, None, 3, None)),
        (b"broker.id=3\n", (0, None, 3, None)),  # The first file of this kind had no version.
        (b"", (0, None, None, None)),
    ],
)
def test_meta_properties(data: bytes, expected: tuple[int, str | None, int | None, str | None]) -> None:
    found = parse_meta_properties(data, file="f")
    assert (found.version, found.cluster_id, found.node_id, found.directory_id) == expected
    assert parse_meta_properties(build_meta_properties(found), file="f") == found


def test_any_byte_of_meta_properties_is_a_character() -> None:
    """A real broker starts with a bit of the comment changed."""
    assert parse_meta_properties(b"#\xf5hu\nversion=1\ncluster.id=\xe9\nnode.id=1\n", file="f").cluster_id == "\xe9"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"version=2\n", "version '2' is unknown"),
        (b"version=one\n", "'one' is not a valid version"),
        (b"version=1\nnode.id=99999999999\n", "'99999999999' is not a valid node.id"),
        (b"a=\\u12\n", "line 1: .* has a malformed"),
    ],
)
def test_malformed_meta_properties(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=problem):
        parse_meta_properties(data, file="f")


def test_a_file_above_the_limit_is_refused() -> None:
    with pytest.raises(CorruptCheckpointError, match="the file has 1,048,577 bytes, more than the limit of 1,048,576"):
        parse_meta_properties(bytes(MAX_SMALL_FILE_BYTES + 1), file="f")


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


@pytest.mark.parametrize("directory_id", ["abc", "", "AAAA\0AAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ=A"])
def test_a_directory_id_that_is_none_is_damage(directory_id: str) -> None:
    """Rule: MetaProperties.Builder, which ends the broker."""
    with pytest.raises(CorruptCheckpointError, match=r"directory\.id is "):
        parse_meta_properties(KRAFT + f"directory.id={directory_id}\n".encode(), file="f")


@given(st.text(st.characters(max_codepoint=0xFF)), st.binary(min_size=16, max_size=16).map(encode_uuid))
def test_meta_properties_come_back(cluster_id: str, directory_id: str) -> None:
    written = MetaProperties(version=1, cluster_id=cluster_id, node_id=1, directory_id=directory_id)
    assert parse_meta_properties(build_meta_properties(written), file="f") == written


def test_clean_shutdown_comes_back() -> None:
    assert build_clean_shutdown(17) == b'{"version":0,"brokerEpoch":17}'


PARSERS: dict[bytes, Callable[[bytes], object]] = {
    METADATA: lambda data: parse_partition_metadata(data, file="f"),
    KRAFT: lambda data: parse_meta_properties(data, file="f"),
}


@pytest.mark.parametrize("data", PARSERS, ids=lambda data: data[:8].hex())
def test_damage_is_reported_as_damage(data: bytes) -> None:
    for damaged in cuts_and_flips(data):
        with contextlib.suppress(KcompactError):
            PARSERS[data](damaged)


@given(st.binary(max_size=100), st.sampled_from(sorted(PARSERS)))
def test_any_bytes_are_read_or_refused(data: bytes, like: bytes) -> None:
    for damaged in (data, like[: len(data)] + data):
        with contextlib.suppress(CorruptCheckpointError):
            PARSERS[like](damaged)
