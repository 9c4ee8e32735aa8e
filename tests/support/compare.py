"""Compares a directory that kcompact cleaned with what Kafka's own cleaner left.

Uncompressed files must be the same bytes. A compressed section depends on the library that wrote it, so there
batches are compared field by field and record by record, and the indexes of such a file by rule against its own log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kcompact.config.layers import topic_config
from kcompact.config.settings import Override, TopicConfig
from kcompact.format.batch import Batch, Record, read_records
from kcompact.format.checkpoint import parse_offset_checkpoint
from kcompact.format.index import DEFAULT_INTERVAL_BYTES, IndexBuilder
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE
from kcompact.log.segment_reader import batches
from kcompact.release import NEWEST, Release
from tests.support.log_writer import NO_OVERRIDES

NOT_COMPARED = {".lock"}


def config_of(topic: str, settings: dict[str, str], release: Release = NEWEST) -> TopicConfig:
    overrides = [Override(name=name, value=value) for name, value in settings.items()]
    return topic_config(topic, overrides=overrides, own=NO_OVERRIDES, release=release)


def files(directory: Path) -> dict[str, Path]:
    return {
        str(path.relative_to(directory)): path
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in NOT_COMPARED
    }


def differences(
    ours: Path,
    theirs: Path,
    *,
    mtimes_ms: dict[str, int] | None = None,
    index_interval_bytes: int = DEFAULT_INTERVAL_BYTES,
    same_indexes: bool = True,
) -> list[str]:
    """Return what differs between two log directories, a line each; empty when they are equal.

    Without `same_indexes` our indexes may differ from Kafka's if they are what their log asks for.
    """
    return list(_differences(ours, theirs, mtimes_ms or {}, index_interval_bytes, same_indexes))


def _differences(
    ours: Path, theirs: Path, mtimes_ms: dict[str, int], interval_bytes: int, same_indexes: bool
) -> Iterator[str]:
    mine, other = files(ours), files(theirs)
    for name in sorted(mine.keys() | other.keys()):
        if name not in mine:
            yield f"{name}: Kafka leaves it, we do not"
        elif name not in other:
            yield f"{name}: we leave it, Kafka does not"
        elif name.endswith("-checkpoint") and "/" not in name:
            if entries(mine[name]) != entries(other[name]):
                yield f"{name}: {entries(mine[name])}, Kafka {entries(other[name])}"
        elif name == CLEAN_SHUTDOWN_FILE:
            continue  # The oracle's own shutdown writes it; its content means nothing.
        elif mine[name].read_bytes() != other[name].read_bytes():
            yield from _file_differences(name, mine[name], other[name], interval_bytes, same_indexes)
    for name, mtime_ms in mtimes_ms.items():
        if name in mine and mine[name].stat().st_mtime_ns // 1_000_000 != mtime_ms:
            yield f"{name}: modified at {mine[name].stat().st_mtime_ns // 1_000_000}, Kafka {mtime_ms}"
    leftovers = [path for path in ours.rglob("*") if ".kcompact-" in path.name]
    yield from (f"{path.name}: left behind" for path in leftovers)


def entries(checkpoint: Path) -> dict[str, int]:
    parsed = parse_offset_checkpoint(checkpoint.read_bytes(), file=str(checkpoint))
    return {str(partition): offset for partition, offset in parsed.items()}


def _file_differences(name: str, mine: Path, other: Path, interval_bytes: int, same_indexes: bool) -> Iterator[str]:
    log = mine.with_suffix(".log")
    is_compressed = log.exists() and any(batch.header.codec_id for batch in batches(log))
    if mine.suffix == ".log" and is_compressed:
        yield from _log_differences(name, mine, other)
    elif mine.suffix in (".index", ".timeindex") and (is_compressed or not same_indexes):
        if mine.read_bytes() != index_of(log, interval_bytes)[0 if mine.suffix == ".index" else 1]:
            yield f"{name}: not what its log asks for"
    else:
        yield f"{name}: {mine.stat().st_size} bytes differ from Kafka's {other.stat().st_size}"


def _log_differences(name: str, mine: Path, other: Path) -> Iterator[str]:
    ours, theirs = [[comparable(batch, path) for batch in batches(path)] for path in (mine, other)]
    if len(ours) != len(theirs):
        yield f"{name}: {len(ours)} batches, Kafka {len(theirs)}"
    for number, (left, right) in enumerate(zip(ours, theirs, strict=False)):
        if left != right:
            yield f"{name}: batch {number}:\n  ours  {left[0]}\n  Kafka {right[0]}"
            return


def comparable(batch: Batch, path: Path) -> tuple[dict[str, int], list[Record]]:
    """Return a batch without what depends on the compression library."""
    header = batch.header._asdict()
    if batch.header.codec_id and batch.header.records_count:
        del header["length"], header["crc"]
    return header, read_records(batch, file=str(path))


def index_of(log: Path, interval_bytes: int = DEFAULT_INTERVAL_BYTES) -> tuple[bytes, bytes]:
    """Return the indexes that a segment must have, by Kafka's rule."""
    builder = IndexBuilder(int(log.stem), interval_bytes)
    for batch in batches(log):
        builder.append(batch.header.last_offset, batch.position, batch.header.size_bytes, batch.header.max_timestamp)
    return builder.finish()
