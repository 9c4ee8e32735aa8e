"""Cuts segments into splits, the pieces of work of a cleaning.

A split is a run of whole batches of one segment. Its boundaries come from the offset index, which the scan verifies, or
from the batch headers where there is no index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from kcompact.clean.job import Split
from kcompact.format import index
from kcompact.format.batch import read_records
from kcompact.format.names import Suffix
from kcompact.log.directory import Segment
from kcompact.log.files import read_file
from kcompact.log.segment_reader import batches, headers
from kcompact.plan.clean_plan import CleanPlan

SPLIT_BYTES = 32 << 20
"""The size of a split: a task reads one split at a time."""


def number_splits(plan: CleanPlan, split_bytes: int, *, trust_index: bool) -> dict[int, list[Split]]:
    """Return the splits of each segment, by base offset. Numbers rise over all segments."""
    found, number = {}, 0
    for segment in plan.segments:
        splits = _splits(plan, segment, split_bytes, trust_index=trust_index)
        found[segment.base_offset] = [replace(split, number=number + index) for index, split in enumerate(splits)]
        number += len(splits)
    return found


def _splits(plan: CleanPlan, segment: Segment, split_bytes: int, *, trust_index: bool) -> list[Split]:
    """Return a segment cut at batch boundaries, about every `split_bytes`. An empty segment has no splits."""
    if segment.size_bytes == 0:
        return []
    path = plan.log.directory / segment.log_name
    starts = [0]
    if segment.size_bytes > split_bytes:
        positions = np.fromiter(_batch_positions(path, segment, trust_index), np.int64)
        while (entry := int(np.searchsorted(positions, starts[-1] + split_bytes))) < len(positions):
            starts.append(int(positions[entry]))
    bases = [segment.base_offset, *(_base_offset_at(path, position) for position in starts[1:])]
    ends = [*starts[1:], segment.size_bytes]
    end_offsets = [*bases[1:], min(plan.log.end_of(segment), plan.first_uncleanable_offset)]
    keeps_legacy_tombstones = segment.last_modified_ms > legacy_horizon_ms(plan)
    return [
        Split(
            log_name=segment.log_name,
            start_position=start,
            end_position=end,
            base_offset=base_offset,
            end_offset=end_offset,
            check_index=trust_index,
            keeps_legacy_tombstones=keeps_legacy_tombstones,
        )
        for start, end, base_offset, end_offset in zip(starts, ends, bases, end_offsets, strict=True)
    ]


def legacy_horizon_ms(plan: CleanPlan) -> int:
    """Return the legacy delete horizon: segments modified at or before it lose their tombstones of magic 0 and 1.

    The horizon is the modification time of the last clean segment minus `delete.retention.ms`; 0 without a clean
    segment. Rule: `Cleaner.doClean`.
    """
    clean = [segment for segment in plan.log.segments if segment.base_offset < plan.first_dirty_offset]
    return clean[-1].last_modified_ms - plan.config.delete_retention_ms if clean else 0


def _batch_positions(path: Path, segment: Segment, trust_index: bool) -> Iterable[int]:
    index_path = path.with_suffix(Suffix.INDEX)
    if trust_index and index_path.exists():
        entries = index.parse_offset_index(read_file(index_path), base_offset=segment.base_offset, file=str(index_path))
        return [entry.position for entry in entries if entry.position < segment.size_bytes]
    return (position for position, _ in headers(path, end_position=segment.size_bytes))


def _base_offset_at(path: Path, position: int) -> int:
    _, header = next(headers(path, start_position=position))
    if header.magic == 2:
        return header.base_offset
    # A legacy batch stores its first offset only inside its compressed section.
    (batch,) = batches(path, start_position=position, end_position=position + header.size_bytes)
    return read_records(batch, file=str(path))[0].offset
