"""`clean.growth`: how much logs grow at worst, and that no log grows more than the bound says."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kcompact.clean.groups import count_groups, most_sizes, write_groups
from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.engine.in_process import InProcess
from kcompact.format import batch as batch_format
from kcompact.format.batch import HEADER_BYTES, Record, parse_batches, read_records, sealed
from kcompact.format.codec import Codec, compress, most_compressed_bytes
from kcompact.plan.partition import plan_partition
from tests.support import log_writer
from tests.support.log_writer import DEFAULT_TIME, LogSpec, SegmentSpec
from tests.support.staging import staging_at
from tests.support.strategies import HOUR, NOW

RANDOM = random.Random(10)
CODECS = list(Codec)


def noise(size_bytes: int) -> bytes:
    return RANDOM.randbytes(size_bytes)


def key_of(number: int) -> bytes:
    return b"k%d" % number


def batch_of(records: Sequence[Record], codec: Codec = Codec.NONE, **options: Any) -> bytes:
    return batch_format.build(records, codec=codec, **options)


def tombstones(count: int, *, spread_ms: int = 0, codec: Codec = Codec.NONE) -> list[bytes]:
    """The horizon that each batch gets makes each timestamp longer."""
    records = [Record(number, DEFAULT_TIME + number * spread_ms, key_of(number), None) for number in range(count)]
    return [batch_of(records, codec)]


def single_tombstones() -> list[bytes]:
    return [batch_of([Record(number, DEFAULT_TIME, key_of(number), None)]) for number in range(100)]


def far_ahead() -> list[bytes]:
    """A time long after the horizon, as a producer with a wrong clock writes it."""
    return [batch_of([Record(number, 2**62, key_of(number), None) for number in range(200)])]


def first_is_superseded() -> list[bytes]:
    """The timestamp of the first record that is left becomes the base: it is far from all others."""
    times = [DEFAULT_TIME, 0, *[DEFAULT_TIME] * 200]
    records = [Record(number, time, key_of(number), b"v") for number, time in enumerate(times)]
    return [batch_of(records), batch_of([Record(len(times), DEFAULT_TIME, key_of(0), b"v")])]


def append_time() -> list[bytes]:
    return [batch_of([Record(n, DEFAULT_TIME, key_of(n), None) for n in range(100)], log_append_time=True)]


def names_in_latin1() -> list[bytes]:
    """Kafka replaces each of these bytes by three."""
    records = [Record(n, DEFAULT_TIME, key_of(n), b"v", ((b"\xff" * 60, None),)) for n in range(50)]
    records.append(Record(len(records), DEFAULT_TIME, key_of(0), b"v"))
    data = batch_of(records)
    # The writer has replaced them already: put the old bytes back, in a name that is as long as the new one.
    (one,) = parse_batches(data, file="")
    section = bytes(one.data[HEADER_BYTES:]).replace("�".encode() * 60, b"\xff" * 180)
    return [sealed(one.header, section)]


def better_compressed(codec: Codec) -> list[bytes]:
    """A producer that compresses better than the default level."""
    words = [noise(6).hex().encode() for _ in range(500)]
    records = [
        Record(number, DEFAULT_TIME, key_of(number), b" ".join(RANDOM.choices(words, k=20)) if number else None)
        for number in range(400)
    ]
    (one,) = parse_batches(batch_of(records), file="")
    plain = bytes(one.data[HEADER_BYTES:])
    if codec is Codec.ZSTD:
        import zstandard

        section = zstandard.ZstdCompressor(level=19).compress(plain)
    elif codec is Codec.GZIP:
        deflater = zlib.compressobj(9, zlib.DEFLATED, 31)
        section = deflater.compress(plain) + deflater.flush()
    else:
        import lz4.frame

        section = lz4.frame.compress(plain, compression_level=12, block_size=5, block_linked=False)
    header = one.header._replace(attributes=codec, length=HEADER_BYTES - 12 + len(section))
    return [sealed(header, section)]


def incompressible(codec: Codec) -> list[bytes]:
    """Nothing to save: the codec's own bytes are all that is added."""
    records = [Record(number, DEFAULT_TIME, noise(300), None) for number in range(300)]
    return [batch_of(records, codec)]


def legacy(magic: int) -> list[bytes]:
    """One message each, which becomes a batch of version 2."""

    def message(offset: int) -> bytes:
        body = struct.pack(">bb", magic, 0) + (struct.pack(">q", DEFAULT_TIME) if magic else b"")
        body += struct.pack(">i", 3) + b"k%02d" % offset + struct.pack(">i", -1)
        return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body

    return [message(offset) for offset in range(100)]


def legacy_wrapped(codec: Codec) -> list[bytes]:
    inner = b"".join(legacy(1))
    body = struct.pack(">bb", 1, codec) + struct.pack(">q", DEFAULT_TIME) + struct.pack(">i", -1)
    value = compress(codec, inner, magic=1)
    body += struct.pack(">i", len(value)) + value
    return [struct.pack(">qiI", 99, 4 + len(body), zlib.crc32(body)) + body]


