"""The kernels against their readable definitions, and against bytes that mean them harm."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import crc32c
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcompact import kernels
from kcompact.clean import offset_map, split_kernels
from kcompact.clean.filter import FilteredRun
from kcompact.clean.job import CleanerStats, CleanJob, Split
from kcompact.clean.write import _clean_split
from kcompact.errors import CorruptBatchError, KcompactError
from kcompact.format import batch as batch_format
from kcompact.format.batch import Batch, Header, Record, parse_batches, read_records, sealed, write_varint
from kcompact.format.block import Keys
from kcompact.format.codec import Codec, compress, decompress
from kcompact.format.index import IndexBuilder
from kcompact.kernels import (
    BASE_OFFSET,
    CODEC_MASK,
    COLUMNS,
    DAMAGED,
    DONE,
    FLAGS,
    FULL,
    HEADER_BYTES,
    LEFT_OUT,
    LEGACY,
    POSITION,
    RECORDS_COUNT,
    ROW,
    SECTION_END,
    SECTION_START,
    Bytes,
    Table,
)
from kcompact.log import header_table, inflate
from kcompact.log.inflate import Buffers
from kcompact.log.producer_state import LastRecord
from kcompact.log.segment_reader import headers, verified_batches
from tests import strategies
from tests.strategies import HOUR, NOW

MAX_OFFSET = 2**63 - 1
LOG_NAME = f"{0:020d}.log"
K0, K1 = 0x0706050403020100, 0x0F0E0D0C0B0A0908


def array(data: bytes | bytearray) -> Bytes:
    return np.array(bytearray(data), np.uint8)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that many examples write the same file in."""
    return tmp_path_factory.mktemp("kernels")


# --- Checksum and hash ----------------------------------------------------------------------------------------------


def test_crc32c_is_the_librarys_at_every_alignment_and_length() -> None:
    data = np.random.default_rng(1).integers(0, 256, 200, np.uint8)
    for start in range(17):
        for end in range(start, 200):
            assert kernels.crc32c(data, start, end) == crc32c.crc32c(data[start:end].tobytes())


@pytest.mark.parametrize("size", [0, 1, 4095, 65_537, 1_000_003])
def test_crc32c_of_larger_buffers(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    assert kernels.crc32c(data, 0, size) == crc32c.crc32c(data.tobytes())


WITHOUT_INSTRUCTION = """
import crc32c
import numpy as np
from llvmlite import binding
features = binding.get_host_cpu_features()
features["sse4.2"] = False
binding.get_host_cpu_features = lambda: features
from kcompact.kernels import loops
assert not loops.HAS_CRC_INSTRUCTION
data = np.random.default_rng(1).integers(0, 256, 100, np.uint8)
for start in range(9):
    for end in range(start, 100):
        assert loops.crc32c(data, start, end) == crc32c.crc32c(data[start:end].tobytes()), (start, end)
"""


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
    )


def test_crc32c_on_a_processor_without_an_instruction_for_it() -> None:
    done = run(WITHOUT_INSTRUCTION)
    assert done.returncode == 0, done.stderr


