"""A key is found wherever it is planted, and no damage makes it absent."""

from __future__ import annotations

import errno
import os
import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kcompact.errors import KcompactError
from kcompact.format.batch import HEADER_BYTES, Batch, Record, build, parse_batches, read_records, verify_crc
from kcompact.format.codec import Codec, compress, decompress
from kcompact.format.legacy import PREFIX_BYTES, read_entries
from kcompact.questions.search.findings import Place
from kcompact.questions.search.keys import named_keys
from kcompact.questions.search.statement import SearchOutcome, Statement, listed, search
from kcompact.swap.replace import replace_segments
from tests.support.command_line import clean, partition
from tests.support.log_writer import DEFAULT_TIME
from tests.support.mutants import any_damage, legacy_entry
from tests.support.parameters import one_in
from tests.support.simulated_replicas import random_partition

KEY = b"needle-1729"
OTHERS = [b"needle-%d" % number for number in range(1000, 1500)]
LOG = f"{0:020d}.log"
UNIQUE = "0123456789abcdef0123456789abcdef"


def searched(path: Path, *keys: bytes, memory_bytes: int = 1 << 26) -> Statement:
    return search(
        listed([path]),
        named_keys([("", key) for key in keys or [KEY]]),
        salt=b"s",
        shows_salt=True,
        version="1",
        clock_ms=lambda: 5,
        memory_bytes=memory_bytes,
    )


def outcome(path: Path, *keys: bytes) -> SearchOutcome:
    return searched(path, *keys).keys[0].outcome


FIELDS: dict[str, Callable[[int], Record]] = {
    "key": lambda offset: Record(offset, DEFAULT_TIME, KEY, b"x"),
    "tombstone": lambda offset: Record(offset, DEFAULT_TIME, KEY, None),
    "in-key": lambda offset: Record(offset, DEFAULT_TIME, b"group/" + KEY, None),
    "in-value": lambda offset: Record(offset, DEFAULT_TIME, None, b"a" * 300 + KEY + b"b" * 300),
    "in-headers": lambda offset: Record(
        offset, DEFAULT_TIME, b"k", b"v", ((b"name", None), (b"trace", b"of " + KEY), (b"x", b""))
    ),
}


def planted(chance: random.Random, place: str, offset: int) -> bytes:
    """Return a batch with the key in some field of some record: of any codec, of a transaction or not."""
    records = [Record(offset + number, DEFAULT_TIME, b"k%d" % number, b"v" * number) for number in range(5)]
    number = chance.randrange(5)
    records[number] = FIELDS[place](offset + number)
    is_transactional = chance.random() < 0.5
    return build(
        records,
        codec=chance.choice(list(Codec)),
        producer_id=7 if is_transactional else -1,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        transactional=is_transactional,
    )


