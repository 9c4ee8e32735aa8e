"""Cuts the logs of all replicas at the same offsets, so that a task reads the same offsets of each.

Each log is cut as for any scan, about every 16 MiB. Where one of them is cut, the others are cut too: a group of splits
has the batches of all replicas whose last offsets lie between two cuts. Nothing is cut inside of a batch of an older
format, or of one that a cleaner has made of it: other replicas may have its records on both sides (`windows`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from kcompact.errors import CorruptDataError
from kcompact.format.batch import Batch, Header
from kcompact.kernels import Column
from kcompact.log.batch_headers import header_at, headers
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile
from kcompact.log.offset_index import position_near
from kcompact.log.past_damage import readable_batches
from kcompact.questions.compare.epochs import NO_EPOCH
from kcompact.questions.compare.job import ComparedSplit
from kcompact.stages.job import Split
from kcompact.stages.splits import base_offset_at, cut_despite_damage


class AlignedSplits(NamedTuple):
    """The splits of each group, by replica and offset, and the range of last offsets of each group, without gaps."""

    groups: list[list[ComparedSplit]]
    ranges: list[range]


def aligned_splits(
    logs: Sequence[PartitionLog],
    excluded: Sequence[Column],
    unknown: Sequence[Column],
    split_bytes: int,
    memory_bytes: int,
    *,
    cuts: Iterable[int] = (),
) -> AlignedSplits:
    """Return the splits of some replicas. `cuts` are offsets at which all logs are cut too.

    `excluded` has for each replica the base offsets of the batches that are aborted or open, `unknown` of those that
    are one or the other.
    Raises RefusedError, StorageError.
    """
    of_logs = [cut_despite_damage(log, split_bytes, memory_bytes) for log in logs]
    end_offset = max(log.log_end_offset for log in logs)
    starts = {
        split.base_offset
        for splits in of_logs
        for split in splits
        if not (_begins_with_old_batch(split) and any(_divides_old_batch(split.base_offset, own) for own in of_logs))
    }
    bounds = sorted(
        each for each in {min(log.segments[0].base_offset for log in logs), *starts, *cuts} if each < end_offset
    )
    ranges = [range(*pair) for pair in pairwise([*bounds, end_offset])]
    groups: list[list[ComparedSplit]] = [[] for _ in ranges]
    for replica, splits in enumerate(of_logs):
        for split in splits:
            first = bisect_right(bounds, split.base_offset) - 1
            last = max(first + 1, bisect_left(bounds, split.end_offset))
            positions = [split.start_position, *(_position_in(split, bound) for bound in bounds[first + 1 : last])]
            pieces = pairwise([*positions, split.end_position])
            for group, (start, end) in zip(range(first, last), pieces, strict=True):
                if start < end:
                    groups[group].append(
                        ComparedSplit(
                            log=split.log,
                            start_position=start,
                            end_position=end,
                            base_offset=max(split.base_offset, ranges[group].start),
                            end_offset=_end_of(split, end),
                            excluded_from_map=_among(excluded[replica], ranges[group]),
                            identity=split.identity,
                            replica=replica,
                            group=group,
                            first_offset=ranges[group].start,
                            limit_offset=ranges[group].stop,
                            unknown=_among(unknown[replica], ranges[group]),
                        )
                    )
    return AlignedSplits(groups, ranges)


def _begins_with_old_batch(split: Split) -> bool:
    """Return whether a split begins within a segment, at a batch that was not written in format 2."""
    if not split.start_position:
        return False
    try:
        return _is_old(header_at(split.log, split.start_position, end_position=split.end_position))
    except CorruptDataError:
        return False


def _is_old(header: Header) -> bool:
    """Return whether a batch was not written in format 2, as `scan` asks it of tables."""
    return header.magic < 2 or header.partition_leader_epoch == NO_EPOCH


def _divides_old_batch(offset: int, splits: Sequence[Split]) -> bool:
    """Return whether a log has a batch that was not written in format 2 with offsets below an offset, and others."""
    number = bisect_right(splits, offset, key=lambda split: split.base_offset) - 1
    if number < 0:
        return False
    split = splits[number]
    try:
        position = _position_in(split, offset)
        if position == split.end_position:
            return False
        header = header_at(split.log, position, end_position=split.end_position)
        return _is_old(header) and base_offset_at(split.log, position) < offset
    except CorruptDataError:
        return False


def _among(base_offsets: Column, last_offsets: range) -> Column:
    """Return the base offsets of the batches whose last offsets lie in a range, and perhaps that of the one before."""
    first, end = np.searchsorted(base_offsets, (last_offsets.start, last_offsets.stop)).tolist()
    among: Column = base_offsets[max(0, first - 1) : end].copy()
    return among


def _position_in(split: Split, offset: int) -> int:
    return position_of(split.log, offset, split.start_position, split.end_position)


def _end_of(split: Split, end_position: int) -> int:
    """Return the offset up to which the bytes before a position may have records: damage can reach above a bound."""
    if end_position == split.end_position:
        return split.end_offset
    try:
        header = header_at(split.log, end_position, end_position=split.end_position)
    except CorruptDataError:
        return split.end_offset
    return header.base_offset


def position_of(file: LogFile, offset: int, start_position: int, end_position: int) -> int:
    """Return where the first batch between two positions begins that ends at or above an offset; else the second one.

    Raises RefusedError, StorageError.
    """
    start = max(start_position, min(position_near(file, offset), end_position))
    try:
        for position, header in headers(file, start_position=start, end_position=end_position):
            if header.last_offset >= offset:
                return position
    except CorruptDataError:
        for part in readable_batches(file, start_position=start_position, end_position=end_position):
            if isinstance(part, Batch) and part.header.last_offset >= offset:
                return part.position
    return end_position
