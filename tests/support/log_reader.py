"""Reads a partition directory back as the values of `log_writer`, and as records."""

from __future__ import annotations

from pathlib import Path

from kcompact.format.batch import Record, parse_batches, read_records
from kcompact.format.index import AbortedTxn, parse_txn_index
from tests.support.log_writer import SegmentSpec


def read_segments(directory: Path) -> tuple[SegmentSpec, ...]:
    """Return the segments of a partition directory with the times of their files."""
    return tuple(
        SegmentSpec(
            base_offset=int(path.stem),
            batches=tuple(bytes(one.data) for one in parse_batches(path.read_bytes(), file=path.name)),
            mtime_ms=path.stat().st_mtime_ns // 1_000_000,
        )
        for path in sorted(directory.glob("*.log"))
    )


def read_aborted(directory: Path) -> dict[int, tuple[AbortedTxn, ...]]:
    """Return the aborted transactions of each `.txnindex` by the base offset of its segment."""
    return {
        int(path.stem): tuple(parse_txn_index(path.read_bytes(), base_offset=int(path.stem), file=path.name))
        for path in sorted(directory.glob("*.txnindex"))
    }


def read_log_records(path: Path) -> list[Record]:
    """Return all records of one `.log`."""
    batches = parse_batches(path.read_bytes(), file=path.name)
    return [record for one in batches for record in read_records(one, file=path.name)]
