"""No key is called absent that a file shows: neither its bytes, nor what any codec inflates of them.

The files are whole, odd or damaged; what they show is found by the libraries alone, at every place where a stream can
begin.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import snappy
import zstandard

from kcompact.format.batch import HEADER_BYTES, Record, build, read_header, sealed
from kcompact.format.codec import Codec, compress
from kcompact.questions.search.keys import named_keys
from kcompact.questions.search.statement import SearchOutcome, listed, search
from tests.support.log_writer import DEFAULT_TIME
from tests.support.mutants import any_damage, legacy_entry
from tests.support.parameters import one_in

KEY, CROSSING = b"needle-1729", b"ne\x04ed"
"""The second shows where a key ends and a value of two bytes begins."""
LOG = f"{0:020d}.log"
XERIAL = bytes.fromhex("82534e4150505900")
FILES_OF_A_SEED = 20


def shown(data: bytes) -> Iterator[bytes]:
    """Yield the bytes, and what inflates from each place where a stream can begin, as far as it goes."""
    yield data
    for magic, opened in (
        (b"\x1f\x8b\x08", lambda: zlib.decompressobj(31)),
        (b"\x04\x22\x4d\x18", lz4.frame.LZ4FrameDecompressor),
        (b"\x28\xb5\x2f\xfd", lambda: zstandard.ZstdDecompressor().decompressobj()),
    ):
        for at in positions(data, magic):
            yield until_damage(opened(), data[at:])
    for at in positions(data, XERIAL):
        yield xerial(data[at + 16 :])


def positions(data: bytes, magic: bytes) -> Iterator[int]:
    at = data.find(magic)
    while at >= 0:
        yield at
        at = data.find(magic, at + 1)


def until_damage(stream: Any, data: bytes) -> bytes:
    found = b""
    try:
        for at in range(len(data)):
            found += stream.decompress(data[at : at + 1])
    except Exception:
        pass
    return found


def xerial(data: bytes) -> bytes:
    found = b""
    while len(data) >= 4:
        (size,) = struct.unpack_from(">i", data)
        try:
            found += snappy.uncompress(data[4 : 4 + size])
        except Exception:
            break
        data = data[4 + max(size, 0) :]
    return found


def record(chance: random.Random, offset: int) -> Record:
    """Return a record that may show a key: as its key, in a field, or across two fields."""
    fields: list[tuple[bytes | None, bytes | None]] = [
        *[(b"k", b"v"), (None, b"x" * 30)] * 3,
        *[(KEY, b"v"), (KEY, None), (b"of " + KEY, b"v"), (b"k", b"a" * 40 + KEY), (b"ne", b"ed")],
    ]
    key, value = chance.choice(fields)
    headers = ((b"trace", KEY),) if chance.random() < 0.05 else ()
    return Record(offset, DEFAULT_TIME, key, value, headers)


def odd_section(chance: random.Random, codec: Codec, section: bytes) -> bytes:
    """Return a section with more in it than its batch says, compressed."""
    more = build([Record(0, DEFAULT_TIME, KEY, b"v")])[HEADER_BYTES:]
    if chance.random() < 0.2:
        section += chance.choice([more, more[:-1], KEY, b"\0"])
    stored = compress(codec, section)
    if chance.random() < 0.3:
        skipped = struct.pack("<II", 0x184D2A50, len(KEY)) + KEY
        stored += chance.choice([KEY, skipped, b"\0", *(compress(each, more) for each in Codec)])
    return stored


def odd_batch(chance: random.Random, offset: int) -> bytes:
    """Return a batch with a right checksum, whose fields may contradict each other."""
    records = [record(chance, offset + number) for number in range(chance.choice([1, 1, 3]))]
    plain, codec = build(records), chance.choice(list(Codec))
    header, section = read_header(plain, file="", position=0), plain[HEADER_BYTES:]
    stored = odd_section(chance, codec, section) if chance.random() < 0.5 else compress(codec, section)
    header = header._replace(attributes=codec, length=HEADER_BYTES - 12 + len(stored))
    if chance.random() < 0.3:
        count = chance.choice([0, 0, len(records) - 1, len(records) + 1])
        header = header._replace(records_count=count)
    if chance.random() < 0.1:
        words = struct.unpack(">qq", KEY + b"     ")
        header = header._replace(base_timestamp=words[0], max_timestamp=words[1])
    if chance.random() < 0.1:
        header = header._replace(attributes=chance.randrange(8))
    return sealed(header, stored)


def odd_message(chance: random.Random, offset: int) -> bytes:
    """Return a message of an old format: a plain one, or one with others inside of it."""
    magic, codec = chance.choice([0, 1]), chance.choice([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
    wanted = record(chance, 0)
    inner = legacy_entry(0, b"first", b"x", magic=magic) + legacy_entry(1, wanted.key, wanted.value, magic=magic)
    torn = legacy_entry(2, KEY, b"x", magic=magic)
    inner += chance.choice([b"", b"", torn, torn[:-1], KEY, compress(Codec.GZIP, KEY)])
    if codec is Codec.NONE:
        return legacy_entry(offset, wanted.key, wanted.value, magic=magic)
    value = compress(codec, inner, magic=magic) + chance.choice([b"", b"", KEY, compress(codec, KEY, magic=magic)])
    return legacy_entry(offset + 1, chance.choice([None, None, KEY]), value, magic=magic, attributes=codec)


def sound_batch(chance: random.Random, offset: int) -> bytes:
    """Return a batch that shows no key."""
    return build([Record(offset, DEFAULT_TIME, b"k", b"v")], codec=chance.choice(list(Codec)))


def written(chance: random.Random) -> bytes:
    parts = []
    for number in range(chance.choice([1, 2, 3])):
        offset = 10 * number
        kind = chance.choice([odd_batch, odd_message, sound_batch])
        parts.append(kind(chance, offset))
    data = b"".join(parts)
    return any_damage(chance, data) if chance.random() < 0.4 else data


@pytest.mark.parametrize("seed", one_in(4, range(60)))
def test_no_key_is_absent_that_a_file_shows(tmp_path: Path, seed: int) -> None:
    chance = random.Random(f"grep {seed}")
    file = tmp_path / "orders-0" / LOG
    file.parent.mkdir()
    for _ in range(FILES_OF_A_SEED):
        data = written(chance)
        file.write_bytes(data)
        statement = search(
            listed([tmp_path]),
            named_keys([("", KEY), ("", CROSSING)]),
            salt=b"s",
            shows_salt=True,
            version="1",
            clock_ms=lambda: 5,
            memory_bytes=1 << 26,
        )
        for key, found in zip((KEY, CROSSING), statement.keys, strict=True):
            if found.outcome is SearchOutcome.ABSENT:
                assert not any(key in piece for piece in shown(data)), (key, data.hex())