GROWING: list[tuple[str, Callable[[], list[bytes]], float]] = [
    # What the log is made of, and how large it becomes at least, as a share of its size.
    ("one tombstone in each batch", single_tombstones, 1.04),
    ("a batch of tombstones", lambda: tombstones(1000), 1.25),
    ("a batch of tombstones, one a second", lambda: tombstones(1000, spread_ms=1000), 1.07),
    ("tombstones from the far future", far_ahead, 1.69),
    ("the first record is superseded", first_is_superseded, 1.38),
    ("tombstones with LogAppendTime", append_time, 1.27),
    ("header names that are not UTF-8", names_in_latin1, 2.7),
    ("zstd, compressed well", lambda: better_compressed(Codec.ZSTD), 1.0),
    ("gzip, compressed well", lambda: better_compressed(Codec.GZIP), 0.99),
    ("lz4, compressed well", lambda: better_compressed(Codec.LZ4), 1.15),
    *((f"incompressible, {codec.name}", lambda codec=codec: incompressible(codec), 0.98) for codec in CODECS),
    *((f"tombstones, {codec.name}", lambda codec=codec: tombstones(1000, codec=codec), 0.99) for codec in CODECS[1:]),
    ("messages of magic 0", lambda: legacy(0), 2.6),
    ("messages of magic 1", lambda: legacy(1), 2.0),
    *((f"magic 1 in {c.name}", lambda c=c: legacy_wrapped(c), 0.4) for c in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)),
]


@pytest.mark.parametrize(("make", "grows_to"), [row[1:] for row in GROWING], ids=[row[0] for row in GROWING])
def test_how_much_a_log_grows_at_worst(
    make: Callable[[], list[bytes]], grows_to: float, compiled: bool, tmp_path: Path
) -> None:
    batches = make()
    before = sum(map(len, batches))
    bound, written = bound_and_written(log_of(batches), tmp_path)
    assert written >= grows_to * before, f"{written / before:.3f}"
    assert written <= bound


def log_of(batches: Sequence[bytes], *, segment_bytes: int = 1 << 30) -> LogSpec:
    """A log with these batches in one segment, and an empty active one."""
    *_, last = parse_batches(batches[-1], file="")
    segments = (
        SegmentSpec(base_offset=0, batches=tuple(batches)),
        SegmentSpec(base_offset=last.header.next_offset),
    )
    settings = {"min.cleanable.dirty.ratio": "0", "segment.bytes": str(segment_bytes), "index.interval.bytes": "100"}
    return LogSpec(segments=segments, now_ms=NOW, settings=settings)


def bound_and_written(spec: LogSpec, scratch: Path) -> tuple[int, int]:
    """Return the bound of a log's only group, and the size of the `.log` that is written; check all other sizes."""
    directory = log_writer.write(spec, scratch / "logs")
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms)
    executor = InProcess(parallelism=2)
    # Two splits, if there are two batches with an index entry between them.
    cleaning = prepare_clean(plan, executor, tuning=Tuning(split_bytes=2000, task_bytes=4000))
    (most,) = most_sizes(cleaning)
    (counted,) = count_groups(cleaning).sizes
    staging = scratch / "staging"
    staging.mkdir()
    (segment,) = write_groups(cleaning, [0], staging_at(staging)).segments
    log, *others = segment.files
    assert counted.log_bytes == log.size_bytes
    assert counted.indexes == tuple(file.size_bytes for file in others)
    assert all(size <= bound for size, bound in zip(counted.indexes, most.indexes, strict=True))
    assert len(counted.parts) == len(most.parts)
    assert counted.appended_bytes <= most.appended_bytes
    return most.log_bytes, log.size_bytes


@pytest.mark.parametrize("size_bytes", [0, 1, 100, 32_767, 32_769, 65_537, 1 << 20])
@pytest.mark.parametrize("codec", CODECS)
def test_no_codec_makes_more_of_noise(codec: Codec, size_bytes: int) -> None:
    assert len(compress(codec, noise(size_bytes))) <= most_compressed_bytes(size_bytes)


SHAPES = [
    pytest.param(count, codec, marks=pytest.mark.slow if count in (2, 10, 100) else (), id=f"{count}-{codec.name}")
    for count in (1, 2, 10, 100, 1000)
    for codec in CODECS
]


@pytest.mark.parametrize(("count", "codec"), SHAPES)
def test_no_log_grows_more_than_its_bound(count: int, codec: Codec, compiled: bool, tmp_path: Path) -> None:
    batches = batches_that_grow(count, codec)
    bound, written = bound_and_written(log_of(batches), tmp_path)
    assert written <= bound
    assert read_records(next(parse_batches(batches[0], file="")), file="")


@cache
def batches_that_grow(count: int, codec: Codec) -> tuple[bytes, ...]:
    """Batches of one size, with all that makes them grow: timestamps, tombstones, names, horizons, gaps."""
    chance = random.Random(count * 10 + codec)
    offset, batches = 0, []
    for _ in range(max(2, min(40, 1000 // count))):
        records = []
        for _ in range(count):
            headers = tuple(
                (chance.randbytes(chance.choice([0, 3, 64])), chance.choice([None, b"x"])) for _ in range(2)
            )
            records.append(
                Record(
                    offset,
                    chance.choice([-1, 0, DEFAULT_TIME, DEFAULT_TIME + chance.randrange(HOUR), 2**62]),
                    b"%d" % chance.randrange(count * 10),
                    chance.choice([None, b"", b"value", chance.randbytes(chance.choice([10, 64, 500]))]),
                    headers if chance.random() < 0.2 else (),
                )
            )
            offset += 1
        horizon = chance.choice([None, None, 0, NOW + HOUR])
        header = next(parse_batches(batch_of(records, codec), file="")).header
        batches.append(batch_format.rebuild(header, records, delete_horizon_ms=horizon))
    return tuple(batches)
