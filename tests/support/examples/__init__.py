"""The directories of the examples in the docs, from the text files beside this one.

A file holds partitions. `log ...` starts one in the language of `log_dsl`. If it has settings of topics, such as
`cleanup.policy=compact`, a metadata log beside the partitions has them. Its `now` is the time of the last cleaning.
`listing ...` starts one that is known from an `ls -l` only: a line has base offset, size of the `.log`, of the
`.index`, of the `.timeindex` and of the `.snapshot`, and the time the segment was last modified. Its files get exactly
these sizes, with batches that have a header and a hole for the records, so that they take no room and can be planned,
inspected, but not verified or cleaned.
The words after `listing` are settings: `name`, `checkpoint`, and `batch`, the size of its batches in bytes.
A `snapshot OFFSET BYTES` line is a producer snapshot that belongs to no segment of the listing, or to its log end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from kcompact.config.metadata_log import METADATA_DIRECTORY
from kcompact.format.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, Header, sealed
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, build_offset_checkpoint
from kcompact.format.index import TIME_ENTRY_BYTES, IndexBuilder
from kcompact.format.names import TopicPartition, index_name, log_name, snapshot_name, time_index_name
from kcompact.format.producer_snapshot import ENTRY_BYTES, ProducerEntry
from kcompact.format.properties import encode_uuid
from tests.support import log_dsl, log_writer, metadata_log, reference_cleaner
from tests.support.broker_files import build_snapshot
from tests.support.index_entries import TIME_ENTRY
from tests.support.metadata_records import MetadataRecord

HERE = Path(__file__).parent
SNAPSHOT_HEADER_BYTES = 10


def names() -> list[str]:
    return sorted(file.stem for file in HERE.glob("*.txt"))


def build(name: str, log_dir: Path) -> Path:
    """Write the example into a new log directory and return it."""
    log_dir.mkdir(parents=True)
    checkpoints: dict[TopicPartition, int] = {}
    high_watermarks: dict[TopicPartition, int] = {}
    is_lone = False
    cleaned_ms = 0
    records: list[MetadataRecord] = []
    for text in _partitions((HERE / f"{name}.txt").read_text(encoding="utf-8")):
        if text.startswith("listing "):
            listing = Listing.parse(text)
            listing.write(log_dir)
            partition, checkpoint, high_watermark = listing.topic_partition, listing.checkpoint, listing.end_offset
            is_lone = True  # The listing is that of a running broker: its active segment has indexes with zeros.
        else:
            spec = log_dsl.parse(text)
            is_lone = is_lone or spec.lone
            topic_id = spec.name.encode()[:16].ljust(16)
            spec = replace(spec, topic_id=encode_uuid(topic_id))
            if spec.settings:
                records += metadata_log.topic(spec.topic_partition.topic, topic_id, **spec.settings)
            log_writer.write(replace(spec, checkpoint=None, high_watermark=None), log_dir)
            partition, checkpoint = spec.topic_partition, spec.checkpoint
            cleaned_ms = max(cleaned_ms, spec.now_ms)
            high_watermark = reference_cleaner.log_end(spec) if spec.high_watermark is None else spec.high_watermark
        high_watermarks[partition] = high_watermark
        if checkpoint is not None:
            checkpoints[partition] = checkpoint
    if records:
        metadata_log.write(log_dir, {})
        log_writer.write_segment(log_dir / METADATA_DIRECTORY, 0, [metadata_log.batches(records, each=len(records))])
    if checkpoints:
        (log_dir / CLEANER_OFFSET_CHECKPOINT).write_bytes(build_offset_checkpoint(checkpoints))
        os.utime(log_dir / CLEANER_OFFSET_CHECKPOINT, ns=(cleaned_ms * 1_000_000,) * 2)
    if not is_lone:
        (log_dir / REPLICATION_OFFSET_CHECKPOINT).write_bytes(build_offset_checkpoint(high_watermarks))
    return log_dir


def _partitions(text: str) -> Iterator[str]:
    lines: list[str] = []
    for raw in text.splitlines():
        line = raw.partition("#")[0].rstrip()
        if line.startswith(("log ", "listing ")) and lines:
            yield "\n".join(lines)
            lines = []
        if line:
            lines.append(line)
    yield "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A segment as a listing shows it; an index of None has the size that its batches give it."""

    base_offset: int
    log_bytes: int
    index_bytes: int | None
    time_index_bytes: int | None
    snapshot_bytes: int | None
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A partition of which only the listing is known.

    `log_writer` cannot write it: the listing gives sizes, not records. The files here have exactly these sizes, and the
    logs are sparse: a header for each batch and nothing after it. Only in the active segment are the checksums right.
    """

    name: str
    segments: tuple[Listed, ...]
    snapshots: dict[int, int]
    end_offset: int
    checkpoint: int | None
    batch_bytes: int

    @property
    def topic_partition(self) -> TopicPartition:
        parsed = TopicPartition.parse(self.name)
        assert parsed is not None, self.name
        return parsed

    @staticmethod
    def parse(text: str) -> Listing:
        head, *lines = text.splitlines()
        words = dict(word.split("=") for word in head.split()[1:])
        snapshots = {int(line.split()[1]): int(line.split()[2]) for line in lines if line.startswith("snapshot")}
        segments = tuple(_listed(line.split()) for line in lines if not line.startswith("snapshot"))
        return Listing(
            name=words["name"],
            segments=segments,
            snapshots=snapshots,
            end_offset=int(words["end"]),
            checkpoint=int(words["checkpoint"]) if "checkpoint" in words else None,
            batch_bytes=int(words["batch"]),
        )

    def write(self, log_dir: Path) -> None:
        directory = log_dir / self.name
        directory.mkdir()
        ends = [*(segment.base_offset for segment in self.segments[1:]), self.end_offset]
        rolled_ms = self.segments[0].modified_ms
        for segment, end_offset in zip(self.segments, ends, strict=True):
            self._write_segment(directory, segment, end_offset)
            if segment.snapshot_bytes is not None:
                self._write_snapshot(directory, segment.base_offset, segment.snapshot_bytes, rolled_ms)
            rolled_ms = segment.modified_ms
        for offset, size_bytes in self.snapshots.items():
            self._write_snapshot(directory, offset, size_bytes, rolled_ms)

    def _write_snapshot(self, directory: Path, offset: int, size_bytes: int, modified_ms: int) -> None:
        path = directory / snapshot_name(offset)
        path.write_bytes(_snapshot(size_bytes))
        os.utime(path, ns=(modified_ms * 1_000_000,) * 2)

    def _write_segment(self, directory: Path, segment: Listed, end_offset: int) -> None:
        builder = IndexBuilder(segment.base_offset)
        with open(directory / log_name(segment.base_offset), "wb") as log:
            for position, header in self._headers(segment, end_offset):
                log.seek(position)
                is_active = segment is self.segments[-1]
                zeros = bytes(header.size_bytes - HEADER_BYTES) if is_active else b""
                log.write(sealed(header, zeros)[:HEADER_BYTES])
                builder.append(header.last_offset, position, header.size_bytes, header.max_timestamp)
            log.truncate(segment.log_bytes)
        offset_index, time_index = builder.finish()
        _write_padded(directory / index_name(segment.base_offset), offset_index, segment.index_bytes)
        if segment is not self.segments[-1] and segment.time_index_bytes is not None:
            time_index = _filled(time_index, segment.time_index_bytes)
        _write_padded(directory / time_index_name(segment.base_offset), time_index, segment.time_index_bytes)
        for name in (log_name, index_name, time_index_name):
            os.utime(directory / name(segment.base_offset), ns=(segment.modified_ms * 1_000_000,) * 2)

    def _headers(self, segment: Listed, end_offset: int) -> Iterator[tuple[int, Header]]:
        """Yield positions and headers of batches that tile the segment, its offsets spread evenly over them."""
        count = max(1, segment.log_bytes // self.batch_bytes)
        if segment.index_bytes is not None and segment.log_bytes < 32 << 20 and segment.index_bytes < 10 << 20:
            count = segment.index_bytes // 8 + 1  # All but the first batch of a segment have an entry.
        offsets = [segment.base_offset + (end_offset - segment.base_offset) * n // count for n in range(count + 1)]
        positions = [segment.log_bytes * n // count for n in range(count + 1)]
        times = [segment.modified_ms - 1000 * (count - 1 - n) for n in range(count)]
        if segment.time_index_bytes is not None and segment.time_index_bytes // 12 < count:
            times[-1] = times[-2]  # The last batch was not the first to reach the greatest time: no entry of its own.
        for number in range(count):
            size_bytes = positions[number + 1] - positions[number]
            assert size_bytes > HEADER_BYTES
            header = Header(
                base_offset=offsets[number],
                length=size_bytes - LOG_OVERHEAD_BYTES,
                partition_leader_epoch=0,
                magic=2,
                crc=0,
                attributes=0,
                last_offset_delta=offsets[number + 1] - offsets[number] - 1,
                base_timestamp=times[number],
                max_timestamp=times[number],
                producer_id=-1,
                producer_epoch=-1,
                base_sequence=-1,
                records_count=offsets[number + 1] - offsets[number],
            )
            yield positions[number], header


def _listed(words: list[str]) -> Listed:
    base_offset, log_bytes, *optional, modified = words
    index_bytes, time_index_bytes, snapshot_bytes = (None if word == "-" else int(word) for word in optional)
    return Listed(
        base_offset=int(base_offset),
        log_bytes=int(log_bytes),
        index_bytes=index_bytes,
        time_index_bytes=time_index_bytes,
        snapshot_bytes=snapshot_bytes,
        modified_ms=int(datetime.fromisoformat(modified).astimezone(UTC).timestamp() * 1000),
    )


def _write_padded(path: Path, entries: bytes, size_bytes: int | None) -> None:
    """Write an index, with zeros behind its entries up to the size in the listing."""
    path.write_bytes(entries)
    if size_bytes is not None:
        assert len(entries) <= size_bytes, (path.name, len(entries), size_bytes)
        os.truncate(path, size_bytes)


def _filled(entries: bytes, size_bytes: int) -> bytes:
    """Return a time index of this size, with more entries before the first one."""
    timestamp, relative_offset = TIME_ENTRY.unpack(entries[:TIME_ENTRY_BYTES])
    count = (size_bytes - len(entries)) // TIME_ENTRY_BYTES
    more = (TIME_ENTRY.pack(timestamp - count + number, relative_offset) for number in range(count))
    return b"".join(more) + entries


def _snapshot(size_bytes: int) -> bytes:
    """Return the state of as many idle producers as fit the size."""
    count = (size_bytes - SNAPSHOT_HEADER_BYTES) // ENTRY_BYTES
    return build_snapshot(
        ProducerEntry(
            producer_id=1000 + number,
            producer_epoch=0,
            last_sequence=-1,
            last_offset=-1,
            offset_delta=0,
            timestamp=0,
            coordinator_epoch=-1,
            current_txn_first_offset=-1,
        )
        for number in range(count)
    )