def siphash128(data: bytes, key: bytes, c_rounds: int, d_rounds: int) -> bytes:
    """SipHash with 128 bits, in its authors' words: "SipHash: a fast short-input PRF" and its reference code."""
    mask = (1 << 64) - 1

    def rotated(value: int, bits: int) -> int:
        return (value << bits | value >> 64 - bits) & mask

    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & mask
            v[1] = rotated(v[1], 13) ^ v[0]
            v[0] = rotated(v[0], 32)
            v[2] = (v[2] + v[3]) & mask
            v[3] = rotated(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & mask
            v[3] = rotated(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & mask
            v[1] = rotated(v[1], 17) ^ v[2]
            v[2] = rotated(v[2], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(c_rounds)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(d_rounds)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(d_rounds)
    return low.to_bytes(8, "little") + (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("rounds", "first", "last", "digest"),
    [
        # `vectors_sip128` of the authors' reference implementation.
        (
            (2, 4),
            "a3817f04ba25a8e66df67214c7550293",
            "5150d1772f50834a503e069a973fbd7c",
            "ecfaa9fe47ff788fa834a9863ea2715a2880cd37d2b8c3c194402838428119b9",
        ),
        # Those that Rust's `rustc-stable-hash` is tested with.
        (
            (1, 3),
            "e77ebcb22788a5befd62db6add303001",
            "4c5800e34efe426f079f6b0aa75260ad",
            "58cbba5178d829c27ef56e1b54bdf3db60957320e97f2fd6c8b270a7eecc0cca",
        ),
    ],
)
def test_siphash_of_the_published_vectors(rounds: tuple[int, int], first: str, last: str, digest: str) -> None:
    """64 hashes, of the first 0 to 63 of the bytes 00 01 02 ..., with the key 00 ... 0f."""
    data = np.arange(63, dtype=np.uint8)
    found = [kernels.siphash128(data, 0, length, K0, K1, *rounds) for length in range(64)]
    assert (found[0].hex(), found[-1].hex()) == (first, last)
    assert hashlib.sha256(b"".join(found)).hexdigest() == digest
    assert found == [siphash128(bytes(range(length)), bytes(range(16)), *rounds) for length in range(64)]


@given(st.binary(max_size=300), st.integers(0, 20), st.integers(0, 20), st.binary(min_size=16, max_size=16))
def test_siphash_anywhere_in_a_buffer(data: bytes, before: int, after: int, key: bytes) -> None:
    k0, k1 = np.frombuffer(key, "<u8").tolist()
    buffer = array(b"x" * before + data + b"y" * after)
    expected = siphash128(data, key, 1, 3)
    assert kernels.siphash128(buffer, before, before + len(data), k0, k1) == expected
    assert split_kernels.hash_of(data, key) == expected


# --- Batches: random logs, sound and damaged ------------------------------------------------------------------------


@st.composite
def log_bytes(draw: st.DrawFn) -> bytes:
    """A segment's bytes, with leader epochs, markers and emptied batches."""
    parts = [data for one in draw(strategies.segments()) for data in one.batches]
    epoch = 0
    for number, data in enumerate(parts):
        epoch += draw(st.sampled_from([0, 0, 1]))
        known = draw(st.sampled_from([epoch, epoch, -1]))
        parts[number] = data[:12] + known.to_bytes(4, "big", signed=True) + data[16:]
    return b"".join(parts)


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes flipped, cut out, put in, or cut off."""
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(found)))
        kind = draw(st.sampled_from(["flip", "flip", "flip", "cut", "insert", "truncate"]))
        if kind == "flip" and at < len(found):
            found[at] ^= draw(st.integers(1, 255))
        elif kind == "cut":
            del found[at : at + draw(st.integers(1, 80))]
        elif kind == "insert":
            found[at:at] = draw(st.binary(min_size=1, max_size=80))
        elif kind == "truncate":
            del found[at:]
    return bytes(found)


def resealed(data: bytes) -> bytes:
    """Return damaged bytes with each checksum put right, as far as there are batches."""
    found = bytearray(data)
    at = 0
    while at + HEADER_BYTES <= len(found):
        size = int.from_bytes(found[at + 8 : at + 12], "big", signed=True) + 12
        if size < HEADER_BYTES or at + size > len(found):
            break
        found[at + 17 : at + 21] = batch_format.computed_crc(bytes(found[at : at + size])).to_bytes(4, "big")
        at += size
    return bytes(found)


any_log_bytes = log_bytes().flatmap(
    lambda data: st.one_of(st.just(data), damaged(data), damaged(data).map(resealed))
) | st.binary(max_size=150)


def table_of(data: bytes, *, base_offset: int = 0, end_offset: int = MAX_OFFSET) -> tuple[Table, int]:
    table = np.full((len(data) // HEADER_BYTES + 1, COLUMNS), -77, np.int64)
    count, _, code = kernels.walk(array(data), len(data), base_offset, end_offset, -1, table)
    return table[:count], code


def headers_in(table: Table) -> list[Header]:
    return [header_table.header_of_row(row)._replace(crc=0) for row in table]


@given(any_log_bytes, st.sampled_from([0, 0, 3, 2**33]), st.sampled_from([MAX_OFFSET, MAX_OFFSET, 20]))
def test_walk_is_verified_batches(scratch: Path, data: bytes, base_offset: int, end_offset: int) -> None:
    path = scratch / LOG_NAME
    path.write_bytes(data)
    table, code = table_of(data, base_offset=base_offset, end_offset=end_offset)
    expected, is_sound = [], True
    try:
        for one in verified_batches(path, base_offset=base_offset, end_offset=end_offset):
            expected.append(one)
    except KcompactError:
        is_sound = False
    if code == LEGACY or any(one.header.magic < 2 for one in expected):
        return  # Those are the definition's alone.
    assert (code == DONE) == is_sound
    assert headers_in(table) == [one.header._replace(crc=0) for one in expected]
    assert table[:, POSITION].tolist() == [one.position for one in expected]
    rows = itertools.accumulate((one.header.records_count for one in expected), initial=0)
    assert table[:, ROW].tolist() == list(rows)[:-1]
    assert table[:, SECTION_START].tolist() == [one.position + HEADER_BYTES for one in expected]
    assert table[:, SECTION_END].tolist() == [one.position + one.header.size_bytes for one in expected]
    assert not table[:, FLAGS].any()


@given(log_bytes(), st.integers(1, 3))
def test_walk_goes_on_where_its_table_ended(data: bytes, rows: int) -> None:
    whole, _ = table_of(data)
    found, at, previous, epoch, code = [], 0, -1, -1, FULL
    while code == FULL:
        table = np.empty((rows, COLUMNS), np.int64)
        rest = array(data[at:])
        count, filled, code = kernels.walk(rest, len(rest), previous + 1, MAX_OFFSET, epoch, table)
        found += headers_in(table[:count])
        at += filled
        previous = found[-1].last_offset if found else -1
        epoch = max(-1, *(one.partition_leader_epoch for one in found)) if found else -1
    assert (code, found) == (DONE, headers_in(whole))


def test_walk_stops_at_older_formats() -> None:
    data = bytearray(batch_format.build([Record(0, 0, b"a", b"b" * 40)]))
    for magic in (0, 1):
        data[16] = magic
        assert table_of(bytes(data))[1] == LEGACY


@given(any_log_bytes, st.booleans())
def test_hop_is_headers(scratch: Path, data: bytes, is_in_the_middle: bool) -> None:
    path = scratch / LOG_NAME
    before, after = (b"before", b"behind") if is_in_the_middle else (b"", b"")
    path.write_bytes(before + data + after)
    start, end = len(before), len(before) + len(data)
    table = header_table.read_header_table(path, start_position=start, end_position=end)
    try:
        expected = list(headers(path, start_position=start, end_position=end))
    except KcompactError:
        assert table is None
        return
    if any(header.magic < 2 or header.last_offset > MAX_OFFSET for _, header in expected):
        assert table is None
        return
    assert table is not None
    assert list(zip(table[:, POSITION].tolist(), headers_in(table), strict=True)) == [
        (position, header._replace(crc=0)) for position, header in expected
    ]


def test_hop_reads_many_headers_and_tells_what_it_cannot_read(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = scratch / LOG_NAME
    path.write_bytes(b"".join(batch_format.build([Record(offset, 0, b"a", b"b")]) for offset in range(100)))
    end = path.stat().st_size
    whole = header_table.read_header_table(path, end_position=end)
    assert whole is not None
    assert whole[:, BASE_OFFSET].tolist() == list(range(100))
    monkeypatch.setattr(header_table, "TABLE_ROWS", 7)
    parts = header_table.read_header_table(path, end_position=end)
    assert parts is not None
    assert np.array_equal(parts, whole)
    assert header_table.read_header_table(path, end_position=end + 100) is None  # Such a file ends before it should.


# --- Records: sections as Kafka may write them, and as nobody should -------------------------------------------------


def padded(value: int, more: int) -> bytes:
    """Return a varint of more bytes than it needs."""
    data = write_varint(value)
    return data if not more else data[:-1] + bytes([data[-1] | 0x80]) + b"\x80" * (more - 1) + b"\0"


@st.composite
def varints(draw: st.DrawFn, value: int, *, width: int = 5) -> bytes:
    data = write_varint(value)
    return padded(value, draw(st.sampled_from([0] * 9 + [1, width - len(data), width - len(data) + 1])))


@st.composite
def fields(draw: st.DrawFn, *, may_be_null: bool = True) -> bytes:
    content = draw(st.none() | st.binary(max_size=12) if may_be_null else st.binary(max_size=3))
    if content is None:
        return draw(varints(draw(st.sampled_from([-1, -1, -2, -1000]))))
    return draw(varints(len(content))) + content


@st.composite
def odd_records(draw: st.DrawFn, offset_delta: int) -> bytes:
    """A record that Kafka's reader takes, or nearly: lengths that are longer than needed, or wrong now and then."""
    body = bytes([draw(st.sampled_from([0, 0, 1, 0xFF]))])
    body += draw(varints(draw(st.sampled_from([0, 1, -1, 500, 2**62, -(2**63)])), width=10))
    body += draw(varints(offset_delta)) + draw(fields()) + draw(fields())
    count = draw(st.sampled_from([0, 0, 0, 1, 2]))
    claimed = count + draw(st.sampled_from([0] * 20 + [1, -1, 1000]))
    body += draw(varints(claimed))
    for _ in range(count):
        body += draw(fields(may_be_null=draw(st.integers(0, 20)) == 0)) + draw(fields())
    return draw(varints(len(body) + draw(st.sampled_from([0] * 20 + [1, -1, -len(body), 2**31 - 1])))) + body


@st.composite
def odd_batches(draw: st.DrawFn) -> bytes:
    """A batch with a right checksum, and whatever may be in it."""
    base_offset = draw(st.sampled_from([0, 5, 2**33]))
    count = draw(st.integers(0, 5))
    deltas, delta = [], 0
    for _ in range(count):
        deltas.append(delta)
        delta += draw(st.sampled_from([1] * 10 + [2, 7, 0, -3]))
    section = b"".join(draw(odd_records(one)) for one in deltas)
    section += draw(st.sampled_from([b""] * 9 + [b"\0", b"more"]))
    if draw(st.integers(0, 4)) == 0:
        section = draw(damaged(section))
    header: Header = draw(strategies.headers(base_offset=base_offset, last_offset=base_offset + max(0, delta - 1)))
    kind = draw(st.sampled_from([0, 0, 0, kernels.CONTROL_BIT]))
    codec = Codec(header.codec_id)
    section = compress(codec, section) if codec else section
    if codec and draw(st.integers(0, 9)) == 0:
        section = draw(damaged(section))
    claimed = count + draw(st.sampled_from([0] * 20 + [1, -1, 2**31 - 1]))
    header = header._replace(
        records_count=min(max(0, claimed), 2**31 - 1),
        attributes=header.attributes | kind,
        length=HEADER_BYTES - 12 + len(section),
        base_timestamp=draw(st.sampled_from([0, NOW, -1, 2**63 - 1])),
    )
    return sealed(header, section)


class Inflated(NamedTuple):
    buffer: Bytes
    arena: Bytes
    table: Table


def inflated(data: bytes) -> Inflated:
    """Return what the kernels take of whole batches. Raises CorruptBatchError where a codec does."""
    table, code = table_of(data)
    assert code == DONE
    arena = bytearray()
    for row in table:
        if row[kernels.ATTRIBUTES] & CODEC_MASK and row[RECORDS_COUNT]:
            codec = Codec(int(row[kernels.ATTRIBUTES]) & CODEC_MASK)
            section = data[row[SECTION_START] : row[SECTION_END]]
            row[SECTION_START] = len(arena)
            arena += decompress(codec, section, file="f", position=0)
            row[SECTION_END] = len(arena)
    return Inflated(array(data), array(arena), table)


def keys_for(rows: int) -> Keys:
    return Keys(np.empty(rows, np.uint64), np.empty(rows, np.uint64), np.empty(rows, np.int64))


def room_for(table: Table) -> int:
    """Return how many records there can be at most."""
    sections = (table[:, SECTION_END] - table[:, SECTION_START]) // kernels.MIN_RECORD_BYTES
    return int(np.minimum(table[:, RECORDS_COUNT], sections).sum())


any_batch = odd_batches() | strategies.batches()


def same_offsets(batches: list[bytes]) -> bytes:
    """Return batches one behind the other, their offsets too."""
    found, offset = [], 0
    for data in batches:
        (one,) = parse_batches(data, file="")
        found.append(offset.to_bytes(8, "big") + data[8:])
        offset += one.header.last_offset_delta + 1
    return b"".join(found)


@settings(max_examples=100)
@given(st.lists(any_batch, min_size=1, max_size=3).map(same_offsets), st.integers(0, 12), st.sets(st.integers(0, 2)))
def test_scan_is_read_records(data: bytes, first_dirty_offset: int, excluded_from_map: set[int]) -> None:
    batches = list(parse_batches(data, file="f"))
    expected: list[tuple[int, int, int]] = []
    unkeyed_or_tombstones = row = 0
    place = 5 << 36
    is_sound = True
    try:
        loaded = inflated(data)
    except CorruptBatchError:
        assert not is_readable(data)
        return
    for number in excluded_from_map & set(range(len(loaded.table))):
        loaded.table[number, FLAGS] = LEFT_OUT
    for number, one in enumerate(batches):
        try:
            records = read_records(one, file="f")
        except CorruptBatchError:
            is_sound = False
            break
        for record in records if not one.header.is_control else []:
            unkeyed_or_tombstones += record.key is None or record.value is None
            if record.key is not None:
                hashed = siphash128(record.key, bytes(range(16)), 1, 3)
                in_map = record.offset >= first_dirty_offset and number not in excluded_from_map
                low, high = int.from_bytes(hashed[:8], "little"), int.from_bytes(hashed[8:], "little")
                expected.append((high, low, place + (row + records.index(record) << 1 | in_map)))
        row += one.header.records_count
    found = keys_for(room_for(loaded.table))
    entries, special_found, code = kernels.scan_records(
        *loaded, 0, len(loaded.table), first_dirty_offset, place, K0, K1, *found
    )
    assert (code == DONE) == is_sound
    if is_sound:
        assert list(zip(*(column.tolist() for column in found.first(entries)), strict=True)) == expected
        assert special_found == unkeyed_or_tombstones
    elif code == DAMAGED:
        assert entries <= found.rows


@settings(max_examples=60)
@given(st.lists(any_batch, min_size=1, max_size=3).map(same_offsets))
def test_verify_is_read_records(data: bytes) -> None:
    try:
        loaded = inflated(data)
    except CorruptBatchError:
        return  # As in the test above.
    expected: list[list[int]] = []
    records_before = 0
    is_sound = True
    for one in parse_batches(data, file="f"):
        try:
            records = read_records(one, file="f")
        except CorruptBatchError:
            is_sound = False
            break
        greatest = one.header.max_timestamp
        if records and not one.header.is_log_append_time:
            greatest = max(record.timestamp for record in records)
        nulls = [sum(record.value is None for record in records), sum(record.key is None for record in records)]
        expected.append([*nulls, greatest])
        records_before += len(records)
    found = np.full((len(loaded.table), 3), -77, np.int64)
    done, records_found, code = kernels.verify_records(*loaded, 0, len(loaded.table), found)
    assert (done, code == DONE, records_found) == (len(expected), is_sound, records_before)
    assert found[:done].tolist() == expected


@pytest.mark.parametrize(
    ("section", "is_sound"),
    [
        ("10 00 00 00 02 61 02 31 00", True),
        ("90 00 00 00 00 02 61 02 31 00", True),  # A length of two bytes.
        ("12 00 00 00 82 00 61 02 31 00", True),  # A key's length of two bytes.
        ("10 ff 00 00 02 61 02 31 00", True),  # Attributes that nobody uses.
        ("0e 00 00 00 03 02 31 00", True),  # A key of length -2.
        ("0e 00 00 00 02 61 03 00", True),
        ("18 00 00 00 02 61 02 31 80 80 80 00", False),  # Four bytes are missing.
        ("16 00 00 00 02 61 02 31 80 80 80 00", True),  # No headers, said at length.
        ("1a 00 00 00 02 61 02 31 80 80 80 80 80 00", False),  # At too much length.
        ("0e 00 00 00 02 61 02 31 00", False),  # One byte too short,
        ("12 00 00 00 02 61 02 31 00", False),  # and too long.
        ("0f", False),
        ("10 00 00 00 02 61 02 31 01", False),  # -1 headers.
        ("14 00 00 00 02 61 02 31 02 01 00", False),  # A header without a key.
        ("14 00 00 00 02 61 02 31 02 00 01", True),
        ("10 00 00 01 02 61 02 31 00", False),  # Offset -1.
        ("10 00 00 04 02 61 02 31 00", False),  # Beyond the batch.
        ("10 00 00 00 02 61 02 31 00 00", False),  # A byte behind the last record.
    ],
)
def test_a_record_by_hand(section: str, is_sound: bool) -> None:
    (one,) = parse_batches(batch_format.build([Record(0, 0, b"a", b"1"), Record(1, 0, b"a", b"1")]), file="f")
    body = bytes.fromhex(section)
    data = sealed(one.header._replace(records_count=1, length=HEADER_BYTES - 12 + len(body)), body)
    loaded = inflated(data)
    found = np.zeros((1, 3), np.int64)
    codes = {
        kernels.scan_records(*loaded, 0, 1, 0, 0, K0, K1, *keys_for(1))[2],
        kernels.verify_records(*loaded, 0, 1, found)[2],
    }
    assert codes == ({DONE} if is_sound else {DAMAGED})
    try:
        read_records(next(iter(parse_batches(data, file="f"))), file="f")
    except CorruptBatchError:
        assert not is_sound
    else:
        assert is_sound


# --- Keys -----------------------------------------------------------------------------------------------------------


def random_keys(seed: int, rows: int, distinct: int, shape: str) -> Keys:
    random = np.random.default_rng(seed)
    chosen = random.integers(0, max(1, distinct), rows)
    high, low = random.integers(0, 2**64, (2, max(1, distinct)), np.uint64)
    if shape == "equal halves":
        high = low
    elif shape == "same low":
        low[:] = 7
    elif shape == "same high":
        high[:] = 7
    elif shape == "small":
        high, low = np.arange(max(1, distinct), dtype=np.uint64), np.zeros(max(1, distinct), np.uint64)
    places = np.cumsum(random.integers(1, 4, rows)) << 1 | random.integers(0, 2, rows)
    return Keys(high[chosen], low[chosen], places.astype(np.int64))


SHAPES = ["random", "equal halves", "same low", "same high", "small"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("rows", "distinct"), [(0, 0), (1, 1), (2, 1), (9_000, 1), (9_000, 3_000), (70_000, 1), (150_000, 700)]
)
def test_mark_living(rows: int, distinct: int, shape: str) -> None:
    keys = random_keys(rows + distinct, rows, distinct, shape)
    alive = np.full(rows, 9, np.uint8)
    kernels.mark_living(*keys, alive)
    assert np.array_equal(alive, offset_map.latest(keys).astype(np.uint8))


def test_mark_living_of_more_runs_than_one() -> None:
    rows = 5 * kernels.RUN_ROWS
    keys = random_keys(3, rows, rows // 2, "random")
    alive = np.empty(rows, np.uint8)
    kernels.mark_living(*keys, alive)
    assert np.array_equal(alive, offset_map.latest(keys))
    assert 0 < alive.sum() < rows


@given(st.integers(0, 999), st.integers(0, 60), st.integers(1, 40), st.sampled_from(SHAPES))
def test_mark_living_of_few(seed: int, rows: int, distinct: int, shape: str) -> None:
    keys = random_keys(seed, rows, distinct, shape)
    alive = np.full(rows, 9, np.uint8)
    kernels.mark_living(*keys, alive)
    assert alive.tolist() == offset_map.latest(keys).astype(int).tolist()


@given(st.integers(0, 999), st.integers(0, 60))
def test_keep_living(seed: int, rows: int) -> None:
    keys = random_keys(seed, rows, 9, "random")
    alive = np.random.default_rng(seed).integers(0, 2, rows).astype(np.uint8)
    expected = offset_map.take(keys, alive.astype(np.bool_))
    kept = kernels.keep_living(alive, *keys)
    for column, wanted in zip(keys.first(kept), expected, strict=True):
        assert column.tolist() == wanted.tolist()


@given(st.integers(0, 999), st.integers(0, 60), st.sampled_from([1, 2, 3, 7, 64]), st.sampled_from(SHAPES))
def test_deal(seed: int, rows: int, buckets: int, shape: str) -> None:
    keys = random_keys(seed, rows, 30, shape)
    dealt = keys_for(rows)
    starts = kernels.deal(*keys, buckets, *dealt)
    assert starts.tolist()[0] == 0
    assert starts.tolist()[-1] == rows
    for bucket in range(buckets):
        own = offset_map.take(dealt, slice(starts[bucket], starts[bucket + 1]))
        expected = offset_map.take(keys, keys.hash_high % np.uint64(buckets) == bucket)
        assert [column.tolist() for column in own] == [column.tolist() for column in expected]


@given(st.sets(st.integers(-5, 90)), st.integers(0, 3), st.integers(0, 10), st.binary(min_size=10, max_size=10))
def test_bits_are_set_and_cleared(rows: set[int], split: int, size_bytes: int, content: bytes) -> None:
    places = np.array([(split << 36) + (row << 1 | row & 1) for row in sorted(rows)], np.int64)
    for kernel, bit in ((kernels.set_bits, 1), (kernels.clear_bits, 0)):
        bitmap = array(content[:size_bytes])
        expected = np.unpackbits(bitmap, bitorder="little")
        expected[[row for row in rows if 0 <= row < 8 * size_bytes]] = bit
        kernel(places, split << 36, bitmap)
        assert np.unpackbits(bitmap, bitorder="little").tolist() == expected.tolist()


# --- Filter ---------------------------------------------------------------------------------------------------------


@st.composite
def control_batches(draw: st.DrawFn) -> bytes:
    """A marker, with or without a horizon, or one that has been emptied."""
    kind = draw(st.sampled_from([0, 1, 4]))
    data = batch_format.build(
        [Record(0, draw(strategies.near_timestamps), bytes([0, 0, 0, kind]), bytes(6))],
        producer_id=draw(st.integers(0, 3)),
        producer_epoch=draw(st.integers(0, 1)),
        transactional=True,
        control=True,
    )
    (one,) = parse_batches(data, file="")
    state = draw(st.sampled_from(["plain", "plain", "horizon", "emptied"]))
    if state == "emptied":
        return batch_format.empty(one.header)
    horizon = NOW + draw(st.sampled_from([-HOUR, 0, HOUR])) if state == "horizon" else None
    return batch_format.rebuild(one.header, read_records(one, file=""), delete_horizon_ms=horizon)


@st.composite
def transactional_batches(draw: st.DrawFn) -> bytes:
    data: bytes = draw(strategies.batches(fresh=True))
    (one,) = parse_batches(data, file="")
    producer_id = draw(st.integers(-1, 3))
    attributes = one.header.attributes | kernels.TRANSACTIONAL_BIT
    return sealed(one.header._replace(attributes=attributes, producer_id=producer_id), data[HEADER_BYTES:])


@st.composite
def with_odd_header(draw: st.DrawFn, data: bytes) -> bytes:
    """What Kafka reads and does not write."""
    (one,) = parse_batches(data, file="")
    changes = {
        "base_sequence": st.sampled_from([-1, 3]),
        "producer_epoch": st.sampled_from([-1, 0]),
        "producer_id": st.sampled_from([-2, -1, 0, 1]),
        "base_timestamp": st.sampled_from([-5, -1, 0, 2**63 - 1]),
        "attributes": st.sampled_from([one.header.attributes | kernels.DELETE_HORIZON_BIT]),
    }
    name = draw(st.sampled_from(sorted(changes)))
    return sealed(one.header._replace(**{name: draw(changes[name])}), data[HEADER_BYTES:])


sound_batches = st.one_of(
    strategies.batches(),
    strategies.batches(keys=strategies.SMALL_KEYS),
    strategies.batches(keys=st.none() | strategies.SMALL_KEYS),
    control_batches(),
    transactional_batches(),
    strategies.batches().flatmap(with_odd_header),
)


def special_in(batches: list[Batch]) -> int:
    return sum(
        record.key is None or record.value is None
        for one in batches
        if not one.header.is_control
        for record in read_records(one, file="f")
    )


def all_of(run: Callable[[], Iterator[FilteredRun]]) -> object:
    """Return all that a filter says, or its error, in a form that can be compared."""
    data = b""
    columns: list[list[int]] = [[], [], []]
    stats = CleanerStats()
    try:
        for part in run():
            data += b"".join(part.pieces)
            for column, values in zip(columns, part[1:4], strict=True):
                column += values.tolist()
            stats += part.stats
    except KcompactError as problem:
        return type(problem), str(problem)
    return data, columns, stats


class Filtering(NamedTuple):
    job: CleanJob
    split: Split
    survivors: Bytes
    unkeyed_or_tombstones: int


@st.composite
def filterings(draw: st.DrawFn, batches: st.SearchStrategy[bytes]) -> tuple[bytes, Filtering]:
    """A log, and what a cleaning may know of it."""
    data = same_offsets(draw(st.lists(batches, min_size=1, max_size=4)))
    found = list(parse_batches(data, file=""))
    end_offset = found[-1].header.next_offset
    marked = [one.header.base_offset for one in found if one.header.is_control or one.header.is_transactional]
    job = CleanJob(
        directory="",
        first_dirty_offset=0,
        upper_bound_offset=draw(st.sampled_from([end_offset, end_offset, end_offset + 9, end_offset // 2])),
        now_ms=NOW,
        delete_retention_ms=draw(st.sampled_from([0, 1, HOUR, 2**63 - 1])),
        keep_tombstones=draw(st.booleans()),
        last_records={
            producer_id: LastRecord(data_offset=draw(st.none() | offsets), producer_epoch=draw(st.integers(0, 1)))
            for producer_id in draw(st.sets(st.integers(0, 3)))
            for offsets in [st.sampled_from([one.header.last_offset for one in found])]
        },
        hash_key=bytes(16),
        bucket_count=1,
        compiled=True,
    )
    split = Split(
        log_name=LOG_NAME,
        start_position=0,
        end_position=len(data),
        base_offset=0,
        end_offset=end_offset,
        discardable=frozenset(draw(st.sets(st.sampled_from(marked)))) if marked else frozenset(),
    )
    records = sum(one.header.records_count for one in found)
    survivors = draw(
        st.binary(min_size=(records + 7) // 8, max_size=(records + 7) // 8)
        | st.sampled_from([b"\0", b"\xff"]).map(lambda byte: byte * ((records + 7) // 8))
    )
    return data, Filtering(job, split, array(survivors), special_in(found))


def assert_same_outcome(directory: Path, data: bytes, filtering: Filtering) -> None:
    job, split, survivors, unkeyed_or_tombstones = filtering
    (directory / LOG_NAME).write_bytes(data)
    job = replace(job, directory=str(directory))
    found = split_kernels.filter_split(job, split, survivors, unkeyed_or_tombstones, Buffers())
    assert found is not None
    assert all_of(lambda: found) == all_of(lambda: _clean_split(job, split, survivors))


@settings(max_examples=150)
@given(filterings(sound_batches))
def test_filter_is_clean_batch(scratch: Path, given_: tuple[bytes, Filtering]) -> None:
    assert_same_outcome(scratch, *given_)


def is_readable(data: bytes) -> bool:
    try:
        for one in parse_batches(data, file=""):
            read_records(one, file="")
    except CorruptBatchError:
        return False
    return True


@settings(max_examples=60)
@given(filterings(odd_batches().filter(is_readable)))
def test_filter_of_what_kafka_would_write_otherwise(scratch: Path, given_: tuple[bytes, Filtering]) -> None:
    """Only what a scan has let pass comes this far."""
    assert_same_outcome(scratch, *given_)


@given(filterings(sound_batches), st.sampled_from([1, 40]))
def test_how_much_is_inflated_at_once_changes_nothing(
    scratch: Path, given_: tuple[bytes, Filtering], size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inflate, "INFLATED_BYTES", size)
        patch.setattr(inflate, "CHUNK_RECORDS", 1 if size == 1 else 4)
        assert_same_outcome(scratch, *given_)


def test_filter_leaves_other_splits_alone(scratch: Path) -> None:
    (scratch / LOG_NAME).write_bytes(batch_format.build([Record(0, 0, b"a", b"b"), Record(1, 0, b"a", b"b")]))
    size = (scratch / LOG_NAME).stat().st_size
    split = Split(log_name=LOG_NAME, start_position=0, end_position=size, base_offset=0, end_offset=2)
    job = CleanJob(
        directory=str(scratch),
        first_dirty_offset=0,
        upper_bound_offset=2,
        now_ms=0,
        delete_retention_ms=0,
        keep_tombstones=False,
        last_records={},
        hash_key=bytes(16),
        bucket_count=1,
        compiled=True,
    )
    # Fewer bits than records: what was scanned was another file.
    assert split_kernels.filter_split(job, split, array(b""), 0, Buffers()) is None
    # The file is shorter than it was.
    longer = replace(split, end_position=size + 1)
    assert split_kernels.filter_split(job, longer, array(b"\3"), 0, Buffers()) is None


# --- Indexes --------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 1, 1, 9, 2**30, 2**31]), st.integers(-1, 20) | st.just(2**62), st.integers(61, 300)
        ),
        max_size=30,
    ),
    st.sampled_from([0, 5, 2**40]),
    st.sampled_from([0, 61, 200, 4096]),
    st.sampled_from([0, 8, 12, 24, 36, 50, 10_000]),
)
def test_indexes(batches: list[tuple[int, int, int]], base_offset: int, interval_bytes: int, max_bytes: int) -> None:
    builder = IndexBuilder(base_offset, interval_bytes=interval_bytes, max_index_bytes=max_bytes)
    offsets = list(itertools.accumulate((step for step, _, _ in batches), initial=base_offset - 1))[1:]
    expected: tuple[bytes, bytes] | None
    try:
        position = 0
        for offset, (_, timestamp, size) in zip(offsets, batches, strict=True):
            builder.append(offset, position, size, timestamp)
            position += size
        expected = builder.finish()
    except KcompactError:
        expected = None
    columns = [offsets, [timestamp for _, timestamp, _ in batches], [size for _, _, size in batches]]
    found = split_kernels.indexes(
        *(np.array(column, np.int64) for column in columns),
        base_offset=base_offset,
        interval_bytes=interval_bytes,
        max_index_bytes=max_bytes,
    )
    assert found == expected


# --- Reads and writes stay inside of their arrays -------------------------------------------------------------------

GUARDED = '''
import ctypes, mmap, random, sys
import numpy as np
from kcompact import kernels
from kcompact.clean import split_kernels
from kcompact.format.batch import Record, build
from kcompact.kernels import COLUMNS, MIN_RECORD_BYTES, OUTCOMES, RECORD_GROWTH_BYTES, RECORDS_COUNT, ROW
from kcompact.kernels import SECTION_END, SECTION_START, ATTRIBUTES, CODEC_MASK, FLAGS
from tests.test_kernels import resealed

PAGE = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Guarded:
    """Arrays that end, or begin, where a page begins, or ends, that nobody may touch."""

    def __init__(self, pages):
        self.map = mmap.mmap(-1, (pages + 2) * PAGE)
        self.bytes = np.frombuffer(self.map, np.uint8)
        self.first, self.end = PAGE, (pages + 1) * PAGE
        start = self.bytes.__array_interface__["data"][0]
        for page in (start, start + self.end):
            assert libc.mprotect(page, PAGE, 0) == 0

    def array(self, dtype, *shape, at_end=True):
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        at = self.end - size if at_end else self.first
        assert at >= self.first
        return self.bytes[at : at + size].view(dtype).reshape(shape)

    def put(self, data, at_end=True):
        array = self.array(np.uint8, len(data), at_end=at_end)
        array[:] = np.frombuffer(data, np.uint8)
        return array


buffers, arenas, tables, outs, outcomes_, scratches = (Guarded(40) for _ in range(6))
columns = [Guarded(10) for _ in range(4)]
chance = random.Random(int(sys.argv[2]))


def seed_batch(offset):
    records = [
        Record(
            offset + number,
            chance.choice([0, -1, 5, 2**62]),
            chance.choice([None, b"", b"key", b"k" * 7, b"k" * 8, b"k" * 13]),
            chance.choice([None, b"", b"value" * chance.randrange(9)]),
            chance.choice([(), (), ((b"h", None),), ((b"h", b"x" * 9), (b"", b""))]),
        )
        for number in range(chance.randrange(1, 6))
    ]
    return build(records, producer_id=chance.choice([-1, 3]), producer_epoch=0, base_sequence=0)


def mutated(data):
    data = bytearray(data)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(8)
        if kind == 0:
            del data[at:]
        elif kind == 1:
            del data[at : at + chance.randrange(1, 9)]
        elif kind == 2:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif at < len(data):
            data[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    return bytes(data)


def scan_all(buffer, arena, table):
    rooms = (table[:, SECTION_END] - table[:, SECTION_START]) // MIN_RECORD_BYTES
    rooms = np.minimum(table[:, RECORDS_COUNT], rooms)
    rows = int(rooms.sum())
    high, low, places = (one.array(kind, rows) for one, kind in zip(columns, (np.uint64, np.uint64, np.int64)))
    found = scratches.array(np.int64, len(table), 3)
    kernels.verify_records(buffer, arena, table, 0, len(table), found)
    entries, _, code = kernels.scan_records(buffer, arena, table, 0, len(table), 0, 0, 1, 2, high, low, places)
    # What is scanned is marked, in arrays that are guarded too.
    alive = columns[3].array(np.uint8, entries)
    kernels.mark_living(high[:entries].copy(), low[:entries].copy(), places[:entries].copy(), alive)
    at_guard = [one.array(kind, entries) for one, kind in zip(columns, (np.uint64, np.uint64, np.int64))]
    kernels.mark_living(*at_guard, alive)
    kernels.keep_living(alive, *at_guard)
    records = int(table[-1, ROW] + table[-1, RECORDS_COUNT])
    if records > 1 << 17:
        return code
    survivors = outs.array(np.uint8, (records + 7) // 8)
    kernels.set_bits(at_guard[2], 0, survivors)
    kernels.clear_bits(at_guard[2], 0, survivors)
    survivors = columns[3].put(chance.randbytes((records + 7) // 8))
    table[:, FLAGS] = [chance.choice([0, 0, 0, 1, 2]) for _ in table]
    sections = int((table[:, SECTION_END] - table[:, SECTION_START]).sum())
    out = outs.array(np.uint8, sections + RECORD_GROWTH_BYTES * rows + 61 * len(table))
    room = scratches.array(np.int64, int(rooms.max()), 4)
    outcomes = outcomes_.array(np.int64, len(table), OUTCOMES)
    for horizon in (-1, 1 << 62):
        end = kernels.filter_batches(
            buffer, arena, table, 0, len(table), survivors, 1 << 40, chance.choice([0, 1 << 62]), horizon,
            room, out, 0, outcomes,
        )
        assert 0 <= end <= len(out)
    return code


def fuzz(rounds):
    accepted = scanned = 0
    for _ in range(rounds):
        at_end = chance.random() < 0.8
        if chance.random() < 0.1:
            data = chance.randbytes(chance.randrange(200))
        else:
            data, offset = b"", 0
            for _ in range(chance.randrange(1, 4)):
                data += resealed(mutated(seed_batch(offset)))
                offset += 9
            if chance.random() < 0.3:
                data = resealed(mutated(data))
        buffer = buffers.put(data, at_end)
        table = tables.array(np.int64, len(data) // 61 + chance.choice([0, 1]), COLUMNS)
        count, _, code = kernels.walk(buffer, len(data), 0, 1 << 62, -1, table)
        for start in range(0, len(data), 7):
            kernels.crc32c(buffer, start, len(data))
            kernels.siphash128(buffer, start, len(data), 1, 2)
        if not count:
            continue
        table = table[:count]
        accepted += 1
        # Sections lie where the caller says: in the arena, if there is a codec.
        table[:, ATTRIBUTES] &= ~CODEC_MASK
        nothing = arenas.array(np.uint8, 0)
        scanned += scan_all(buffer, nothing, table) == kernels.DONE
        # The same sections as if they had been inflated, their arena at the guard.
        table[:, ATTRIBUTES] |= 1
        sections = []
        for row in table:
            section = bytes(buffer[row[SECTION_START] : row[SECTION_END]])
            row[SECTION_START] = sum(map(len, sections))
            sections.append(mutated(section))
            row[SECTION_END] = sum(map(len, sections))
        scan_all(buffer, arenas.put(b"".join(sections), at_end), table)
    return accepted, scanned


if sys.argv[1] == "fuzz":
    print(*fuzz(int(sys.argv[3])))
elif sys.argv[1] == "over":
    data = buffers.put(bytes(100))
    kernels.crc32c(data, 0, 101)
elif sys.argv[1] == "under":
    data = buffers.put(bytes(100), at_end=False)
    kernels.crc32c(data, -1, 100)
'''


@pytest.mark.parametrize("seed", [1, 2])
def test_no_kernel_leaves_its_arrays(seed: int) -> None:
    rounds = 1500
    done = run(GUARDED, "fuzz", seed, rounds)
    assert done.returncode == 0, (done.returncode, done.stderr)
    accepted, scanned = map(int, done.stdout.split())
    assert rounds // 3 < accepted < rounds  # It gets beyond the headers, and not always.
    assert rounds // 20 < scanned < accepted


@pytest.mark.parametrize("where", ["over", "under"])
def test_the_guard_would_notice(where: str) -> None:
    assert run(GUARDED, where, 1).returncode == -11


def test_hop_without_room() -> None:
    table: Table = np.empty((0, COLUMNS), np.int64)
    assert kernels.hop(0, 0, 100, np.empty(64, np.uint8), table) == (0, 0, FULL)


def test_what_a_kernel_does_not_take() -> None:
    data: npt.NDArray[Any] = np.zeros(100, np.int8)
    with pytest.raises(TypeError, match=r"crc32c takes u8\[\], not int8 of 1 dimensions"):
        kernels.crc32c(data, 0, 100)
    with pytest.raises(TypeError, match="of 2 dimensions"):
        kernels.crc32c(np.zeros((10, 10), np.uint8), 0, 100)
    with pytest.raises(TypeError, match="contiguous"):
        kernels.crc32c(np.zeros(200, np.uint8)[::2], 0, 100)
