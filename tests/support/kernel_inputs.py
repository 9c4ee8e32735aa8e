"""Inputs of the kernels in tests: logs, batches and records, sound and damaged, and the arrays made of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from kcompact import kernels
from kcompact.errors import CorruptBatchError
from kcompact.format import batch as batch_format
from kcompact.format.batch import Header, parse_batches, read_records, sealed, write_varint
from kcompact.format.block import Keys
from kcompact.format.codec import Codec, compress, decompress
from kcompact.kernels import (
    CODEC_MASK,
    COLUMNS,
    DONE,
    HEADER_BYTES,
    RECORDS_COUNT,
    SECTION_END,
    SECTION_START,
    Bytes,
    Table,
)
from kcompact.log import batch_headers
from tests.support import strategies
from tests.support.strategies import NOW

MAX_OFFSET = 2**63 - 1
LOG_NAME = f"{0:020d}.log"
K0, K1 = 0x0706050403020100, 0x0F0E0D0C0B0A0908


def array(data: bytes | bytearray) -> Bytes:
    return np.array(bytearray(data), np.uint8)


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )


def siphash128(data: bytes, key: bytes, c_rounds: int, d_rounds: int) -> bytes:
    """SipHash with 128 bits, after "SipHash: a fast short-input PRF" and its reference code."""
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
    """Return damaged bytes with correct checksums, up to the first bytes that are no batch."""
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
    count, _, _, code = kernels.parse_batches(array(data), len(data), base_offset, end_offset, -1, table)
    return table[:count], code


def headers_in(table: Table) -> list[Header]:
    return [batch_headers.header_of(row) for row in table.tolist()]


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
    """A record that Kafka's reader accepts, or nearly: some lengths have more bytes than needed, some are wrong."""
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
    """A batch with a right checksum and any content."""
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
    inflated_bytes: Bytes
    table: Table


def inflated(data: bytes) -> Inflated:
    """Return the arrays that the kernels read for whole batches. Raises CorruptBatchError where a codec does."""
    table, code = table_of(data)
    assert code == DONE
    inflated_bytes = bytearray()
    for row in table:
        if row[kernels.ATTRIBUTES] & CODEC_MASK and row[RECORDS_COUNT]:
            codec = Codec(int(row[kernels.ATTRIBUTES]) & CODEC_MASK)
            section = data[row[SECTION_START] : row[SECTION_END]]
            row[SECTION_START] = len(inflated_bytes)
            inflated_bytes += decompress(codec, section, file="f", position=0)
            row[SECTION_END] = len(inflated_bytes)
    return Inflated(array(data), array(inflated_bytes), table)


def keys_for(rows: int) -> Keys:
    return Keys(np.empty(rows, np.uint64), np.empty(rows, np.uint64), np.empty(rows, np.int64))


def most_records(table: Table) -> int:
    """Return the largest number of records that the sections can hold."""
    sections = (table[:, SECTION_END] - table[:, SECTION_START]) // kernels.MIN_RECORD_BYTES
    return int(np.minimum(table[:, RECORDS_COUNT], sections).sum())


any_batch = odd_batches() | strategies.batches()


def same_offsets(batches: list[bytes]) -> bytes:
    """Return batches one behind the other, with offsets that follow each other."""
    found, offset = [], 0
    for data in batches:
        (one,) = parse_batches(data, file="")
        found.append(offset.to_bytes(8, "big") + data[8:])
        offset += one.header.last_offset_delta + 1
    return b"".join(found)


def is_readable(data: bytes) -> bool:
    try:
        for one in parse_batches(data, file=""):
            read_records(one, file="")
    except CorruptBatchError:
        return False
    return True
