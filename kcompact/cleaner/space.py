"""The free space that a cleaning needs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kcompact.clean.prepare import PreparedClean
from kcompact.errors import NotEnoughSpaceError
from kcompact.plan.clean_plan import CleanPlan
from kcompact.swap.copy.contents import read_partition_contents

SPACE_MARGIN = 1.05
"""A staged segment can be slightly larger than its sources: timestamps relative to a delete horizon need more bytes."""


def waves(prepared: PreparedClean) -> Iterator[list[int]]:
    """Yield the numbers of the groups to write next: as many as the free space holds, at least one."""
    plan = prepared.plan
    # While a part is appended to the first part, the disk holds it twice.
    joined_bytes = max((task.size_bytes for task in prepared.tasks if not task.is_only), default=0)
    number = 0
    while number < len(plan.groups):
        free_bytes = _free_bytes(plan.log.directory)
        wave: list[int] = []
        needed_bytes = joined_bytes
        while number < len(plan.groups):
            needed_bytes += _group_bytes(plan, number)
            if wave and needed_bytes > free_bytes:
                break
            wave.append(number)
            number += 1
        yield wave


def require_space(plan: CleanPlan) -> None:
    """Raise NotEnoughSpaceError if not even the largest group fits the free space."""
    needed_bytes = max(_group_bytes(plan, number) for number in range(len(plan.groups)))
    free_bytes = _free_bytes(plan.log.directory)
    if needed_bytes > free_bytes:
        raise NotEnoughSpaceError(path=plan.log.directory, needed_bytes=needed_bytes, free_bytes=free_bytes)


def copy_bytes(plan: CleanPlan) -> int:
    """Return how many bytes a compacted copy of the partition can take: the groups, and the other files as they are."""
    files_bytes = read_partition_contents(plan.log.directory).size_bytes
    replaced_bytes = sum(file.size_bytes for segment in plan.segments for file in segment.files)
    return files_bytes - replaced_bytes + sum(_group_bytes(plan, number) for number in range(len(plan.groups)))


def _group_bytes(plan: CleanPlan, number: int) -> int:
    return int(sum(s.size_bytes + s.index_bytes + s.time_index_bytes for s in plan.groups[number]) * SPACE_MARGIN)


def _free_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize
