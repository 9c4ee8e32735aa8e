"""A document with a checksum: what was written is read, and no bit of it can change unnoticed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest
from crc32c import crc32c

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.format.names import TopicPartition
from kcompact.format.sealed_json import NUMBER, TEXT, TIME, SealedDocument, listed, optional, sealed, unsealed
from kcompact.log.files import FileIdentity
from kcompact.swap import manifest
from kcompact.swap.identity import PartitionIdentity
from kcompact.swap.kept import manifest as kept_manifest
from kcompact.swap.kept.manifest import KeptFile, KeptGroup, KeptPartition, UntouchedLog
from kcompact.swap.manifest import Manifest
from tests.support.sealed import with_checksum

DOCUMENT = {"version": 2, "end_offset": 10, "groups": [{"name": "a\u00e4\ud800"}], "ratio": 0.5, "none": None}


def test_it_is_one_line_of_json_that_ends_with_its_checksum() -> None:
    content = sealed(DOCUMENT)
    assert unsealed(content) == DOCUMENT
    assert content.isascii()
    assert content.index(b"\n") == len(content) - 1
    found = json.loads(content)
    assert list(found) == [*DOCUMENT, "crc32c"]
    assert found["crc32c"] == crc32c(content[: content.rindex(b',"crc32c"')])


def test_every_bit_counts() -> None:
    content = sealed(DOCUMENT)
    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match="checksum"):
            unsealed(bytes(flipped))


@pytest.mark.parametrize("length", [0, 1, 20, -2, -1])
def test_a_part_of_it_does_not_count(length: int) -> None:
    with pytest.raises(ValueError, match="checksum"):
        unsealed(sealed(DOCUMENT)[:length])


def test_more_than_it_does_not_count() -> None:
    for content in (sealed(DOCUMENT) + b"\n", sealed(DOCUMENT) * 2, b" " + sealed(DOCUMENT)):
        with pytest.raises(ValueError, match="checksum"):
            unsealed(content)


@pytest.mark.parametrize("content", [b'{"a":1,"a":2}', b'{"a":}', b'["a"]', b'{"a":"\xff"}', b"}"])
def test_the_right_checksum_is_not_enough(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        unsealed(with_checksum(content))
    assert "checksum" not in str(refused.value)


@dataclass(frozen=True, kw_only=True)
class File:
    name: str
    size_bytes: int
    mtime_ns: int = 0


@dataclass(frozen=True, kw_only=True)
class Files:
    first: File
    others: tuple[File, ...]
    end_offset: int | None


FILE = SealedDocument(File, name=TEXT, size_bytes=NUMBER.called("size"), mtime_ns=TIME)
FILES = SealedDocument(Files, version=3, first=FILE, others=listed(FILE), end_offset=optional(NUMBER))
WRITTEN = {
    "version": 3,
    "name": "a",
    "size": 1,
    "mtime_ns": -1,
    "others": [{"name": "b", "size": 2, "mtime_ns": 0}],
    "end_offset": None,
}


def test_fields_are_read_as_they_are_written() -> None:
    first, other = File(name="a", size_bytes=1, mtime_ns=-1), File(name="b", size_bytes=2)
    files = Files(first=first, others=(other,), end_offset=None)
    assert list(FILES.write(files).items()) == list(WRITTEN.items())
    assert FILES.read(WRITTEN) == files


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"more": 1}, "expected an object of version, name, size, mtime_ns, others, end_offset"),
        ({"version": 4}, "version 4"),
        ({"version": True}, "expected a whole number"),
        ({"name": 1}, "expected a text"),
        ({"name": None}, "expected a text"),
        ({"size": -1}, "expected a whole number"),
        ({"size": 1.0}, "expected a whole number"),
        ({"size": 2**64}, "expected a whole number"),
        ({"mtime_ns": -(2**63) - 1}, "expected a whole number"),
        ({"others": {}}, "expected a list"),
        ({"others": ["b"]}, "expected an object of name, size, mtime_ns"),
        ({"others": [{"name": "b", "size": 2}]}, "expected an object of name, size, mtime_ns"),
        ({"end_offset": "1"}, "expected a whole number"),
    ],
)
def test_other_fields_and_types_are_refused(change: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        FILES.read(WRITTEN | change)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_missing_field_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected an object of version, "):
        FILES.read({each: value for each, value in WRITTEN.items() if each != name})


def test_an_earlier_version_reads_and_writes_the_same_bytes() -> None:
    """Staging directories and kept segments of earlier versions must be found again."""
    identity = PartitionIdentity(topic_partition=TopicPartition("orders", 7), topic_id="abc")
    log = f"{0:020d}.log"
    old = FileIdentity(name=log, device=1, inode=2, size_bytes=3, mtime_ns=-4)
    new = StagedFile(name=log, staged_as="a", size_bytes=5, crc32c=9)
    group = CleanedSegment(base_offset=0, files=(new,), replaces=(old,))
    swap = Manifest(identity=identity, end_offset=None, pid=77, groups=(group,))
    assert manifest.encode(swap) == with_checksum(
        b'{"version":2,"pid":77,"topic":"orders","partition":7,"topic_id":"abc","directory_id":null,"end_offset":null,'
        b'"groups":[{"base_offset":0,"outputs":[{"name":"00000000000000000000.log","staged_as":"a","size":5,'
        b'"crc32c":9}],"inputs":[{"name":"00000000000000000000.log","device":1,"inode":2,"size":3,"mtime_ns":-4}]}]}'
    )
    kept = KeptPartition(
        directory="/x/orders-7",
        identity=identity,
        number=1,
        now_ms=-5,
        kcompact="0.1",
        checkpoint_crc32c=None,
        untouched=(UntouchedLog(name=f"{9:020d}.log", inode=1, size_bytes=2, mtime_ns=3, crc32c=None),),
        groups=(
            KeptGroup(
                base_offset=0,
                new=(StagedFile(name=log, staged_as=log, size_bytes=5, crc32c=9),),
                old=(KeptFile(name=log, size_bytes=1, crc32c=2, mtime_ns=3, uid=4, gid=5, mode=6),),
            ),
        ),
    )
    content = kept_manifest.encode(kept)
    assert content == with_checksum(
        b'{"version":2,"kcompact":"0.1","now_ms":-5,"number":1,"directory":"/x/orders-7","topic":"orders",'
        b'"partition":7,"topic_id":"abc","directory_id":null,"checkpoint_crc32c":null,"untouched":[{"name":'
        b'"00000000000000000009.log","inode":1,"size":2,"mtime_ns":3,"crc32c":null}],"groups":[{"base_offset":0,'
        b'"new":[{"name":"00000000000000000000.log","size":5,"crc32c":9}],"old":[{"name":"00000000000000000000.log",'
        b'"size":1,"crc32c":2,"mtime_ns":3,"uid":4,"gid":5,"mode":6}]}]}'
    )
    assert kept_manifest.decode(content) == kept
