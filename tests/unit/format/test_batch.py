"""Record batches: the bytes that Kafka writes, the bytes that Kafka accepts, and damage."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.clean.filter import clean_batch
from kcompact.clean.job import CleanJob
from kcompact.errors import BatchTooLargeError, CorruptBatchError, KcompactError
from kcompact.format import batch as batch_format
from kcompact.format.batch import (
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    HEADER_STRUCT,
    LOG_APPEND_TIME_BIT,
    Batch,
    Header,
    Record,
    build,
    computed_crc,
    empty,
    java_string,
    parse_batches,
    read_header,
    read_records,
    read_varint,
    read_varlong,
    rebuild,
    verify_crc,
    write_varint,
)
from kcompact.format.codec import Codec
from kcompact.kernels import COMMIT
from kcompact.log.files import LogFile
from kcompact.log.markers import Marker, read_marker
from kcompact.log.producer_state import LastRecord
from kcompact.log.segment_reader import verified_batches
from tests.support import strategies
from tests.support.jobs import JOB

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords

T = 1_700_000_000_000
DAY = 86_400_000

# One batch as Kafka 4.3.1 writes it: new (A), cleaned once (B) and twice (C), emptied (D).
A = bytes.fromhex(
    "00000000000000640000004f0000000702db16dfc60000000000020000018bcfe568000000018bcfe56809"
    "ffffffffffffffffffffffffffff000000031000000002610231"
    "0018000a020262023202026802780e00120402610100"
)
B = bytes.fromhex(
    "00000000000000640000004c0000000702bb8b3cc90040000000020000018bd51b06400000018bcfe56809"
    "ffffffffffffffffffffffffffff000000021e00f5f8ac53020262023202026802781400edf8ac530402610100"
)
C = bytes.fromhex(
    "00000000000000640000004100000007023e4e87c30040000000020000018bd51b06400000018bcfe56805"
    "ffffffffffffffffffffffffffff000000011e00f5f8ac5302026202320202680278"
)
D = bytes.fromhex(
    "0000000000000064000000310000000702372cf8b0000000000002ffffffffffffffff0000018bcfe56805ffffffffffffffffffffffffffff00000000"
)
M = bytes.fromhex(
    "00000000000000670000004200000007025d2065460030000000000000018bcfe568140000018bcfe56814"
    "000000000000002a0003ffffffff000000012000000008000000010c00000000000900"
)
M2 = bytes.fromhex(
    "0000000000000067000000450000000702eb3dbc380070000000000000018bd51b06400000018bcfe56814"
    "000000000000002a0003ffffffff000000012600d7f8ac530008000000010c00000000000900"
)
HORIZON = T + 1_000_000 + DAY
RECORDS = [
    Record(100, T, b"a", b"1"),
    Record(101, T + 5, b"b", b"2", ((b"h", b"x"),)),
    Record(102, T + 9, b"a", None),
]
CLEANING = replace(
    JOB,
    upper_bound_offset=200,
    now_ms=T + 1_000_000,
    delete_retention_ms=DAY,
)


def batch_of(data: bytes) -> Batch:
    (one,) = parse_batches(data, file="f")
    return one


def verified_contents(data: bytes) -> list[Record]:
    return read_records(batch_of(data), file="f")


def cleaned(
    data: bytes, survivors: Sequence[int], job: CleanJob = CLEANING, *, is_discardable: bool = False
) -> bytes | None:
    alive = [record.offset in survivors for record in verified_contents(data)]
    outcome = clean_batch(batch_of(data), job, alive, is_discardable=is_discardable, file="f")
    return None if outcome.data is None else bytes(outcome.data)


# --- Kafka's bytes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [A, B, C, D, M, M2])
def test_kafkas_batches_are_sound(data: bytes) -> None:
    verify_crc(batch_of(data), file="f")
    assert batch_of(data).header.pack() == data[:HEADER_BYTES]
    assert batch_of(data).header.size_bytes == len(data)


@pytest.mark.parametrize(
    ("data", "records", "horizon"),
    [(A, RECORDS, None), (B, RECORDS[1:], HORIZON), (C, RECORDS[1:2], HORIZON), (D, [], None)],
)
def test_reading_kafkas_batches(data: bytes, records: list[Record], horizon: int | None) -> None:
    assert verified_contents(data) == records
    header = batch_of(data).header
    assert header.delete_horizon_ms == horizon
    assert (header.base_offset, header.last_offset, header.next_offset) == (100, 102, 103)
    assert header.partition_leader_epoch == 7
    assert not header.has_producer_id
    assert not header.is_control


def test_building_kafkas_batches() -> None:
    assert build(RECORDS, partition_leader_epoch=7) == A
    header = batch_of(A).header
    assert rebuild(header, RECORDS, delete_horizon_ms=None) == A
    assert rebuild(header, RECORDS[1:], delete_horizon_ms=HORIZON) == B
    assert rebuild(batch_of(B).header, RECORDS[1:2], delete_horizon_ms=HORIZON) == C
    assert empty(batch_of(C).header) == D
    assert empty(batch_of(D).header) == D


def test_a_batch_through_its_cleanings() -> None:
    assert cleaned(A, [101, 102]) == B
    assert cleaned(B, [101, 102], replace(CLEANING, now_ms=HORIZON - 1)) == B
    assert cleaned(B, [101, 102], replace(CLEANING, now_ms=HORIZON)) == C
    assert cleaned(C, [101], replace(CLEANING, now_ms=HORIZON + DAY)) == C
    assert cleaned(C, [], replace(CLEANING, upper_bound_offset=103, high_watermark=103)) == D
    assert cleaned(C, []) is None
    assert cleaned(D, []) is None
    assert cleaned(D, [], replace(CLEANING, upper_bound_offset=103, high_watermark=103)) == D


def test_keeping_tombstones_sets_horizons_and_removes_nothing() -> None:
    keeping = replace(CLEANING, keep_tombstones=True)
    assert cleaned(A, [101, 102], keeping) == B
    assert cleaned(B, [101, 102], replace(keeping, now_ms=HORIZON + DAY)) == B


def test_a_marker_through_its_cleanings() -> None:
    marker = batch_of(M)
    assert read_marker(marker, file="f") == Marker(COMMIT, 9, T + 20)
    assert (marker.header.producer_id, marker.header.producer_epoch) == (42, 3)
    assert marker.header.is_control
    assert marker.header.is_transactional
    assert rebuild(marker.header, verified_contents(M), delete_horizon_ms=HORIZON) == M2
    assert cleaned(M, []) == M
    assert cleaned(M, [], is_discardable=True) == M2
    assert cleaned(M2, [], replace(CLEANING, now_ms=HORIZON - 1), is_discardable=True) == M2
    assert cleaned(M2, [], replace(CLEANING, now_ms=HORIZON), is_discardable=True) is None
    last = replace(CLEANING, now_ms=HORIZON, last_records={42: LastRecord(None, 3)})
    emptied = cleaned(M2, [], last, is_discardable=True)
    assert emptied == empty(batch_of(M).header)
    assert read_marker(batch_of(emptied), file="f") is None


def test_log_append_time() -> None:
    appended = build(RECORDS, log_append_time=True)
    assert [record.timestamp for record in verified_contents(appended)] == [T + 9] * 3
    rebuilt = rebuild(batch_of(appended).header, verified_contents(appended)[:1], delete_horizon_ms=None)
    header = batch_of(rebuilt).header
    assert header.is_log_append_time
    assert (header.base_timestamp, header.max_timestamp) == (T + 9, T + 9)
    assert verified_contents(rebuilt) == [RECORDS[0]._replace(timestamp=T + 9)]


def test_without_timestamps() -> None:
    records = [record._replace(timestamp=-1) for record in RECORDS]
    header = batch_of(build(records)).header
    assert (header.base_timestamp, header.max_timestamp) == (-1, -1)
    assert verified_contents(build(records)) == records
    horizon = rebuild(header, records, delete_horizon_ms=HORIZON)
    assert batch_of(horizon).header.max_timestamp == -1
    assert verified_contents(horizon) == records


@pytest.mark.parametrize(
    ("base_sequence", "last"), [(-1, -1), (0, 2), (2**31 - 3, 2**31 - 1), (2**31 - 2, 0), (2**31 - 1, 1)]
)
def test_sequences_wrap(base_sequence: int, last: int) -> None:
    assert batch_of(build(RECORDS, producer_id=1, base_sequence=base_sequence)).header.last_sequence == last


# --- Everything decodes to what was encoded ----------------------------------------------------------------------


@given(
    strategies.records(base_offset=7, times=strategies.timestamps), strategies.codecs, st.none() | st.integers(0, 2**62)
)
def test_decoding_is_the_inverse_of_encoding(records: list[Record], codec: Codec, horizon: int | None) -> None:
    header = strategies.with_codec(batch_of(build(records, partition_leader_epoch=3)).header, codec)
    data = rebuild(header, records, delete_horizon_ms=horizon)
    verify_crc(batch_of(data), file="f")
    assert verified_contents(data) == records
    found = batch_of(data).header
    assert found.codec_id == codec
    assert found.delete_horizon_ms == horizon
    assert found.max_timestamp == max(record.timestamp for record in records)
    assert rebuild(found, verified_contents(data), delete_horizon_ms=found.delete_horizon_ms) == data


@given(strategies.batches(base_offset=5))
def test_rebuilding_what_is_there_changes_no_byte(data: bytes) -> None:
    one = batch_of(data)
    records = read_records(one, file="f")
    horizon = one.header.delete_horizon_ms
    again = rebuild(one.header, records, delete_horizon_ms=horizon) if records else empty(one.header)
    if one.header.is_log_append_time and records:
        # Rebuilding drops the producer's timestamp deltas, which readers ignore with LogAppendTime.
        assert read_records(batch_of(again), file="f") == records
        assert rebuild(batch_of(again).header, records, delete_horizon_ms=horizon) == again
    else:
        assert again == data


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints(value: int) -> None:
    data = write_varint(value)
    assert read_varlong(data, 0) == (value, len(data))
    assert len(data) <= 10
    if -(2**31) <= value < 2**31:
        assert read_varint(data, 0) == (value, len(data))
        assert len(data) <= 5


@pytest.mark.parametrize(
    ("text", "value"),
    [("00", 0), ("01", -1), ("02", 1), ("7f", -64), ("8001", 64), ("feffffff0f", 2**31 - 1), ("ffffffff0f", -(2**31))],
)
def test_the_bytes_of_varints(text: str, value: int) -> None:
    data = bytes.fromhex(text)
    assert write_varint(value) == data
    assert read_varint(data, 0) == (value, len(data))


@pytest.mark.parametrize("text", ["8000", "80808000", "8080808000"])
def test_varints_longer_than_needed(text: str) -> None:
    assert read_varint(bytes.fromhex(text), 0) == (0, len(text) // 2)


def test_bits_beyond_the_type_are_shifted_out() -> None:
    assert read_varint(bytes.fromhex("ffffffff7f"), 0) == (-(2**31), 5)
    with pytest.raises(ValueError, match="too long"):
        read_varint(bytes.fromhex("808080808000"), 0)
    with pytest.raises(ValueError, match="too long"):
        read_varlong(b"\x80" * 10 + b"\0", 0)


# --- What Kafka's readers accept ---------------------------------------------------------------------------------


def with_section(section: bytes, *, count: int = 1, data: bytes = A, **fields: int) -> bytes:
    """Return the batch with another section of records and a valid checksum."""
    header = batch_of(data).header._replace(length=HEADER_BYTES - 12 + len(section), records_count=count, **fields)
    return sealed(header.pack() + section)


def sealed(data: bytes) -> bytes:
    return data[:17] + struct.pack(">I", computed_crc(data)) + data[21:]


def test_records_that_kafka_reads_but_never_writes() -> None:
    # Attributes of 0x7f, a two-byte varint for every number, a null key of length -2.
    body = b"\x7f" + b"\x80\x00" + b"\x80\x00" + b"\x03" + b"\x82\x00" + b"1" + b"\x80\x00"
    data = with_section(write_varint(len(body)) + body)
    assert verified_contents(data) == [Record(100, T, None, b"1")]
    (record,) = verified_contents(data)
    again = rebuild(batch_of(data).header, [record], delete_horizon_ms=None)
    assert again[HEADER_BYTES:] == bytes.fromhex("0e 00 00 00 01 02 31 00")


def test_header_keys_that_are_not_utf_8() -> None:
    body = b"\0\0\0" + b"\x02a" + b"\x021" + b"\x04" + b"\x04\xff\xfe" + b"\x02x" + b"\x06\xe2\x82\xac" + b"\x01"
    data = with_section(write_varint(len(body)) + body)
    (record,) = verified_contents(data)
    assert record.headers == ((b"\xff\xfe", b"x"), ("€".encode(), None))
    assert cleaned(data, [100]) == data  # a batch that keeps all records is not rebuilt
    rebuilt = rebuild(batch_of(data).header, [record], delete_horizon_ms=None)
    assert verified_contents(rebuilt)[0].headers == (("\ufffd\ufffd".encode(), b"x"), ("€".encode(), None))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"\xed\xa0\x80", "\ufffd"),  # an encoded surrogate: Java replaces it as a whole
        (b"a\xed\xbf\xbfb\xed\xa0", "a\ufffdb\ufffd"),
        (b"\xed\xbfa", "\ufffda"),
        (b"\xed\x9f\xbf", "\ud7ff"),
        (b"\xe1\x80\xf0\x90\x80\xc0\x80", "\ufffd" * 4),
    ],
)
def test_the_text_of_a_header_name_is_javas(name: bytes, text: str) -> None:
    assert java_string(name) == text
    record = Record(100, 0, b"a", b"1", ((name, b""),))
    assert read_records(batch_of(build([record])), file="f")[0].headers == ((text.encode(), b""),)


def test_attribute_bits_without_meaning_are_dropped_by_a_rebuild() -> None:
    data = sealed(batch_of(A).header._replace(attributes=0x7F80).pack() + A[HEADER_BYTES:])
    assert verified_contents(data) == RECORDS
    assert batch_of(rebuild(batch_of(data).header, RECORDS, delete_horizon_ms=None)).header.attributes == 0


def test_an_empty_batch_has_no_records_whatever_follows() -> None:
    assert verified_contents(with_section(b"garbage", count=0, attributes=Codec.GZIP)) == []


@pytest.mark.parametrize(
    ("section", "count", "problem"),
    [
        (b"", 1, "a record ends outside its batch"),
        (A[61:], 2, "bytes after the last record"),
        (A[61:], 4, "a record ends outside its batch"),
        (A[61:] + b"\0", 3, "bytes after the last record"),
        (b"\x0f" + A[62:70], 1, "a record of -8 bytes"),
        (b"\x20" + A[62:70], 1, "a record of 16 bytes, 8 are left"),
        (bytes.fromhex("10 00 00 00 02 61 0a 31 00"), 1, "a field of 5 bytes"),
        (bytes.fromhex("10 00 00 00 02 61 02 31 0a"), 1, "5 record headers in 0 bytes"),
        (bytes.fromhex("10 00 00 00 02 61 02 31 01"), 1, "-1 record headers"),
        (bytes.fromhex("12 00 00 00 02 61 02 31 00 00"), 1, "a record declares 9 bytes, but its fields have 8"),
        (bytes.fromhex("14 00 00 00 02 61 02 31 02 01 01"), 1, "a record header without a key"),
        (bytes.fromhex("10 00 00 06 02 61 02 31 00"), 1, "record offset 103 after 99, in a batch that ends at 102"),
        (bytes.fromhex("10 00 00 01 02 61 02 31 00"), 1, "record offset 99 after 99"),
        (bytes.fromhex("10 00 00 02 02 61 02 31 00") * 2, 2, "record offset 101 after 101"),
        (b"\xff\xff\xff\xff\xff\xff", 1, "too long"),
    ],
)
def test_records_that_do_not_add_up(section: bytes, count: int, problem: str) -> None:
    with pytest.raises(CorruptBatchError, match=problem) as stopped:
        verified_contents(with_section(section, count=count))
    assert (stopped.value.position, stopped.value.offset) == (0, 100)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"magic": 3}, "magic 3"),
        ({"magic": -1}, "magic -1"),
        ({"length": 48}, "batch length 48"),
        ({"length": -1}, "batch length -1"),
        ({"base_offset": -1}, "base offset -1"),
        ({"last_offset_delta": -1}, "last offset delta -1"),
        ({"base_offset": 2**63 - 3}, "last offset 9223372036854775807, beyond the largest offset"),
        ({"records_count": -1}, "records count -1"),
        ({"attributes": 5}, "codec 5 does not exist"),
        ({"attributes": 7}, "codec 7 does not exist"),
        ({"length": 80}, "a batch of 92 bytes, but only 91 are left"),
    ],
)
def test_headers_that_cannot_be(fields: dict[str, int], problem: str) -> None:
    data = batch_of(A).header._replace(**fields).pack() + A[HEADER_BYTES:]
    with pytest.raises(CorruptBatchError, match=problem) as stopped:
        list(parse_batches(A + data, file="f", position=1000))
    assert stopped.value.position == 1000 + len(A)


def test_a_codec_that_inflates_without_end_is_stopped() -> None:
    bomb = build([Record(0, T, b"a", bytes(10_000_000))], codec=Codec.GZIP)
    with pytest.raises(BatchTooLargeError, match="inflates to more than 10,000,000 bytes"):
        read_records(batch_of(bomb), file="f", memory_bytes=40_000_000)


# --- Damage ------------------------------------------------------------------------------------------------------

WHOLE = {codec: build(RECORDS, codec=codec, partition_leader_epoch=7) for codec in Codec} | {"marker": M2, "empty": D}


def read_everything(data: bytes, directory: Path) -> list[tuple[Header, list[Record]]]:
    """Return the batches and records of a segment with the offsets 100 to 103, read as a scan reads them."""
    path = directory / "00000000000000000100.log"
    path.write_bytes(data)
    found = verified_batches(LogFile.at(path), base_offset=100, end_offset=104)
    return [(one.header, read_records(one, file="f")) for one in found]


@pytest.mark.parametrize("kind", WHOLE)
def test_a_batch_cut_anywhere_is_refused(kind: Codec | str, tmp_path: Path) -> None:
    data = WHOLE[kind]
    for length in range(1, len(data)):
        with pytest.raises(CorruptBatchError):
            read_everything(data[:length], tmp_path)
    assert read_everything(b"", tmp_path) == []


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_any_flipped_byte_is_found_or_harmless(kind: Codec | str, flip: int, tmp_path: Path) -> None:
    data = WHOLE[kind]
    sound = read_everything(data, tmp_path)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= flip
        try:
            ((header, records),) = read_everything(bytes(damaged), tmp_path)
        except KcompactError:
            continue
        # The checksum covers neither base offset nor leader epoch. The offset is still inside the segment.
        assert position < 8 or 12 <= position < 16, position
        shift = header.base_offset - sound[0][0].base_offset
        assert 0 <= header.base_offset - 100 <= 3 - header.last_offset_delta
        assert [record._replace(offset=record.offset - shift) for record in records] == sound[0][1]


@pytest.mark.parametrize("kind", WHOLE)
def test_damage_behind_a_good_checksum_never_raises_anything_else(kind: Codec | str, tmp_path: Path) -> None:
    data = WHOLE[kind]
    for position in range(21, len(data)):
        for flip in (0x01, 0x10, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= flip
            try:
                found = read_everything(sealed(bytes(damaged)), tmp_path)
            except KcompactError:
                continue
            for header, records in found:
                for record in records:
                    assert header.base_offset <= record.offset <= header.last_offset


@given(st.binary(max_size=200))
def test_any_bytes_are_batches_or_corrupt(data: bytes) -> None:
    try:
        for one in parse_batches(data, file="f"):
            read_records(one, file="f")
    except KcompactError:
        return


def test_a_wrong_checksum_is_named() -> None:
    damaged = A[:-1] + b"!"
    with pytest.raises(CorruptBatchError, match=r"checksum 0x[0-9a-f]{8}, the header says 0xdb16dfc6"):
        verify_crc(batch_of(damaged), file="f")


def test_read_header_needs_a_whole_header() -> None:
    for length in range(HEADER_BYTES):
        with pytest.raises(CorruptBatchError, match="ends inside a batch header"):
            read_header(A[:length], file="f", position=0)


# --- kafka-python ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("horizon", [None, HORIZON])
def test_kafka_python_reads_what_rebuild_writes(codec: Codec, horizon: int | None) -> None:
    header = strategies.with_codec(batch_of(A).header, codec)
    written = MemoryRecords(rebuild(header, RECORDS[1:], delete_horizon_ms=horizon) + M)
    first = written.next_batch()
    assert first.validate_crc()
    assert (first.base_offset, first.last_offset, first.next_offset) == (100, 102, 103)
    assert (first.compression_type, first.leader_epoch, first.max_timestamp) == (codec, 7, T + 9)
    found = [
        (r.offset, r.timestamp, r.key, r.value, tuple((name.encode(), value) for name, value in r.headers))
        for r in first
    ]
    assert found == [tuple(record) for record in RECORDS[1:]]
    second = written.next_batch()
    assert second.is_control_batch
    assert [record.commit for record in second] == [True]
    assert written.next_batch() is None


@pytest.mark.parametrize("codec", Codec)
def test_reading_what_kafka_python_writes(codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=42,
        producer_epoch=3,
        base_sequence=11,
        batch_size=999_999,
    )
    value = b"value " * 20
    for offset, record in enumerate(RECORDS):
        headers = [(name.decode(), content) for name, content in record.headers]
        content = None if record.value is None else value
        builder.append(offset, timestamp=record.timestamp, key=record.key, value=content, headers=headers)
    one = batch_of(bytes(builder.build()))
    verify_crc(one, file="f")
    header = one.header
    assert (header.codec_id, header.producer_id, header.producer_epoch, header.base_sequence) == (codec, 42, 3, 11)
    assert header.is_transactional
    expected = [
        record._replace(offset=record.offset - 100, value=None if record.value is None else value) for record in RECORDS
    ]
    assert read_records(one, file="f") == expected
    assert [r.offset for r in DefaultRecordBatch(rebuild(header, expected[1:], delete_horizon_ms=None))] == [1, 2]


def test_the_bits_are_kafkas() -> None:
    assert (LOG_APPEND_TIME_BIT, DELETE_HORIZON_BIT) == (8, 64)
    assert HEADER_STRUCT.size == HEADER_BYTES == batch_format.HEADER_BYTES
