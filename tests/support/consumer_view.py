"""What a consumer of committed records sees in a partition directory, read with kafka-python alone.

Shares no code with kcompact: names and checkpoints are read here by hand, batches, records and codecs by kafka-python.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    from kafka.record.memory_records import MemoryRecords

Latest = dict[bytes, tuple[int, bytes]]
"""Offset and value of the latest record of each key; keys whose latest record is a tombstone are left out."""


class View(NamedTuple):
    """`records` are all records of the files, committed or not; `latest` what a reader of committed records ends with.

    `problem` is where the reader stops, "" at the end of the log.
    """

    records: frozenset[tuple[int, bytes | None, bytes | None]]
    latest: Latest
    problem: str


def view(log_dir: Path, directory: Path) -> View:
    """Return the view from the log start to the last stable offset."""
    start = checkpoint(log_dir / "log-start-offset-checkpoint", directory.name) or 0
    high_watermark = checkpoint(log_dir / "replication-offset-checkpoint", directory.name)
    aborted = sorted(entry for path in directory.glob("*.txnindex") for entry in _aborted(path))
    batches, problem = [], ""
    try:
        for batch in read_batches(directory):
            batches.append(batch)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    open_from: dict[int, int] = {}
    records = {record for batch in batches if not batch.control for record in batch.records}
    batches = [batch for batch in batches if batch.last_offset >= start]
    for batch in batches:
        if batch.control:
            open_from.pop(batch.producer_id, None)
        elif batch.transactional:
            open_from.setdefault(batch.producer_id, batch.base_offset)
    stable = min([*open_from.values(), *([] if high_watermark is None else [high_watermark])], default=1 << 63)
    latest: dict[bytes, tuple[int, bytes | None]] = {}
    aborting: set[int] = set()
    for batch in batches:
        while aborted and aborted[0][0] <= batch.last_offset:
            aborting.add(aborted.pop(0)[1])
        if batch.control:
            if batch.is_abort:
                aborting.discard(batch.producer_id)
            continue
        if batch.transactional and batch.producer_id in aborting:
            continue
        for offset, key, value in batch.records:
            if start <= offset < stable and key is not None:
                latest[key] = offset, value
    return View(
        frozenset(records), {key: (at, value) for key, (at, value) in latest.items() if value is not None}, problem
    )


class ReadBatch(NamedTuple):
    """A batch as kafka-python reads it; a record is its offset, key and value."""

    base_offset: int
    last_offset: int
    producer_id: int
    transactional: bool
    control: bool
    is_abort: bool
    records: list[tuple[int, bytes | None, bytes | None]]


def read_batches(directory: Path) -> Iterator[ReadBatch]:
    """Yield the batches of a partition directory. Raises ValueError where the bytes are none."""
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        reader = MemoryRecords(data)
        read_bytes = 0
        while (found := reader.next_batch()) is not None:
            batch: Any = found
            if not batch.validate_crc():
                raise ValueError(f"{path.name}: a wrong checksum")
            records = [(record.offset, record.key, record.value) for record in batch]
            is_abort = batch.is_control_batch and bool(records) and struct.unpack(">hh", records[0][1][:4])[1] == 0
            yield ReadBatch(
                batch.base_offset,
                batch.base_offset + batch.last_offset_delta,
                batch.producer_id,
                batch.is_transactional,
                batch.is_control_batch,
                is_abort,
                records,
            )
            read_bytes += batch.size_in_bytes
        if read_bytes != len(data):
            raise ValueError(f"{path.name}: {len(data) - read_bytes} bytes are no batch")


def _aborted(path: Path) -> list[tuple[int, int]]:
    """Return first offset and producer of each entry."""
    data = path.read_bytes()
    entries = struct.iter_unpack(">hqqqq", data[: len(data) // 34 * 34])
    return [(first_offset, producer_id) for _, producer_id, first_offset, _, _ in entries]


def checkpoint(path: Path, name: str) -> int | None:
    """Return the offset of a partition in a file of checkpoints, None if it has none."""
    topic, _, partition = name.rpartition("-")
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    for line in lines[2:]:
        words = line.split()
        if words[:2] == [topic, partition] and words[2:] and words[2].lstrip("+-").isdecimal():
            return int(words[2])
    return None