def planted_legacy(chance: random.Random, place: str, offset: int) -> bytes:
    """Return the same in an old format: a message, or one that wraps several."""
    record, magic = FIELDS[place](offset), chance.choice([0, 1])
    codec = chance.choice([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
    if codec is Codec.NONE:
        return legacy_entry(offset, record.key, record.value, magic=magic)
    inner = legacy_entry(0 if magic else offset, b"before", b"x", magic=magic)
    inner += legacy_entry(1 if magic else offset + 1, record.key, record.value, magic=magic)
    return legacy_entry(offset + 1, None, compress(codec, inner, magic=magic), magic=magic, attributes=codec)


HOMES = [
    f"orders-0/{1 << 20:020d}.log",
    f"orders-0/{1 << 20:020d}.log.deleted",
    f"orders-0/{1 << 20:020d}.log.cleaned",
    f"orders-0/{1 << 20:020d}.log.swap",
    f"orders-0/.kcompact-0123456789abcdef/{1 << 20:020d}.log-1",
    f"other-3.{UNIQUE}-delete/{LOG}",
    f"other-3.{UNIQUE}-stray/{LOG}",
    f"other-3.{UNIQUE}-future/{LOG}",
    f"__consumer_offsets-7/{LOG}",
    f"kept/orders-0/{LOG}",
    f"__cluster_metadata-0/{7:020d}-{1:010d}.checkpoint",
]


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 8))])
def test_a_planted_key_is_found(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    simulated = random_partition(tmp_path / "brokers", seed, outages=True, forks=True, steps=30)
    simulated.directories()
    logs = tmp_path / "brokers"
    assert outcome(logs) is SearchOutcome.ABSENT, searched(logs).not_proven
    for place in FIELDS:
        home = chance.choice(HOMES)
        file = simulated.replicas[0].path / home
        is_old = place != "in-headers" and home.endswith(".log") and chance.random() < 0.4
        data = (planted_legacy if is_old else planted)(chance, place, 1 << 20)
        before = build([Record(0, DEFAULT_TIME, b"first", b"x" * chance.randrange(99_000))])
        is_in_the_middle = chance.random() < 0.5 and "orders-0/0" not in home
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(before + data if is_in_the_middle else data)
        many = chance.random() < 0.5
        (found, *others) = searched(logs, KEY, *(OTHERS if many else ())).keys
        expected = SearchOutcome.TOMBSTONE_ONLY if place == "tombstone" else SearchOutcome.PRESENT
        assert (found.outcome, found.hits) == (expected, {Place(place): 1}), (place, home)
        assert found.places[0].file == file
        assert {each.outcome for each in others} <= {SearchOutcome.ABSENT}
        file.unlink()
    assert outcome(logs) is SearchOutcome.ABSENT


@pytest.mark.parametrize("place", FIELDS)
@pytest.mark.parametrize("seed", one_in(2, range(12)))
def test_damage_never_makes_a_key_absent(tmp_path: Path, seed: int, place: str) -> None:
    chance = random.Random(f"{seed} {place}")
    before = build([Record(0, DEFAULT_TIME, b"first", b"x" * 50)], codec=chance.choice(list(Codec)))
    after = build([Record(20, DEFAULT_TIME, b"last", b"y" * 50)], codec=chance.choice(list(Codec)))
    is_old = place != "in-headers" and chance.random() < 0.3
    data = before + (planted_legacy if is_old else planted)(chance, place, 10) + after
    file = tmp_path / "orders-0" / LOG
    file.parent.mkdir()
    for _ in range(6):
        damaged = any_damage(chance, data)
        file.write_bytes(damaged)
        if may_be_without_key(damaged):
            continue
        assert outcome(tmp_path) in (SearchOutcome.PRESENT, SearchOutcome.NOT_PROVEN), damaged.hex()


def may_be_without_key(data: bytes) -> bool:
    """Return whether bytes are whole batches, each with a right checksum, of which none has the key as more than key.

    Zeros may follow them.
    """
    position, has_value = 0, False
    try:
        for batch in parse_batches(data, file=""):
            verify_crc(batch, file="")
            for record in read_records(batch, file=""):
                has_value = has_value or (
                    KEY in repr(record).encode() and (record.key != KEY or record.value is not None)
                )
            position = batch.position + batch.header.size_bytes
    except KcompactError:
        return not any(data[position:]) and not has_value
    return not has_value


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_what_still_inflates_of_a_damaged_batch_is_searched(tmp_path: Path, codec: Codec) -> None:
    data = bytearray(build([FIELDS["key"](0), Record(1, DEFAULT_TIME, b"k", b"v" * 500)], codec=codec))
    struct.pack_into(">I", data, 17, 1)  # The checksum.
    file = tmp_path / "orders-0" / LOG
    file.parent.mkdir()
    file.write_bytes(data)
    (found,) = searched(tmp_path).keys
    # A codec may leave short fields as they are, so the key can be in the compressed bytes too.
    assert (found.outcome, set(found.hits)) == (SearchOutcome.PRESENT, {Place.IN_BYTES})
    assert 0 in {hit.position for hit in found.places}


@pytest.mark.parametrize("magic", [0, 1])
def test_what_still_inflates_of_a_damaged_old_batch_is_searched(tmp_path: Path, magic: int) -> None:
    inner = compress(Codec.GZIP, legacy_entry(0, KEY, b"x", magic=magic), magic=magic)
    data = bytearray(legacy_entry(0, None, inner, magic=magic, attributes=Codec.GZIP))
    struct.pack_into(">I", data, 12, 1)
    assert PREFIX_BYTES == 18
    file = tmp_path / "orders-0" / LOG
    file.parent.mkdir()
    file.write_bytes(data)
    assert outcome(tmp_path) is SearchOutcome.PRESENT


def test_a_torn_batch_is_searched_as_far_as_it_goes(tmp_path: Path) -> None:
    chance = random.Random(1)
    records = [FIELDS["key"](0), *(Record(n, DEFAULT_TIME, b"k", chance.randbytes(99_000)) for n in range(1, 9))]
    file = tmp_path / "orders-0" / LOG
    file.parent.mkdir()
    for codec in Codec:
        data = build(records, codec=codec)
        file.write_bytes(data[: len(data) * 3 // 4])
        assert outcome(tmp_path) is SearchOutcome.PRESENT, codec
        file.write_bytes(build([Record(0, DEFAULT_TIME, b"k", b"v")]) + data[:61])
        assert outcome(tmp_path) is SearchOutcome.NOT_PROVEN, codec


@pytest.mark.parametrize("size_bytes", [1 << 27, pytest.param(1 << 30, marks=pytest.mark.slow)])
def test_reserved_space_hides_nothing(tmp_path: Path, size_bytes: int) -> None:
    """The hole is larger than the memory."""
    file = tmp_path / "orders-0" / LOG
    file.parent.mkdir()
    batch = build([Record(0, DEFAULT_TIME, b"k", b"v")])
    file.write_bytes(batch)
    with file.open("r+b") as opened:
        opened.truncate(size_bytes)  # A hole.
    assert outcome(tmp_path) is SearchOutcome.ABSENT
    file.write_bytes(batch + bytes(100) + build([Record(5, DEFAULT_TIME, b"k", b"v")]))
    assert outcome(tmp_path) is SearchOutcome.NOT_PROVEN


def test_a_batch_that_is_too_large_is_not_proven(tmp_path: Path) -> None:
    file = tmp_path / "orders-0" / LOG
    file.parent.mkdir()
    file.write_bytes(build([Record(0, DEFAULT_TIME, b"k", bytes(4 << 20) + KEY)], codec=Codec.GZIP))
    statement = searched(tmp_path, memory_bytes=1 << 20)
    assert statement.keys[0].outcome is SearchOutcome.NOT_PROVEN
    assert "memory" in statement.not_proven[0].problem or "inflates" in statement.not_proven[0].problem
    assert outcome(tmp_path) is SearchOutcome.PRESENT


def test_every_state_of_a_cleaning_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Staged, replaced and kept files: each holds what it held, and none is unknown."""
    directory = partition(tmp_path / "logs", f"log\n0: [{KEY.decode()}=1 b=2](zstd)\n3: {KEY.decode()}=3 c=4\n6: a=6\n")
    states: list[Path] = []

    def watched(*arguments: Any, **options: Any) -> None:
        def copy(_: object) -> None:
            states.append(tmp_path / f"state-{len(states)}")
            shutil.copytree(tmp_path / "logs", states[-1])

        copy(None)
        replace_segments(*arguments, **options, after_step=copy)

    monkeypatch.setattr("kcompact.cleaner.partition.replace_segments", watched)
    ran = clean("--force", "--keep-replaced", tmp_path / "kept", directory)
    assert ran.code == 0, ran.err
    assert len(states) > 10
    for state in [*states, tmp_path / "logs", tmp_path / "kept"]:
        statement = searched(state)
        assert not statement.not_proven, [(file.path, file.problem) for file in statement.not_proven]
        assert statement.keys[0].outcome is SearchOutcome.PRESENT
    kept = searched(tmp_path / "kept").keys[0]
    assert kept.hits == {Place.KEY: 2}
    assert searched(tmp_path).keys[0].hits[Place.KEY] > 2


@pytest.mark.parametrize("seed", one_in(4, range(16)))
def test_all_places_are_counted_once(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts are those of reading each record by the definition, however batches and codecs are mixed."""
    chance = random.Random(seed)
    monkeypatch.setattr("kcompact.log.records.RUN_RECORDS", chance.choice([40, 1 << 16]))
    monkeypatch.setattr("kcompact.questions.search.finder.SLICE_BYTES", chance.choice([100, 1 << 18]))
    codecs = chance.choice([[Codec.NONE], [Codec.NONE, Codec.LZ4], list(Codec), [Codec.ZSTD]])
    data, offset = b"", 0
    while offset < 800:
        if chance.random() < 0.1 and seed % 2:
            data, offset = (
                data + planted_legacy(chance, chance.choice(["key", "tombstone", "in-value"]), offset),
                offset + 2,
            )
        else:
            records = [any_record(chance, offset + number) for number in range(chance.choice([1, 1, 30]))]
            data, offset = data + build(records, codec=chance.choice(codecs)), offset + len(records)
    file = tmp_path / "orders-0" / LOG
    file.parent.mkdir()
    file.write_bytes(data)
    batches = list(parse_batches(data, file=""))
    records = [record for batch in batches for record in read_records(batch, file="")]
    many = [b"k%d" % number for number in range(12)] + [b"v1", b"x1", b"h3", b"v", b"v2.v2.", b"0.v"]
    for keys in ([KEY, b"k1"], [KEY, *many]):
        found = [{str(place): count for place, count in each.hits.items()} for each in searched(tmp_path, *keys).keys]
        expected = [counted(records, key) for key in keys]
        for key, hits in zip(keys, expected, strict=True):
            if others := shown(data, batches, key) - sum(hits.values()):
                hits["in-bytes"] = others
        assert found == expected


def any_record(chance: random.Random, offset: int) -> Record:
    key = None if chance.random() < 0.1 else b"k%d" % chance.randrange(30)
    value = None if chance.random() < 0.2 else b"v%d." % chance.randrange(50) * chance.choice([0, 1, 3])
    names = [b"h%d" % chance.randrange(9) for _ in range(chance.choice([0, 0, 2]))]
    headers = tuple((name, chance.choice([None, b"", b"x%d" % chance.randrange(20)])) for name in names)
    return Record(offset, DEFAULT_TIME, key, value, headers)


def counted(records: Iterable[Record], key: bytes) -> dict[str, int]:
    """Return how often a key is in what, by the definition."""
    hits: Counter[str] = Counter()
    for record in records:
        if record.key == key:
            hits["key" if record.value is not None else "tombstone"] += 1
        else:
            hits["in-key"] += occurrences(record.key, key)
        hits["in-value"] += occurrences(record.value, key)
        hits["in-headers"] += sum(occurrences(part, key) for header in record.headers for part in header)
    return {place: count for place, count in hits.items() if count}


def shown(data: bytes, batches: Iterable[Batch], key: bytes) -> int:
    """Return how often bytes show a key: as they are stored, and inflated; what a batch shows as both counts once."""
    found = 0
    for batch in batches:
        start, end = batch.position, batch.position + batch.header.size_bytes
        stored = sum(data.startswith(key, at) for at in range(start, end))
        found += occurrences(inflated(batch), key) or stored
    return found


def inflated(batch: Batch) -> bytes:
    """Return the inflated section of a batch, nothing of one that is not compressed."""
    if not batch.header.codec_id:
        return b""
    if batch.header.magic == 2:
        return decompress(Codec(batch.header.codec_id), batch.data[HEADER_BYTES:], file="")
    return read_entries(batch.data, max_bytes=1 << 20, file="", position=0).data


def occurrences(field: bytes | None, key: bytes) -> int:
    return sum(field.startswith(key, at) for at in range(len(field))) if field and key in field else 0


@pytest.mark.parametrize(("lost", "expected"), [(0, SearchOutcome.PRESENT), (1, SearchOutcome.NOT_PROVEN)])
def test_what_a_failing_disk_gives_back_is_searched(
    tmp_path: Path, lost: int, expected: SearchOutcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [build([Record(0, DEFAULT_TIME, b"k", bytes(99_000))]), build([FIELDS["key"](1)], codec=Codec.LZ4)]
    file = tmp_path / "orders-0" / LOG
    file.parent.mkdir()
    file.write_bytes(b"".join(batches))
    start = (0, len(batches[0]))[lost] + 70
    read, read_several = os.pread, os.preadv

    def fails(position: int, size: int) -> None:
        if position <= start < position + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def pread(descriptor: int, size: int, position: int) -> bytes:
        fails(position, size)
        return read(descriptor, size, position)

    def preadv(descriptor: int, buffers: list[memoryview], position: int) -> int:
        fails(position, sum(map(len, buffers)))
        return read_several(descriptor, buffers, position)

    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(os, "preadv", preadv)
    statement = searched(tmp_path)
    assert statement.keys[0].outcome is expected
    (doubtful,) = statement.not_proven
    assert "Input/output error" in doubtful.problem
    assert doubtful.sha256 == ""
