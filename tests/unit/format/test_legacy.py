"""Batches of magic 0 and 1: what is read, and what is refused."""

from __future__ import annotations

import contextlib
import struct
import warnings
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import BatchTooLargeError, CorruptBatchError, UnsupportedError
from kcompact.format import legacy
from kcompact.format.batch import Record, legacy_entries, parse_batches, read_records, rebuild, verify_crc
from kcompact.format.codec import Codec, compress
from kcompact.format.legacy import LOG_APPEND_TIME_BIT, NO_TIMESTAMP, computed_crc, minimum_size, read_prefix

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

T = 1_700_000_000_000
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
INNER = [(0, T, b"a", b"1"), (1, T + 5, b"b", None), (2, T + 9, None, b"3")]


def entry(
    offset: int, key: bytes | None, value: bytes | None, *, magic: int = 1, attributes: int = 0, timestamp: int = T
) -> bytes:
    """Return an entry with a valid checksum."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic == 1 else b"")
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def wrapper(inner: bytes, *, offset: int, magic: int = 1, codec: Codec = Codec.GZIP, attributes: int = 0) -> bytes:
    value = compress(codec, inner, magic=magic)
    return entry(offset, None, value, magic=magic, attributes=codec | attributes, timestamp=T + 50)


def verified_contents(data: bytes) -> list[Record]:
    (one,) = parse_batches(data, file="f")
    verify_crc(one, file="f")
    return read_records(one, file="f")


def inner_entries(first_offset: int, *, magic: int = 1) -> bytes:
    return b"".join(
        entry(first_offset + offset, key, value, magic=magic, timestamp=timestamp)
        for offset, timestamp, key, value in INNER
    )


def expected(first_offset: int, *, timestamp: int | None = None) -> list[Record]:
    return [
        Record(first_offset + offset, own if timestamp is None else timestamp, key, value)
        for offset, own, key, value in INNER
    ]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_what_kafka_python_writes(codec: Codec, magic: int) -> None:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=int(codec), batch_size=999_999)
    for offset, timestamp, key, value in INNER:
        builder.append(offset, timestamp=timestamp, key=key, value=value)
    data = bytes(builder.build())
    if codec:
        # A producer leaves the offset of a wrapper at 0. The broker sets it when it appends the batch.
        data = struct.pack(">q", INNER[-1][0]) + data[8:]
    batches = list(parse_batches(data, file="f"))
    for one in batches:
        verify_crc(one, file="f")
        assert one.header.records_count == (-1 if codec else 1)
    records = [record for one in batches for record in read_records(one, file="f")]
    assert records == expected(0, timestamp=NO_TIMESTAMP if magic == 0 else None)


@pytest.mark.parametrize(
    ("data", "records"),
    [
        pytest.param(entry(7, b"k", b"v"), [Record(7, T, b"k", b"v")], id="magic 1"),
        pytest.param(entry(7, b"k", None, magic=0), [Record(7, NO_TIMESTAMP, b"k", None)], id="magic 0, tombstone"),
        pytest.param(
            entry(7, None, b"", attributes=LOG_APPEND_TIME_BIT), [Record(7, T, None, b"")], id="no key, empty value"
        ),
        pytest.param(wrapper(inner_entries(0), offset=102), expected(100), id="relative inner offsets"),
        pytest.param(
            wrapper(inner_entries(100, magic=0), offset=102, magic=0),
            expected(100, timestamp=NO_TIMESTAMP),
            id="absolute inner offsets of magic 0",
        ),
        pytest.param(
            wrapper(inner_entries(0), offset=102, attributes=LOG_APPEND_TIME_BIT),
            expected(100, timestamp=T + 50),
            id="LogAppendTime of the wrapper",
        ),
        pytest.param(
            wrapper(inner_entries(0, magic=0), offset=102, attributes=LOG_APPEND_TIME_BIT),
            expected(100, timestamp=NO_TIMESTAMP),
            id="inner entries of magic 0 have no timestamp",
        ),
        pytest.param(wrapper(inner_entries(0) + b"tail", offset=102), expected(100), id="short tail is ignored"),
        pytest.param(
            wrapper(inner_entries(0) + entry(3, b"d", b"4")[:-1], offset=102), expected(100), id="cut tail is ignored"
        ),
    ],
)
def test_records(data: bytes, records: list[Record]) -> None:
    assert verified_contents(data) == records
    (one,) = parse_batches(data, file="f")
    (again,) = parse_batches(rebuild(one.header, records, delete_horizon_ms=None), file="f")
    assert (again.header.magic, again.header.base_offset, again.header.last_offset) == (
        2,
        records[0].offset,
        records[-1].offset,
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (wrapper(inner_entries(100), offset=0), "record offset 100 after -1, in a batch that ends at 0"),
        (wrapper(b"", offset=5), "a compressed message with no messages inside"),
        (entry(5, None, None, attributes=Codec.GZIP), "a compressed message without a value"),
        (entry(5, None, b"x", attributes=Codec.ZSTD), "compression codec 4 in a message of magic 1"),
        (entry(5, None, b"x", attributes=Codec.GZIP), "cannot inflate the gzip section"),
        (wrapper(inner_entries(0), offset=1), "offset 1 of a compressed message, but 2 inside"),
        (wrapper(wrapper(inner_entries(0), offset=2), offset=5), "a compressed message inside a compressed message"),
        (wrapper(entry(0, b"a", b"1", magic=1)[:16] + b"\x02" + bytes(20), offset=5), "magic 2 inside"),
        (wrapper(inner_entries(0) + inner_entries(0), offset=9), "record offset"),
        (wrapper(inner_entries(0)[:-1] + b"4", offset=2), "checksum 0x[0-9a-f]{8} of a message inside"),
        (wrapper(inner_entries(0) + bytes(12), offset=2), "a message of 0 bytes inside a compressed message"),
        (entry(2**63 - 1, b"k", b"v"), "offset 9223372036854775807"),
    ],
)
def test_malformed_wrappers(data: bytes, problem: str) -> None:
    with pytest.raises(CorruptBatchError, match=problem):
        verified_contents(data)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (struct.pack(">i", 100) + b"four", "a field of 100 bytes, 4 are left in its message"),
        (struct.pack(">i", 1) + b"k" + b"\0\0\0", "a message ends inside a length"),
    ],
)
@pytest.mark.parametrize("magic", [0, 1])
def test_malformed_fields(fields: bytes, problem: str, magic: int) -> None:
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", T) if magic == 1 else b"") + fields
    data = struct.pack(">qiI", 7, 4 + len(body), zlib.crc32(body)) + body
    with pytest.raises(CorruptBatchError, match=problem):
        verified_contents(data)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_fixed_fields(magic: int) -> None:
    data = entry(7, b"k", b"v", magic=magic)
    prefix = read_prefix(data)
    assert (prefix.offset, prefix.size + 12, prefix.magic) == (7, len(data), magic)
    assert prefix.crc == computed_crc(data)
    assert prefix.timestamp == (T if magic == 1 else NO_TIMESTAMP)
    assert entry(7, None, None, magic=magic)[8:12] == struct.pack(">i", minimum_size(magic))
    for length in range(26 if magic == 1 else 18):
        with pytest.raises(ValueError, match="the file ends inside a message header"):
            read_prefix(data[:length])


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_every_cut_and_every_flipped_bit(magic: int, codec: Codec) -> None:
    data = wrapper(inner_entries(0, magic=magic), offset=2, magic=magic, codec=codec)
    if codec is Codec.NONE:
        data = entry(2, b"k", b"value", magic=magic)
    for length in range(1, len(data)):
        with pytest.raises(CorruptBatchError):
            verified_contents(data[:length])
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            # The checksum does not cover the offset, so there a flipped bit may only move the records.
            with contextlib.suppress(CorruptBatchError):
                assert len(verified_contents(bytes(damaged))) == len(verified_contents(data))
                assert position < 8


@pytest.mark.parametrize("codec", CODECS[1:])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("append_time", [0, LOG_APPEND_TIME_BIT])
@pytest.mark.parametrize("offsets", [[7], [8], [9], [7, 9], [8, 9], [7, 8, 9]])
def test_a_rebuilt_wrapper_has_the_kept_records(codec: Codec, magic: int, append_time: int, offsets: list[int]) -> None:
    inner = inner_entries(7 if magic == 0 else 0, magic=magic)
    data = wrapper(inner, offset=9, magic=magic, codec=codec, attributes=append_time if magic == 1 else 0)
    kept = [record for record in verified_contents(data) if record.offset in offsets]
    rebuilt = legacy.rebuild(read_prefix(data), [legacy.Message(*record[:4]) for record in kept])
    assert [record.offset for record in kept] == offsets
    assert verified_contents(rebuilt) == kept
    prefix = read_prefix(rebuilt)
    assert (prefix.offset, prefix.magic) == (offsets[-1], magic)
    assert prefix.attributes == read_prefix(data).attributes
    assert prefix.timestamp == (NO_TIMESTAMP if magic == 0 else max(record.timestamp for record in kept))


def test_a_magic_inside_that_is_not_the_wrappers() -> None:
    (one,) = parse_batches(wrapper(inner_entries(0, magic=0), offset=2, magic=1), file="f")
    (other,) = parse_batches(wrapper(inner_entries(0), offset=2), file="f")
    found = [legacy.has_one_magic(legacy_entries(each, file="f", memory_bytes=1 << 20)) for each in (one, other)]
    assert found == [False, True]


@given(st.binary(max_size=200), st.integers(0, 120))
def test_any_bytes_are_read_or_refused(data: bytes, kept: int) -> None:
    for content in (entry(0, None, data, attributes=Codec.GZIP), wrapper(inner_entries(0)[:kept] + data, offset=2)):
        with contextlib.suppress(CorruptBatchError):
            verified_contents(content)


def test_a_wrapper_of_too_many_records_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "MAX_LEGACY_RECORDS", 3)
    assert len(verified_contents(wrapper(inner_entries(0), offset=2))) == 3
    monkeypatch.setattr(legacy, "MAX_LEGACY_RECORDS", 2)
    with pytest.raises(UnsupportedError, match="more than 2 records of magic 1"):
        verified_contents(wrapper(inner_entries(0), offset=2))


def test_the_objects_of_a_wrapper_must_fit_the_memory() -> None:
    one = wrapper(b"".join(inner_entries(3 * number) for number in range(1000)), offset=2999)
    (batch,) = parse_batches(one, file="f")
    with pytest.raises(BatchTooLargeError, match=r"with 3,000 records in .*\n.*pass `memory_bytes` of 2m or more"):
        read_records(batch, file="f", memory_bytes=1 << 20)
    assert len(read_records(batch, file="f", memory_bytes=2 << 20)) == 3000
